"""Live pages: what is watched is rendered when nodes are heard, and sent to the browsers' groups.

One render or send is under way at a time. Whatever is heard meanwhile waits as one newest state, so that a slow server
costs freshness and neither memory nor anybody else's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from channels.layers import get_channel_layer
from django.db import DatabaseError, close_old_connections

from deployments.transitions import EVENTS_GROUP
from monitoring.domain.figures import EngineFigures, NodeFigures

from . import latest, watchers
from .fragments import Renderer, Scene
from .outage import Outage
from .owners import Owners

log = logging.getLogger(__name__)

# The least time between two rounds (s): what is heard within it is sent together. It is added to every figure's age.
GATHER_S = 0.1
# How often it is asked what is watched (s).
LOOK_S = 0.5
# A message that cannot be sent in this time is given up (s).
SEND_S = 2.0
# Elements are sent together up to so many characters.
MESSAGE_CHARS = 64 * 1024
# Process ids and figures of engines.
Engines = dict[str, EngineFigures]
# Figures that other observers stored are read this often (s), for deployments that run on their nodes too.
OTHERS_S = 1.0


class Live:
    """Takes figures from the pump and shows them. `put`, `forget` and `changed` never block."""

    def __init__(self) -> None:
        self._figures: dict[int, NodeFigures] = {}
        self._changed: set[int] = set()
        self._woken = asyncio.Event()
        self._watched: set[str] = set()
        self._looked_at = float("-inf")
        # Somebody was shown something, so the screen has things to forget when nobody looks any more.
        self._shown = False
        self._screen = Screen()
        # A thread of its own: rendering takes time, and the database may hang.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")
        self._outage = Outage(log, "live figures are not sent")

    def put(self, figures: NodeFigures) -> None:
        self._figures[figures.node] = figures
        self._woken.set()

    def forget(self, node: int) -> None:
        """The node is watched no more, or by somebody else."""
        self._figures.pop(node, None)

    def changed(self, node: int) -> None:
        """A problem of a node's telemetry began or ended: open pages should look again."""
        self._changed.add(node)
        self._woken.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
            self._woken.clear()
            await self._guarded_round()
            await asyncio.sleep(GATHER_S)

    async def close(self) -> None:
        self._thread.shutdown(wait=False)
        with contextlib.suppress(Exception):
            await watchers.close()

    async def _guarded_round(self) -> None:
        try:
            await self._round()
        except Exception as error:
            # Whatever it is, the next round tries again, and the pump goes on.
            self._outage.failed(error)
        else:
            self._outage.worked()

    async def _round(self) -> None:
        await self._ring()
        if time.monotonic() - self._looked_at >= LOOK_S:
            self._watched = await watchers.watched()
            self._looked_at = time.monotonic()
        if not self._watched and not self._shown:
            return
        self._shown = bool(self._watched)
        changes = self._screen.changes(frozenset(self._watched), dict(self._figures))
        # One page waits for its own elements, not for those of all the others.
        while (change := await self._in_thread(next, changes, None)) is not None:
            await self._show(*change)

    async def _ring(self) -> None:
        while self._changed:
            node = next(iter(self._changed))
            if node in self._figures:  # before pages are told to look: it is where they look
                await latest.store([self._figures[node]])
            await _send(EVENTS_GROUP, {"type": "changed", "node": node})
            self._changed.discard(node)

    async def _show(self, audience: str, elements: list[str]) -> None:
        try:
            for html in _messages(elements):
                await _send(f"live.{audience}", {"type": "fragments", "html": html})
        except Exception:
            await self._in_thread(self._screen.forget)
            raise

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


class Screen:
    """What every audience is to be shown. For one thread."""

    def __init__(self) -> None:
        self._renderer = Renderer()
        self._owners = Owners()
        self._others: dict[int, NodeFigures] = {}
        self._others_at = float("-inf")
        self._outage = Outage(log, "the database is away, so no engines are shown on pages of deployments")

    def changes(self, watched: frozenset[str], figures: dict[int, NodeFigures]) -> Iterator[tuple[str, list[str]]]:
        """New elements, one audience after the other, those without any left out."""
        if not watched:
            self._renderer = Renderer()
            return
        close_old_connections()
        try:
            scene = Scene(figures, *self._deployments(watched, figures))
        finally:
            close_old_connections()
        changes = self._renderer.changes(watched, scene)
        while (change := _at_rest(changes)) is not None:
            if change[1]:
                yield change

    def forget(self) -> None:
        """Something was not sent: show everything anew."""
        self._renderer = Renderer()

    def _deployments(
        self, watched: frozenset[str], figures: dict[int, NodeFigures]
    ) -> tuple[dict[int, Engines], dict[int, Engines]]:
        """Engines that are heard here, by deployments that are watched; and all engines of those summed here.

        Each element of a page is one observer's to send, or figures would go back and forth between its newest and
        what another one has read of it. The sum is whose the first node with an engine is.
        """
        wanted = frozenset(pk for audience in watched if (pk := _deployment_of(audience)) is not None)
        if not wanted:
            return {}, {}
        try:
            everywhere = figures | self._elsewhere(wanted, figures)
            owners = self._owners.deployments_of(id for one in everywhere.values() for id in one.engines)
        except DatabaseError as error:
            self._outage.failed(error)
            return {}, {}
        self._outage.worked()
        here, sums = defaultdict[int, Engines](dict), defaultdict[int, Engines](dict)
        first: dict[int, int] = {}
        for node in sorted(everywhere):
            for id, engine in everywhere[node].engines.items():
                if (owner := owners.get(id)) in wanted and owner is not None:
                    first.setdefault(owner, node)
                    sums[owner][id] = engine
                    if node in figures:
                        here[owner][id] = engine
        return here, {owner: engines for owner, engines in sums.items() if first[owner] in figures}

    def _elsewhere(self, wanted: frozenset[int], figures: dict[int, NodeFigures]) -> dict[int, NodeFigures]:
        """Figures of nodes that other observers watch and these deployments run on."""
        nodes = self._owners.nodes_of(wanted) - figures.keys()
        if not nodes:
            return {}
        now = time.monotonic()
        if now - self._others_at >= OTHERS_S:
            self._others, self._others_at = latest.read(nodes), now
        return {node: one for node, one in self._others.items() if node in nodes}


def _at_rest(changes: Iterator[Any]) -> Any:
    """The next change or None. Rendering may ask the database, whose connection is not kept between two."""
    try:
        return next(changes, None)
    finally:
        close_old_connections()


def _deployment_of(audience: str) -> int | None:
    kind, _, number = audience.partition(".")[0].partition("-")
    return int(number) if kind == "deployment" and number.isdecimal() else None


def _messages(elements: list[str]) -> Iterator[str]:
    """Elements in runs of bounded size; one that is longer goes alone."""
    run: list[str] = []
    size = 0
    for element in elements:
        if run and size + len(element) > MESSAGE_CHARS:
            yield "".join(run)
            run, size = [], 0
        run.append(element)
        size += len(element)
    if run:
        yield "".join(run)


async def _send(group: str, message: dict[str, Any]) -> None:
    layer = get_channel_layer()
    if layer is not None:
        async with asyncio.timeout(SEND_S):
            await layer.group_send(group, message)
