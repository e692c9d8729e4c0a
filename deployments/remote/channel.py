"""One open connection to one node helper: starts it, then carries many requests and streams at once.

A channel belongs to the event loop that opened it. It knows nothing of SSH: it gets a `Link`, which is two streams and
the two things only the opener can do, closing them and putting their exceptions into our words.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from . import bundle
from .frames import (
    KEPT_NOISE_BYTES,
    MAX_PAYLOAD_BYTES,
    FrameDecoder,
    Greeting,
    GreetingFinder,
    encode,
    printable,
    violation,
)
from .launcher import HelperFailed, RemoteError, TimedOut, Unreachable

BOOT_DEADLINE_S = 20.0
READ_BYTES = 64 * 1024
SCHEMA = 1
# Nobody asked for so many messages in so short a time (s): a node that sends more is broken, and would keep our loop
# from the other nodes.
FLOOD_MESSAGES, FLOOD_S = 50_000, 10.0

_BOOT_MESSAGES = {
    "INTERPRETER_MISSING": "{node} has no Python at {said}.",
    "INTERPRETER_TOO_OLD": "The Python of {node} is {said}; 3.8 is the oldest that works.",
    "INTERPRETER_UNFIT": "The Python of {node} is not complete: {said}.",
}
_BOOT_REMEDIES = {
    "INTERPRETER_MISSING": "Install Python 3.8 or newer on the node, or give the node the absolute path of one.",
    "INTERPRETER_TOO_OLD": "Give the node the absolute path of a Python 3.8 or newer.",
    "INTERPRETER_UNFIT": "Install the missing part of its standard library, or give the node another Python's path.",
}


class ChannelEnded(Unreachable):
    """The connection was open and ended. On a kept connection that says little: a fresh one may well work."""


@dataclass(slots=True)
class Link:
    """The two streams of a started `/bin/sh`, as the opener made them.

    Attributes:
        reader: Has `async read(n) -> bytes`, empty at the end.
        writer: Has `write(bytes)` and `async drain()`.
        errors: The shell's stderr, like `reader`, or None.
        close: Ends the shell and frees the connection.
        translate: Says in our words why a stream broke.
    """

    reader: Any
    writer: Any
    errors: Any
    close: Callable[[], Awaitable[None]]
    translate: Callable[[Exception], RemoteError]


class _Pending:
    """A request on its way: the reply to come, and for a stream the newest events not yet read.

    With `lossless` no event is dropped: the channel stops reading while there are more than `depth`.
    """

    def __init__(self, number: int, depth: int, lossless: bool = False) -> None:
        self.number = number
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.events: deque[dict[str, Any]] = deque(maxlen=None if lossless else depth)
        self.wake = asyncio.Event()
        self.dropped = 0
        self._limit = depth if lossless else None

    @property
    def full(self) -> bool:
        return self._limit is not None and len(self.events) > self._limit

    def add(self, event: dict[str, Any]) -> None:
        # The channel is shared: a slow reader loses its oldest reports, and never stops the others' replies.
        self.dropped += len(self.events) == self.events.maxlen
        self.events.append(event)
        self.wake.set()

    def settle(self, result: Any = None, error: RemoteError | None = None) -> None:
        if not self.reply.done():
            if error is None:
                self.reply.set_result(result)
            else:
                self.reply.set_exception(error)
                self.reply.exception()  # Nobody may be waiting any more; that is no news for the log.
        self.wake.set()


class Channel:
    """A started helper. Made by `open_channel`.

    Attributes:
        node: The node's name, for messages.
        hello: What the helper said of itself.
        noise: What the login shell printed first (at most 2 KiB).
        last_heard: Monotonic time of the last byte received.
        ended: Why it is of no more use, or None.
    """

    def __init__(self, link: Link, node: str, cap: int = MAX_PAYLOAD_BYTES) -> None:
        self.node = node
        self.hello: dict[str, Any] = {}
        self.noise = ""
        self.last_heard = time.monotonic()
        self.ended: RemoteError | None = None
        self._link = link
        self._cap = cap
        self._nonce = secrets.token_hex(16)
        self._pending: dict[int, _Pending] = {}
        self._last_number = 0
        self._unasked = 0
        self._unasked_since = 0.0
        self._errors = bytearray()
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()

    async def request(self, verb: str, args: dict[str, Any], timeout: float) -> Any:
        """Asks and waits for the reply.

        Raises:
            HelperFailed: The helper refused; `code` is its own.
            TimedOut: No reply within `timeout` seconds; the helper is told to give up.
            ChannelEnded: The connection ended first.
        """
        pending = self._begin(depth=1)
        try:
            async with asyncio.timeout(timeout):
                await self._send({"id": pending.number, "verb": verb, "args": args})
                return await pending.reply
        except TimeoutError:
            raise TimedOut(f"{self.node} did not answer `{verb}` within {timeout:g} s.", node=self.node) from None
        finally:
            self._finish(pending)

    async def stream(
        self,
        verb: str,
        args: dict[str, Any],
        *,
        depth: int = 4,
        silence_s: float | None = None,
        lossless: bool = False,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a request, as they come; a reader more than `depth` behind loses the oldest.

        With `lossless` nothing is lost: the whole channel waits for that reader, so it must be alone on it.

        Raises:
            TimedOut: Nothing came for `silence_s` seconds.
            HelperFailed, ChannelEnded: As `request`.
        """
        pending = self._begin(depth, lossless)
        try:
            await self._send({"id": pending.number, "verb": verb, "args": args})
            while pending.events or not pending.reply.done():
                if pending.events:
                    yield pending.events.popleft()
                    self._room.set()
                    continue
                pending.wake.clear()
                await self._heard(pending, verb, silence_s)
            pending.reply.result()
        finally:
            self._finish(pending)

    async def _heard(self, pending: _Pending, verb: str, silence_s: float | None) -> None:
        try:
            async with asyncio.timeout(silence_s):
                await pending.wake.wait()
        except TimeoutError:
            raise TimedOut(f"{self.node} sent nothing on `{verb}` for {silence_s:g} s.", node=self.node) from None

    async def close(self) -> None:
        """Ends the helper and everything that still waits for it. May be called again."""
        self._end(ChannelEnded(f"The connection to {self.node} was closed.", node=self.node))
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await self._link.close()

    async def boot(self, installation: str, interpreter: str | None) -> None:
        """Starts the helper and greets it. Called once, by `open_channel`."""
        if self._link.errors is not None:
            self._tasks.append(asyncio.create_task(self._keep_errors()))
        await self._write(bundle.boot_line(self._nonce, interpreter).encode())
        greeting = await self._greeting(interpreter)
        self.noise = greeting.noise
        if not greeting.ok:
            raise self._refused(greeting.words)
        await self._write(bundle.bundle(greeting.words))
        decoder = FrameDecoder(self._nonce, self._cap)
        self._take_all(decoder.feed(greeting.rest))
        self._tasks.append(asyncio.create_task(self._listen(decoder)))
        said = await self.request("hello", {"installation": installation, "schema": SCHEMA}, BOOT_DEADLINE_S)
        if not isinstance(said, dict):
            raise violation("The node does not say who it is.", got=repr(said)[:KEPT_NOISE_BYTES])
        self.hello = said

    async def _greeting(self, interpreter: str | None) -> Greeting:
        finder = GreetingFinder(self._nonce)
        while True:
            data = await self._read()
            greeting = finder.feed(data)
            self.noise = finder.noise
            if greeting is not None:
                return greeting
            if not data:
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=0.2)
                raise self._never_started(interpreter)

    def _never_started(self, interpreter: str | None) -> HelperFailed:
        return HelperFailed(
            f"The login shell of {self.node} ended without starting {interpreter or 'a Python'}.",
            code="BOOT_FAILED",
            remedy="The user needs a login shell, its key must not be tied to a forced command, and the interpreter, "
            "if the node names one, must be a Python.",
            detail=self.evidence(),
        )

    def _refused(self, words: str) -> HelperFailed:
        code, _, said = words.partition(" ")
        return HelperFailed(
            _BOOT_MESSAGES.get(code, "Python on {node}: {said}.").format(node=self.node, said=said),
            code=code,
            remedy=_BOOT_REMEDIES.get(code),
            detail={"said": said, **self.evidence()},
        )

    def evidence(self) -> dict[str, str]:
        """What the shell printed, for the reader of an error."""
        return {"noise": self.noise, "stderr": printable(bytes(self._errors))}

    async def _listen(self, decoder: FrameDecoder) -> None:
        failure: RemoteError
        try:
            while data := await self._read():
                self._take_all(decoder.feed(data))
                await self._make_room()
            failure = ChannelEnded(f"The helper on {self.node} ended.", node=self.node, detail=self.evidence())
        except RemoteError as error:
            failure = error
        self._end(failure)
        await self._link.close()

    async def _make_room(self) -> None:
        """Until no lossless reader is too far behind; meanwhile the helper's writing blocks."""
        while any(pending.full for pending in self._pending.values()):
            self._room.clear()
            await self._room.wait()

    def _take_all(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        number = message["id"]
        pending = self._pending.get(number)
        if pending is None:
            # A reply may cross our giving up; a number that was never asked is no reply at all.
            if not 0 < number <= self._last_number:
                raise violation("The node answered a request that was never made.", id=number)
            self._count_unasked()
        elif isinstance(event := message.get("event"), dict):
            self._count_unasked()
            pending.add(event)
        elif message.get("ok") is True:
            pending.settle(result=message.get("result"))
        elif message.get("ok") is False and isinstance(message.get("error"), dict):
            pending.settle(error=self._helper_error(message["error"]))
        else:
            raise violation("The node sent neither a result, an error nor an event.", id=number)

    def _count_unasked(self) -> None:
        """Events and late replies come at the node's pace, not at ours: too fast a pace ends the connection."""
        now = time.monotonic()
        if now - self._unasked_since > FLOOD_S:
            self._unasked, self._unasked_since = 0, now
        self._unasked += 1
        if self._unasked > FLOOD_MESSAGES:
            raise violation(f"The node sent more than {FLOOD_MESSAGES} messages within {FLOOD_S:g} s.")

    def _helper_error(self, error: dict[str, Any]) -> HelperFailed:
        detail = error.get("detail")
        return HelperFailed(
            str(error.get("message") or "The node gave no reason."),
            code=str(error.get("code") or HelperFailed.code),
            remedy=str(error["remedy"]) if error.get("remedy") else None,
            detail=detail if isinstance(detail, dict) else {},
            node=self.node,
        )

    def _begin(self, depth: int, lossless: bool = False) -> _Pending:
        if self.ended is not None:
            raise ChannelEnded(self.ended.message, node=self.node, detail=self.ended.detail)
        self._last_number += 1
        pending = self._pending[self._last_number] = _Pending(self._last_number, depth, lossless)
        return pending

    def _finish(self, pending: _Pending) -> None:
        self._pending.pop(pending.number, None)
        self._room.set()
        # Giving up on an awaited reply cancels the future; only an answered one is not worth a word to the helper.
        answered = pending.reply.done() and not pending.reply.cancelled()
        if not answered and self.ended is None:
            self._last_number += 1
            message = {"id": self._last_number, "verb": "cancel", "args": {"id": pending.number}}
            with contextlib.suppress(Exception):
                self._link.writer.write(encode(self._nonce, message))

    def _end(self, failure: RemoteError) -> None:
        if self.ended is None:
            failure.node = failure.node or self.node
            self.ended = failure
        for pending in list(self._pending.values()):
            pending.settle(error=self.ended)

    async def _send(self, message: dict[str, Any]) -> None:
        await self._write(encode(self._nonce, message))

    async def _write(self, data: bytes) -> None:
        """One call writes a whole frame to the buffer, so a cancelled wait never leaves half a frame."""
        try:
            self._link.writer.write(data)
            await self._link.writer.drain()
        except Exception as error:
            raise self._broken(error) from error

    async def _read(self) -> bytes:
        try:
            data = await self._link.reader.read(READ_BYTES)
        except Exception as error:
            raise self._broken(error) from error
        self.last_heard = time.monotonic()
        return data

    def _broken(self, error: Exception) -> ChannelEnded:
        cause = self._link.translate(error)
        return ChannelEnded(cause.message, node=self.node, detail={**self.evidence(), **cause.detail})

    async def _keep_errors(self) -> None:
        """stderr must be read, or a chatty shell would block; the newest 2 KiB are kept for error messages."""
        with contextlib.suppress(Exception):
            while data := await self._link.errors.read(READ_BYTES):
                self._errors += data
                del self._errors[:-KEPT_NOISE_BYTES]


async def open_channel(
    link: Link,
    *,
    node: str,
    installation: str,
    interpreter: str | None = None,
    deadline_s: float = BOOT_DEADLINE_S,
    cap: int = MAX_PAYLOAD_BYTES,
) -> Channel:
    """Starts the helper on a link; the link is closed when that fails. `cap` is the largest message taken (bytes).

    Raises:
        HelperFailed: INTERPRETER_MISSING, INTERPRETER_TOO_OLD, BOOT_FAILED, PROTOCOL, or what the helper says.
        TimedOut: Not done within `deadline_s` seconds.
        ChannelEnded: The connection ended meanwhile.
    """
    channel = Channel(link, node, cap)
    try:
        async with asyncio.timeout(deadline_s):
            await channel.boot(installation, interpreter)
    except TimeoutError:
        await channel.close()
        message = f"{node} was reached, but its shell did not start the helper within {deadline_s:g} s."
        raise TimedOut(message, node=node, detail=channel.evidence()) from None
    except BaseException as error:
        await channel.close()
        if isinstance(error, RemoteError):
            error.node = error.node or node
        raise
    return channel
