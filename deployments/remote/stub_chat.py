"""What simulated engines answer when they are talked to: word by word, and no further than a test lets them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .launcher import HelperFailed

_LOOK_S = 0.01
_DONE = "data: [DONE]"


@dataclass(slots=True)
class StubChat:
    """The engines' side of every conversation of a stub launcher.

    Attributes:
        words: The answer, in the pieces that an engine would make; `max_tokens` cuts it off.
        thoughts: What a reasoning model says to itself first.
        refusal: `(status, body)` to answer instead.
        error: Raised by the connection once `breaks_after` pieces are out.
        breaks_after: The connection ends after so many pieces: with `error`, or without a word.
        gate: While it is cleared, only the first piece comes.
        heard: `(path, body)` of every request.
        open: Requests that are being answered now.
        aborted: Requests that ended before their answer.
    """

    words: tuple[str, ...] = ("Good", " day", ",", " captain", ".")
    thoughts: tuple[str, ...] = ()
    refusal: tuple[int, str] | None = None
    error: Exception | None = None
    breaks_after: int | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    open: int = 0
    aborted: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    async def answer(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Events as `Launcher.converse` brings them."""
        self.heard.append((path, dict(body)))
        self.open += 1
        whole = False
        try:
            yield {"asked": True}
            if self.refusal is not None:
                status, text = self.refusal
                detail = {"status": status, "body": text}
                raise HelperFailed(f"The engine answered {status}.", code="ENGINE_ANSWERED", detail=detail)
            yield {"status": 200}
            async for lines in self._lines(path, body):
                whole = lines[-1] == _DONE
                yield {"lines": lines}
        finally:
            self.open -= 1
            self.aborted += not whole

    async def _lines(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[list[str], None]:
        chat = path.endswith("/chat/completions")
        limit = int(body.get("max_tokens") or len(self.words))
        pieces = [("reasoning_content", word) for word in self.thoughts if chat]
        pieces += [("content", word) for word in self.words[:limit]]
        for place, (name, word) in enumerate(pieces):
            if place == self.breaks_after:
                if self.error is not None:
                    raise self.error
                return
            yield [_line(_choice(chat, {name: word}))]
            await self._wait()
        reason = "length" if limit < len(self.words) else "stop"
        yield [_line(_choice(chat, {}, reason))]
        count = len(pieces)
        usage = {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}
        yield [_line({"choices": [], "usage": usage}), _DONE]

    async def _wait(self) -> None:
        """The gate is opened by another thread."""
        await asyncio.sleep(0)
        while not self.gate.is_set():
            await asyncio.sleep(_LOOK_S)


def _choice(chat: bool, delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
    said = {"delta": delta} if chat else {"text": delta.get("content", "")}
    return {"choices": [{"index": 0, **said, "finish_reason": reason}]}


def _line(chunk: dict[str, Any]) -> str:
    return "data: " + json.dumps({"id": "stub", "model": "stub", **chunk})
