"""Talking to a deployment: one request to one of its READY engines, and the answer as the engine makes it.

The way is always the node's own SSH connection, so an engine may listen where only its node reaches it, and its key
stays where it is. Nothing of what is said is kept or logged.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db import connection

from deployments.domain.completions import Chunk, lacks_chat_template, read_line, read_refusal
from deployments.domain.errors import Conflict, DomainError, InvalidInput, PilothouseError
from deployments.models import Deployment
from deployments.remote import launcher
from deployments.remote.launcher import HelperFailed, NodeTarget, RemoteError, TimedOut
from deployments.services.access import Actor, Role, require
from deployments.services.deployments import get_deployment
from deployments.services.processes import endpoints, get_process
from deployments.targets import target_of

ROLES = ("system", "user", "assistant")
MAX_TOKENS = 32_768
MAX_MESSAGES = 400
MAX_LETTERS = 1_000_000
MAX_TEMPERATURE = 2.0
# Seconds without a new word, opening the connection and waiting in the engine's queue included; and for all of it.
SILENCE_S = 60.0
TOTAL_S = 600.0
ANSWER_LETTERS = 4_000_000
# Answers at the same time in one operating system process; each has a connection of its own.
MAX_OPEN = 64
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"

_turn = itertools.count()
_on_their_way: set[int] = set()


class NotReady(Conflict):
    code = "NOT_READY"
    default_remedy = "Wait until one of its engines is ready; the deployment's page says what it waits for."


class TooManyChats(Conflict):
    code = "TOO_MANY_CHATS"
    default_remedy = "Wait until some of the answers on their way are complete."


class EngineRefused(DomainError):
    """The engine found fault with the request."""

    code = "ENGINE_REFUSED"
    default_remedy = "Change the request as the engine's words say."


class NoChatTemplate(EngineRefused):
    code = "NO_CHAT_TEMPLATE"
    default_remedy = "Use plain completion, or start the engine with --chat-template and a template's file."


class EngineFailed(RemoteError):
    """The engine answered that it cannot, or with something that is no answer."""

    code = "ENGINE_FAILED"
    default_remedy = "Look at the engine's log and try again."


class AnswerBroke(RemoteError):
    """The answer began and did not end; what came of it stays."""

    code = "ANSWER_BROKE"
    default_remedy = "What came until then is complete as far as it goes. Look at the engine's log and try again."


class EngineSilent(TimedOut):
    code = "ENGINE_SILENT"
    default_remedy = "The engine may have many requests waiting; look at the deployment's figures and try again."


class AnswerTooLong(TimedOut):
    code = "ANSWER_TOO_LONG"
    default_remedy = "Ask for fewer tokens."


@dataclass(frozen=True, slots=True)
class ChatInput:
    """What is asked: a conversation (`messages` of role and content) or a `prompt` to go on from, not both."""

    messages: Sequence[Mapping[str, str]] = ()
    prompt: str | None = None
    max_tokens: int = 512
    temperature: float = 0.7

    @property
    def path(self) -> str:
        return PLAIN if self.prompt is not None else CHAT


@dataclass(slots=True)
class Answer:
    """An answer as far as it came; what was not said or measured is None.

    The times are the panel's: `first_words_s` from the moment the node passed the request to the engine until the
    first words were here, `took_s` until the last were. `tokens_per_s` counts what came between the two.
    """

    process: str
    node: str
    text: str = ""
    thought: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    first_words_s: float | None = None
    took_s: float | None = None
    tokens_per_s: float | None = None

    def figures(self) -> dict[str, Any]:
        """All but the words."""
        return {name: value for name, value in asdict(self).items() if name not in ("text", "thought")}


@dataclass(slots=True)
class Conversation:
    """One request on its way. Iterate `pieces` once; `answer` grows with it and keeps what came when it breaks."""

    target: NodeTarget
    process: str
    path: str
    body: dict[str, Any] = field(repr=False)
    answer: Answer = field(repr=False)
    _asked_at: float | None = field(default=None, repr=False)
    _word_at: float | None = field(default=None, repr=False)
    _ended: bool = field(default=False, repr=False)

    async def pieces(self) -> AsyncGenerator[Chunk, None]:
        """The words as they come. Closing it ends the request on the engine.

        Raises:
            TooManyChats, EngineRefused, EngineFailed, AnswerBroke, EngineSilent, AnswerTooLong, RemoteError
        """
        if len(_on_their_way) >= MAX_OPEN:
            raise TooManyChats(f"{MAX_OPEN} answers are on their way already.")
        _on_their_way.add(id(self))
        try:
            async with aclosing(self._heard()) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            _on_their_way.discard(id(self))

    async def _heard(self) -> AsyncGenerator[Chunk, None]:
        events = launcher().converse(self.target, self.process, self.path, self.body)
        began = heard = time.monotonic()
        async with aclosing(events):
            while not self._ended:
                event = await self._next(events, heard, began)
                if event is None:
                    break
                for chunk in self._read(event):
                    heard = time.monotonic()
                    yield chunk
        if not self._ended:
            raise AnswerBroke("The engine ended the answer in the middle.", node=self.target.name)

    async def whole(self) -> Answer:
        """The answer once it is complete.

        Raises:
            PilothouseError: As `pieces`; the detail has the `answer` as far as it came.
        """
        try:
            async with aclosing(self.pieces()) as pieces:
                async for _ in pieces:
                    pass
        except PilothouseError as error:
            error.detail = {**error.detail, "answer": asdict(self.answer)}
            raise
        return self.answer

    async def _next(
        self, events: AsyncGenerator[dict[str, Any], None], heard: float, began: float
    ) -> dict[str, Any] | None:
        """The next event; None at the end."""
        left = began + TOTAL_S - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(left, heard + SILENCE_S - time.monotonic()))):
                return await anext(events, None)
        except TimeoutError:
            if time.monotonic() >= began + TOTAL_S:
                raise AnswerTooLong(f"The answer took more than {TOTAL_S:g} s.", node=self.target.name) from None
            raise EngineSilent(f"No word came for {SILENCE_S:g} s.", node=self.target.name) from None
        except HelperFailed as error:
            raise self._explained(error) from error
        except RemoteError as error:
            if self._word_at is None:
                raise
            raise AnswerBroke(error.message, node=self.target.name) from error

    def _explained(self, error: HelperFailed) -> PilothouseError:
        """What the node's helper says of the engine, in this service's words."""
        status, body = error.detail.get("status"), error.detail.get("body")
        if error.code == "ENGINE_ANSWERED" and isinstance(status, int):
            return self._refused(status, read_refusal(status, str(body or "")))
        if self._word_at is not None:
            return AnswerBroke(error.message, node=self.target.name)
        if error.code in ("NOT_RUNNING", "UNKNOWN_PROCESS"):
            return NotReady(error.message, node=self.target.name)
        if error.code.startswith("ENGINE_"):
            return EngineFailed(error.message, node=self.target.name, code=error.code)
        return error

    def _refused(self, status: int | None, message: str) -> PilothouseError:
        said, node = {"status": status}, self.target.name
        if self.path == CHAT and status == 400 and lacks_chat_template(message):
            return NoChatTemplate(f"The model has no chat template: {message}", node=node, detail=said)
        if status is not None and 400 <= status < 500 and status not in (401, 403, 404, 429):
            return EngineRefused(f"The engine answered {status}: {message}", node=node, detail=said)
        return EngineFailed(f"The engine answered {status or 'with an error'}: {message}", node=node, detail=said)

    def _read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """The pieces with words in an event, one at a time: what comes before a fault is worth having."""
        if event.get("asked"):
            self._asked_at = time.monotonic()
        lines = event.get("lines")
        for line in lines if isinstance(lines, list) else ():
            chunk = self._chunk(str(line))
            if chunk is not None:
                self._take(chunk)
                if chunk.text or chunk.thought:
                    yield chunk

    def _chunk(self, line: str) -> Chunk | None:
        try:
            chunk = read_line(line)
        except ValueError:
            raise EngineFailed("The engine wrote something that is no answer.", node=self.target.name) from None
        if chunk is not None and chunk.error is not None:
            raise self._refused(*chunk.error)
        return chunk

    def _take(self, chunk: Chunk) -> None:
        answer, now = self.answer, time.monotonic()
        answer.text += chunk.text
        answer.thought += chunk.thought
        if len(answer.text) + len(answer.thought) > ANSWER_LETTERS:
            raise AnswerTooLong("The answer is longer than the panel takes.", node=self.target.name)
        answer.finish_reason = chunk.finish_reason or answer.finish_reason
        if chunk.prompt_tokens is not None:
            answer.prompt_tokens = chunk.prompt_tokens
        if chunk.completion_tokens is not None:
            answer.completion_tokens = chunk.completion_tokens
        if chunk.text or chunk.thought:
            self._measure(now)
        if chunk.done:
            self._ended = True
            self._rate()

    def _measure(self, now: float) -> None:
        if self._asked_at is None:
            return
        if self._word_at is None:
            self.answer.first_words_s = round(now - self._asked_at, 4)
        self._word_at = now
        self.answer.took_s = round(now - self._asked_at, 4)

    def _rate(self) -> None:
        """Tokens after the first, over the time from the first to the last."""
        answer = self.answer
        if answer.completion_tokens is None or answer.first_words_s is None or answer.took_s is None:
            return
        span = answer.took_s - answer.first_words_s
        if answer.completion_tokens > 1 and span > 0:
            answer.tokens_per_s = round((answer.completion_tokens - 1) / span, 2)


def begin(actor: Actor, deployment_name: str, wish: ChatInput) -> Conversation:
    """A request to one of the deployment's READY engines, each in turn; nothing is sent before `pieces` is iterated.

    Raises:
        NotPermitted, NotFound, InvalidInput
        NotReady: No engine of it is READY.
    """
    require(actor, Role.operator, "talk to deployments")
    try:
        deployment = get_deployment(deployment_name)
        check(wish)
        found = sorted(endpoints(deployment), key=lambda end: str(end["process"]))
        if not found:
            raise NotReady(f"{deployment.name} is {deployment.state.lower()}: none of its engines is ready.")
        process = get_process(found[next(_turn) % len(found)]["process"])
        answer = Answer(str(process.pk), process.node.name)
        return Conversation(target_of(process.node), str(process.pk), wish.path, _body(deployment, wish), answer)
    finally:
        # The answer may take minutes, and the pool of connections is small.
        if not connection.in_atomic_block:
            connection.close()


def check(wish: ChatInput) -> None:
    """Refuse what no engine need be asked.

    Raises:
        InvalidInput: The first thing that is wrong.
    """
    if (wish.prompt is None) == (not wish.messages):
        raise InvalidInput("Send either messages or a prompt.", field="messages")
    if len(wish.messages) > MAX_MESSAGES:
        raise InvalidInput(f"A conversation has at most {MAX_MESSAGES} messages.", field="messages")
    for message in wish.messages:
        if set(message) != {"role", "content"} or message["role"] not in ROLES:
            raise InvalidInput("A message has a content and a role: system, user or assistant.", field="messages")
    texts = [wish.prompt or "", *(message["content"] for message in wish.messages)]
    if sum(map(len, texts)) > MAX_LETTERS:
        raise InvalidInput(f"The conversation has more than {MAX_LETTERS} letters.", field="messages")
    if not all(map(_is_sound, texts)):
        raise InvalidInput("The conversation has half a character in it.", field="messages")
    if wish.prompt == "":
        raise InvalidInput("The prompt is empty.", field="prompt")
    if not 1 <= wish.max_tokens <= MAX_TOKENS:
        raise InvalidInput(f"Tokens are between 1 and {MAX_TOKENS}.", field="max_tokens")
    if not 0 <= wish.temperature <= MAX_TEMPERATURE:
        raise InvalidInput(f"The temperature is between 0 and {MAX_TEMPERATURE:g}.", field="temperature")


def _is_sound(text: str) -> bool:
    """False for half of a surrogate pair, which JSON may hold and UTF-8 may not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _body(deployment: Deployment, wish: ChatInput) -> dict[str, Any]:
    said: dict[str, Any] = {"prompt": wish.prompt}
    if wish.prompt is None:
        said = {"messages": [dict(message) for message in wish.messages]}
    return {
        "model": deployment.served_name,
        **said,
        "max_tokens": wish.max_tokens,
        "temperature": wish.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
