"""The pump: one connection and one stream per node; what nodes say is written down and changes ring the reconciler.

Nodes are shared out by leases, so that several observers may run and a dead one's nodes are taken over. Nothing is
decided here: if no observer runs, the reconciler asks the nodes itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections
from django.db.models import Q
from django.utils import timezone

from deployments.domain.errors import PilothouseError
from deployments.domain.policy import Policy
from deployments.models import Node
from deployments.remote import launcher
from deployments.remote.launcher import NodeTarget
from deployments.reports import record, record_failure
from deployments.targets import installation_id, target_of
from deployments.transitions import ring_node

log = logging.getLogger(__name__)

# A node is this observer's for so long; renewed each round and with each report that is written (s).
LEASE_S = 15
# A report without news is written this often, so that "heard" stays true (s).
QUIET_S = 4.0
# How often the list of nodes is read again (s).
ROUND_S = 3.0
RETRY_FIRST_S, RETRY_LAST_S = 1.0, 20.0


def news(report: dict[str, Any]) -> dict[str, Any]:
    """The part of a report whose change somebody has to act on: how a process ended, how its probe went.

    One that just runs is no news: who started it knows.
    """
    seen = {}
    for process, entry in (report.get("processes") or {}).items():
        probe = entry.get("probe") or {}
        if entry.get("alive") and not entry.get("exit") and not probe:
            continue
        seen[process] = (
            entry.get("alive"),
            entry.get("exit"),
            bool(entry.get("members")),
            (probe.get("health") or {}).get("status"),
            probe.get("models"),
            (probe.get("completion") or {}).get("ok"),
        )
    return {"boot": report.get("boot_id"), "processes": seen}


class Observer:
    """Watches the nodes that it holds a lease for."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self.id = uuid.uuid4().hex[:12]
        self._interval_s = interval_s
        self._watches: dict[int, tuple[NodeTarget, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Watch until cancelled. A database that is away is waited for."""
        try:
            while True:
                try:
                    await self._round()
                except DatabaseError as error:
                    log.warning("the database is away: %s", error)
                await asyncio.sleep(ROUND_S)
        finally:
            tasks = [self._drop(node_id) for node_id in list(self._watches)]
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(DatabaseError):
                await sync_to_async(self._let_go_all)()

    async def _round(self) -> None:
        """Take nodes that nobody watches, drop those that changed or went, start what is missing."""
        targets = await sync_to_async(self._claim)()
        for node_id, (target, task) in list(self._watches.items()):
            if targets.get(node_id) != target or task.done():
                self._drop(node_id)
        for node_id, target in targets.items():
            if node_id not in self._watches:
                self._watches[node_id] = (target, asyncio.create_task(self._watch(node_id, target)))

    def _drop(self, node_id: int) -> asyncio.Task[None]:
        _, task = self._watches.pop(node_id)
        task.cancel()
        return task

    def _claim(self) -> dict[int, NodeTarget]:
        """Renew the leases of the nodes held, and take those that nobody holds."""
        close_old_connections()
        now = timezone.now()
        usable = Node.objects.filter(Q(kind=Node.Kind.LOCAL) | ~Q(host_key=""))
        free = Q(observer__in=("", self.id)) | Q(observed_until=None) | Q(observed_until__lt=now)
        usable.filter(free).update(observer=self.id, observed_until=now + timedelta(seconds=LEASE_S))
        mine = usable.filter(observer=self.id).select_related("key", "jump__key")
        installation = installation_id()
        return {node.pk: target_of(node, installation) for node in mine.defer("report", "facts")}

    async def _watch(self, node_id: int, target: NodeTarget) -> None:
        """Follow one node, coming back after failures ever more slowly."""
        pause = RETRY_FIRST_S
        while True:
            try:
                async with contextlib.aclosing(self._reports(target)) as reports:
                    async for report in reports:
                        await sync_to_async(self._write)(node_id, report)
                        pause = RETRY_FIRST_S
            except DatabaseError as error:
                log.warning("node %s: the database is away: %s", target.name, error)
            except PilothouseError as error:
                await self._lost(node_id, target, error)
            except Exception:
                # One node's surprise must not end the watching of the others.
                log.exception("node %s: watching failed", target.name)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(RETRY_LAST_S, pause * 2)

    async def _reports(self, target: NodeTarget) -> AsyncGenerator[dict[str, Any], None]:
        """The reports worth writing: those with news, and one every few seconds."""
        seen: dict[str, Any] | None = None
        written = 0.0
        async with contextlib.aclosing(launcher().watch(target, self._interval_s)) as reports:
            async for report in reports:
                now_seen = news(report)
                if now_seen != seen or time.monotonic() - written >= QUIET_S:
                    yield report
                    seen, written = now_seen, time.monotonic()

    def _write(self, node_id: int, report: dict[str, Any]) -> None:
        """Keep a report; wake the reconciler where it differs from what was kept, whoever had written that."""
        close_old_connections()
        mine = Node.objects.filter(pk=node_id, observer=self.id)
        node = mine.first()
        if node is None or not mine.update(observed_until=timezone.now() + timedelta(seconds=LEASE_S)):
            return
        changed = node.error is not None or news(node.report) != news(report)
        record(node, report)
        if changed:
            ring_node(node)

    async def _lost(self, node_id: int, target: NodeTarget, error: PilothouseError) -> None:
        try:
            await sync_to_async(self._write_failure)(node_id, error)
        except DatabaseError as away:
            log.warning("node %s: the database is away: %s", target.name, away)

    def _write_failure(self, node_id: int, error: PilothouseError) -> None:
        """Keep why there is no stream. The error also tells the reconciler that it must ask the node itself."""
        close_old_connections()
        node = Node.objects.select_related("jump").filter(pk=node_id, observer=self.id).first()
        if node is not None:
            record_failure(node, error, Policy().report_ttl)

    def _let_go_all(self) -> None:
        Node.objects.filter(observer=self.id).update(observer="", observed_until=None)
