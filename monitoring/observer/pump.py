"""The observer: a stream to each node it holds, and the parts that take what they bring."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import Awaitable, Callable

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from deployments.domain.errors import PilothouseError
from deployments.remote import launcher
from deployments.remote.launcher import NodeTarget
from monitoring.domain.figures import NodeFigures
from monitoring.domain.metrics import WANTED
from monitoring.sinks.latest import Latest
from monitoring.sinks.live import Live
from monitoring.sinks.outage import Outage

from .bell import Bell
from .leases import Leases
from .listener import Listener, Outlets
from .writer import Writer

log = logging.getLogger(__name__)

# How often leases are renewed and the list of nodes is read again (s).
ROUND_S = 3.0
RETRY_FIRST_S, RETRY_LAST_S = 1.0, 20.0


class Observer:
    """Watches the nodes that it holds a lease for."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self.id = uuid.uuid4().hex[:12]
        self._interval_s = interval_s
        self._leases = Leases(self.id)
        self._bell = Bell()
        self._writer = Writer(self.id, self._bell.ring)
        self._latest = Latest()
        self._live = Live()
        self._outlets = Outlets(self._writer, self._show, self._live.changed)
        self._watches: dict[int, tuple[NodeTarget, asyncio.Task[None]]] = {}
        self._listeners: dict[int, Listener] = {}
        self._outage = Outage(log, "the list of nodes cannot be read")

    async def run(self) -> None:
        """Watch until cancelled. A database that is away is waited for."""
        parts = [self._bell.run, self._writer.run, self._latest.run, self._live.run]
        tasks = [asyncio.create_task(_always(part)) for part in parts]
        try:
            while True:
                try:
                    await self._round()
                except DatabaseError as error:
                    self._outage.failed(error)
                else:
                    self._outage.worked()
                await asyncio.sleep(ROUND_S)
        finally:
            await self._end(tasks)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        tasks += [self._drop(node_id) for node_id in list(self._watches)]
        # More than once: a client library that just got its answer may swallow the first.
        while pending := [task for task in tasks if not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=0.5)
        self._bell.close()
        await self._live.close()
        if not self._outage.lasting:  # a database that is away would only be waited for: leases end by themselves
            with contextlib.suppress(DatabaseError):
                await sync_to_async(self._let_go_all)()

    async def _round(self) -> None:
        """Renew and take leases, drop nodes that changed or went, start what is missing."""
        targets = await sync_to_async(self._claim)()
        for node_id, error in self._leases.unusable.items():
            self._writer.put_failure(node_id, error)
        for node_id, (target, task) in list(self._watches.items()):
            if targets.get(node_id) != target or task.done():
                self._drop(node_id)
        for node_id in self._listeners.keys() - targets.keys():
            del self._listeners[node_id]
            self._writer.forget(node_id)
            self._live.forget(node_id)
        for node_id, target in targets.items():
            if node_id not in self._watches:
                listener = self._listeners.setdefault(node_id, Listener(node_id, self._outlets))
                self._watches[node_id] = (target, asyncio.create_task(self._watch(node_id, target, listener)))

    def _drop(self, node_id: int) -> asyncio.Task[None]:
        _, task = self._watches.pop(node_id)
        task.cancel()
        return task

    async def _watch(self, node_id: int, target: NodeTarget, listener: Listener) -> None:
        """Follow one node, coming back after failures ever more slowly."""
        pause = RETRY_FIRST_S
        while True:
            try:
                listener.begin()
                watching = launcher().watch(target, self._interval_s, metrics=WANTED, gpu=True, host=True)
                async with contextlib.aclosing(watching) as reports:
                    async for report in reports:
                        listener.hear(report)
                        pause = RETRY_FIRST_S
            except PilothouseError as error:
                self._writer.put_failure(node_id, error)
            except Exception:
                # One node's surprise must not end the watching of the others.
                log.exception("node %s: watching failed", target.name)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(RETRY_LAST_S, pause * 2)

    def _show(self, figures: NodeFigures) -> None:
        self._latest.put(figures)
        self._live.put(figures)

    def _claim(self) -> dict[int, NodeTarget]:
        close_old_connections()
        try:
            return self._leases.claim()
        finally:
            close_old_connections()

    def _let_go_all(self) -> None:
        try:
            self._leases.let_go()
        finally:
            close_old_connections()


async def _always(part: Callable[[], Awaitable[None]]) -> None:
    """Runs a part, again if it should fail: what goes wrong in one is no reason to end the others."""
    while True:
        try:
            await part()
        except Exception:
            log.exception("a part of the observer failed")
        await asyncio.sleep(RETRY_FIRST_S)
