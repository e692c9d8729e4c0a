"""Who owns the open connections: one event loop in one thread of each operating system process.

The win of a kept connection is large (a fresh login costs a node four times an open channel), so channels stay open
until they break, the node's address or keys change, or the process ends. Callers are ordinary threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from . import local, ssh
from .channel import Channel, ChannelEnded, open_channel
from .frames import MAX_PAYLOAD_BYTES
from .launcher import NodeTarget, RemoteError, ScanResult, TimedOut

MAX_OPENING = 32
OPEN_DEADLINE_S = 45.0
CLOSE_DEADLINE_S = 5.0
# The caller's thread waits a little longer than the loop, so that the loop's typed error arrives first.
_THREAD_GRACE_S = 5.0

Result = TypeVar("Result")


def endpoint_digest(target: NodeTarget) -> str:
    """Changes when anything changes that an open connection depends on."""
    parts = (target.installation, target.interpreter, target.endpoint, target.jump)
    text = "\0".join("-" if part is None else part if isinstance(part, str) else _endpoint_text(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()


def _endpoint_text(endpoint: Any) -> str:
    fields = (endpoint.address, endpoint.port, endpoint.user, endpoint.private_key, *endpoint.host_keys)
    return "\1".join(str(value) for value in fields)


class Opener:
    """Opens channels on one event loop, at most 32 at a time, and shares jump hosts among them."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_OPENING)
        self._jumps = ssh.JumpHosts()

    async def open(self, target: NodeTarget, cap: int = MAX_PAYLOAD_BYTES) -> Channel:
        """A started helper on the node, which may send messages of `cap` bytes; the caller closes it."""
        async with self._slots:
            if target.endpoint is None:
                link = await local.open_link(target)
            else:
                link = await ssh.open_link(target, self._jumps)
            return await open_channel(
                link, node=target.name, installation=target.installation, interpreter=target.interpreter, cap=cap
            )

    def close(self) -> None:
        self._jumps.close()


def _unsent(error: RemoteError) -> RemoteError:
    """The same error, saying that nothing was asked. A copy: callers that wait for one opening share its error."""
    mine = copy.copy(error)
    mine.sent = False
    return mine


class _Slot:
    """The connection of one node: being opened, or open."""

    def __init__(self, digest: str, opening: asyncio.Task[Channel]) -> None:
        self.digest = digest
        self.opening = opening

    def usable(self) -> bool:
        """Being opened by somebody, or open and not ended."""
        if not self.opening.done():
            return True
        return not self.opening.cancelled() and self.opening.exception() is None and self.opening.result().ended is None

    async def close(self) -> None:
        if not self.opening.done():
            self.opening.cancel()
        elif not self.opening.cancelled() and self.opening.exception() is None:
            await self.opening.result().close()


class _Owner:
    """The thread, its loop, and the connections of one operating system process. All but `run` is on the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._slots: dict[int, _Slot] = {}
        self._opener = Opener()
        self._closing: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._serve, name="pilothouse-connections", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def run(self, work: Callable[[], Coroutine[Any, Any, Result]], deadline_s: float) -> Result:
        """Runs `work` on the loop and waits for it in the calling thread."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("A connection's own thread must not wait for itself.")
        future = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return future.result(deadline_s + _THREAD_GRACE_S)
        except TimeoutError:
            future.cancel()
            raise TimedOut(f"No answer within {deadline_s:g} s.") from None

    async def call(self, target: NodeTarget, verb: str, args: dict[str, Any], timeout: float) -> Any:
        try:
            channel, kept = await self._channel(target)
        except RemoteError as error:
            raise _unsent(error) from None
        try:
            return await self._ask(channel, verb, args, timeout)
        except ChannelEnded:
            if not kept:
                raise
        # A kept connection may have died long before anybody noticed; every verb may be repeated.
        channel, _ = await self._channel(target)
        return await self._ask(channel, verb, args, timeout)

    async def _ask(self, channel: Channel, verb: str, args: dict[str, Any], timeout: float) -> Any:
        asked_at = time.monotonic()
        try:
            return await channel.request(verb, args, timeout)
        except TimedOut:
            # Not a byte since we asked: the link may be gone without a word, so the next call gets a fresh one.
            if channel.last_heard < asked_at:
                self._later(channel.close())
            raise

    async def _channel(self, target: NodeTarget) -> tuple[Channel, bool]:
        """The node's channel, and whether it was open before this call."""
        digest = endpoint_digest(target)
        slot = self._slots.get(target.id)
        if slot is not None and slot.digest == digest and slot.usable():
            kept = slot.opening.done()
        else:
            if slot is not None:
                self._later(slot.close())
            task = asyncio.create_task(self._opener.open(target))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            slot = self._slots[target.id] = _Slot(digest, task)
            kept = False
        # Shielded: others may wait for the same opening, and this caller's deadline is not theirs.
        return await asyncio.shield(slot.opening), kept

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close_all(self) -> None:
        slots, self._slots = list(self._slots.values()), {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await asyncio.gather(*(slot.close() for slot in slots), *self._closing, return_exceptions=True)
        self._opener.close()

    def stop(self) -> None:
        with contextlib.suppress(RemoteError):
            self.run(self.close_all, CLOSE_DEADLINE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_DEADLINE_S)


class Connections:
    """The connections of this process, for callers in any thread. After a fork the child starts with none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: _Owner | None = None
        self._pid = os.getpid()
        _all.add(self)

    def call(self, target: NodeTarget, verb: str, args: dict[str, Any], timeout: float) -> Any:
        """Asks the node's helper, opening the connection when there is none.

        A kept connection that turns out to be dead is replaced once, unseen by the caller.

        Args:
            timeout: Seconds for the answer; opening a connection may take up to 45 s more.

        Raises:
            RemoteError: With the node's name.
        """
        limit, owner = timeout + OPEN_DEADLINE_S, self._get()

        async def ask() -> Any:
            return await _within(limit, target, owner.call(target, verb, args, timeout))

        return owner.run(ask, limit)

    def scan(self, target: NodeTarget) -> ScanResult:
        """The host keys on offer, over connections of its own."""

        async def look() -> ScanResult:
            return await _within(OPEN_DEADLINE_S, target, ssh.scan(target))

        return self._get().run(look, OPEN_DEADLINE_S)

    def close(self) -> None:
        """Closes every connection and ends the thread; the next call starts anew."""
        with self._lock:
            owner, self._owner = self._owner, None
        if owner is not None:
            owner.stop()

    def _get(self) -> _Owner:
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            if self._owner is None:
                self._owner = _Owner()
            return self._owner

    def _forget(self) -> None:
        """In a forked child: the thread is gone and the sockets are the parent's. They are kept, so that no finalizer
        touches them, and never used."""
        if self._owner is not None:
            _of_parents.append(self._owner)
        self._owner, self._lock, self._pid = None, threading.Lock(), os.getpid()


_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_of_parents: list[_Owner] = []


def _after_fork() -> None:
    for connections in list(_all):
        connections._forget()


os.register_at_fork(after_in_child=_after_fork)


async def _within(limit: float, target: NodeTarget, work: Coroutine[Any, Any, Result]) -> Result:
    try:
        async with asyncio.timeout(limit):
            return await work
    except TimeoutError:
        raise TimedOut(f"{target.name} gave no answer within {limit:g} s.", node=target.name) from None
