"""Rings the reconciler, aside from everything else: a broker that hangs delays rings alone."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections

from deployments.models import Node
from deployments.transitions import ring_node

log = logging.getLogger(__name__)


class Bell:
    """Wakes the reconciler of deployments on nodes. A node that waits to be rung for is rung for once."""

    def __init__(self) -> None:
        self._waiting: set[int] = set()
        self._woken = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bell")

    def ring(self, node_id: int) -> None:
        self._waiting.add(node_id)
        self._woken.set()

    async def run(self) -> None:
        """Ring until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            nodes, self._waiting = self._waiting, set()
            await asyncio.get_running_loop().run_in_executor(self._thread, _ring, nodes)

    def close(self) -> None:
        self._thread.shutdown(wait=False)


def _ring(nodes: set[int]) -> None:
    close_old_connections()
    try:
        for node in Node.objects.filter(pk__in=nodes).only("pk"):
            ring_node(node)
    except Exception as error:  # the beat looks at everything due anyway
        log.warning("the reconciler is not told of news: %s", error)
    finally:
        close_old_connections()
