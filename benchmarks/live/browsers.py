"""Browsers as a live page has them: sockets that take what comes, and what of it has which age."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

OPEN_S = 20.0
_MARK = re.compile(r'\bid="(line|host|gpus)-(\d+)"|\bdatetime="([^"]+)"')


class Message(NamedTuple):
    """A fragment message as one socket received it; `at` is epoch seconds."""

    at: float
    text: str


class Browser:
    """One signed-in socket of a page.

    Attributes:
        messages: Fragment messages that came while `keeping`.
        refreshes: When signals to refresh came.
        closed: The code with which the server closed it, or None.
    """

    def __init__(self, url: str, cookie: str, path: str) -> None:
        self._url = url.replace("http", "ws", 1) + f"/ws/live/{path}?language=en"
        self._headers = {"Cookie": cookie}
        self._origin: Any = url
        self.keeping = False
        self.messages: list[Message] = []
        self.refreshes: list[float] = []
        self.refreshed = asyncio.Event()
        self.closed: int | None = None

    async def __aenter__(self) -> Browser:
        more: dict[str, Any] = {"additional_headers": self._headers, "origin": self._origin}
        self._socket: ClientConnection = await connect(
            self._url, open_timeout=OPEN_S, max_size=None, ping_interval=None, **more
        )
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.close()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for text in self._socket:
                self._take(time.time(), str(text))
        except ConnectionClosed:
            pass
        finally:
            self.closed = self._socket.close_code

    def _take(self, at: float, text: str) -> None:
        if not text.startswith("{"):
            if self.keeping:
                self.messages.append(Message(at, text))
        elif json.loads(text).get("refresh"):
            self.refreshes.append(at)
            self.refreshed.set()


def ages(text: str) -> dict[tuple[str, int], float]:
    """The moments (epoch seconds) that a fragment message shows: by (kind of element, node)."""
    found: dict[tuple[str, int], float] = {}
    about: tuple[str, int] | None = None
    for match in _MARK.finditer(text):
        if match[1]:
            about = (match[1], int(match[2]))
        elif about is not None and (about[0] == "line" or about not in found):
            # A line's last moment is the report's; the age of its GPUs stands before it.
            found[about] = datetime.fromisoformat(match[3]).timestamp()
    return found


def digest_of(text: str) -> str:
    """What tells one fragment message from another."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


async def when(what: str, look: Callable[[], bool], deadline_s: float) -> None:
    """Until `look` holds. Raises TimeoutError saying what did not happen."""
    end = time.monotonic() + deadline_s
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline_s:g} s: {what}")
        await asyncio.sleep(0.05)
