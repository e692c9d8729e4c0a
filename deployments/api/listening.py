"""Waking up when something happened. A bell that is lost only costs the pause until the next look."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Any

from channels.layers import get_channel_layer
from django.db import connection

from deployments.transitions import EVENTS_GROUP

log = logging.getLogger(__name__)


def give_back_connection() -> None:
    """Return this thread's database connection: listeners stay for long, and the pool is small."""
    if not connection.in_atomic_block:
        connection.close()


class Bell:
    """An async context in which `wait` returns when a transition was published, or after a pause."""

    def __init__(self) -> None:
        self._layer: Any = get_channel_layer()
        self._channel: str | None = None

    async def __aenter__(self) -> Bell:
        try:
            self._channel = await self._layer.new_channel()
            await self._layer.group_add(EVENTS_GROUP, self._channel)
        except Exception as error:  # without the broker we look from time to time
            log.warning("no events from the broker: %s", error)
            self._channel = None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._channel is not None:
            with contextlib.suppress(Exception):
                await self._layer.group_discard(EVENTS_GROUP, self._channel)

    async def wait(self, pause_s: float) -> None:
        """Until the bell rings, at most `pause_s`. Rings that came meanwhile are taken together."""
        try:
            async with asyncio.timeout(max(0.0, pause_s)):
                if self._channel is None:
                    await asyncio.Event().wait()
                await self._layer.receive(self._channel)
        except TimeoutError:
            return
        except Exception as error:
            log.warning("no events from the broker: %s", error)
            self._channel = None
