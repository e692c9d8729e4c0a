"""The newest figures of each node, in Django's cache: what pages show before the first fragment comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from django.core.cache import cache

from monitoring.domain.figures import NodeFigures, decode, encode

from .outage import Outage

log = logging.getLogger(__name__)

TTL_S = 600
# Figures are stored together this often (s).
STORE_S = 1.0
# A thread of its own: a server that hangs must hold up nothing else.
_thread = ThreadPoolExecutor(1, thread_name_prefix="latest")


async def store(figures: Sequence[NodeFigures]) -> None:
    """Keeps the figures for TTL_S seconds, in one message to the cache's server.

    Raises:
        redis.RedisError, OSError: The server is away. Figures are not kept for later: newer ones will come.
    """
    if figures:
        await asyncio.get_running_loop().run_in_executor(_thread, _store, figures)


def read(nodes: Iterable[int]) -> dict[int, NodeFigures]:
    """Figures by node; nodes without any, or with some that another version wrote, are left out.

    Raises:
        redis.RedisError, OSError: The server is away.
    """
    found = cache.get_many([_key(node) for node in nodes])
    figures = [one for data in found.values() if (one := _decoded(data)) is not None]
    return {one.node: one for one in figures}


class Latest:
    """Takes figures from the pump and stores the newest of each node. `put` never blocks."""

    def __init__(self) -> None:
        self._waiting: dict[int, NodeFigures] = {}
        self._outage = Outage(log, "figures are not stored")

    def put(self, figures: NodeFigures) -> None:
        self._waiting[figures.node] = figures

    async def run(self) -> None:
        """Store until cancelled. While the cache is away or hangs, figures are dropped: newer ones will come."""
        while True:
            await asyncio.sleep(STORE_S)
            waiting, self._waiting = self._waiting, {}
            try:
                await store(list(waiting.values()))
            except Exception as error:
                self._outage.failed(error)
            else:
                self._outage.worked()


def _store(figures: Sequence[NodeFigures]) -> None:
    cache.set_many({_key(one.node): encode(one) for one in figures}, TTL_S)


def _key(node: int) -> str:
    return f"figures:{node}"


def _decoded(data: bytes) -> NodeFigures | None:
    try:
        return decode(data)
    except (msgspec.MsgspecError, TypeError):
        return None
