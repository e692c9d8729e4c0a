"""Writes what nodes say into the database: news at once, the rest together once a second.

The streams never wait for it: of each node only the newest report waits, and none is lost to a database that is away
for a while, since the newest is written when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections
from django.utils import timezone

from deployments.domain.errors import PilothouseError
from deployments.domain.policy import Policy
from deployments.models import Node
from deployments.reports import Quiet, record, record_failure, record_quiet
from monitoring.sinks.outage import Outage

from .news import kept, news

log = logging.getLogger(__name__)

# Reports without news are written together this often (s).
TOGETHER_S = 1.0
# A database that is away is tried again after this (s).
RETRY_S = 1.0
AWAY = (OperationalError, InterfaceError)


@dataclass(slots=True)
class Due:
    """What of a node is still to be written: its newest report, then why there are no more."""

    report: dict[str, Any] | None = None
    heard_at: datetime | None = None
    news: bool = False
    error: PilothouseError | None = None


class Writer:
    """Takes reports and failures from the streams. `put` and `put_failure` never block.

    Args:
        observer: Only nodes that this one holds are written.
        ring: Is called with a node's id when something of it is new to whoever acts on it.
    """

    def __init__(self, observer: str, ring: Callable[[int], None]) -> None:
        self._observer = observer
        self._ring = ring
        self._due: dict[int, Due] = {}
        self._urgent = asyncio.Event()
        self._outage = Outage(log, "the database is away")
        self._unwritable: set[int] = set()

    def put(self, node_id: int, report: dict[str, Any], is_news: bool) -> None:
        due = self._due.setdefault(node_id, Due())
        due.report, due.heard_at, due.error = report, timezone.now(), None
        due.news = due.news or is_news
        if due.news:
            self._urgent.set()

    def put_failure(self, node_id: int, error: PilothouseError) -> None:
        """There are no reports, because of `error`; that tells the reconciler that it must ask the node itself."""
        self._due.setdefault(node_id, Due()).error = error
        self._urgent.set()

    def forget(self, node_id: int) -> None:
        """The node is no longer this observer's to write."""
        self._due.pop(node_id, None)

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        together_at = loop.time() + TOGETHER_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(together_at):
                    await self._urgent.wait()
            self._urgent.clear()
            everything = loop.time() >= together_at
            if everything:
                together_at = loop.time() + TOGETHER_S
            await self._write(everything)

    async def _write(self, everything: bool) -> None:
        due = {pk: one for pk, one in self._due.items() if everything or one.news or one.error is not None}
        if not due:
            return
        for pk in due:
            del self._due[pk]
        changed: list[int] = []
        try:
            await sync_to_async(self._write_all)(due, changed)
        except DatabaseError as error:
            self._outage.failed(error)
            self._put_back(due)
            await asyncio.sleep(RETRY_S)
        else:
            self._outage.worked()
        finally:
            for pk in changed:
                self._ring(pk)

    def _put_back(self, due: dict[int, Due]) -> None:
        """What could not be written waits on, unless something newer came meanwhile."""
        for pk, old in due.items():
            new = self._due.setdefault(pk, old)
            if new is not old:
                new.news = new.news or old.news
                if new.report is None:
                    new.report, new.heard_at = old.report, old.heard_at
        if any(one.news or one.error is not None for one in self._due.values()):
            self._urgent.set()

    def _write_all(self, due: dict[int, Due], changed: list[int]) -> None:
        """Adds to `changed` the nodes whose news somebody should act on, also when the database goes away half-way.

        Raises:
            OperationalError, InterfaceError: It is away.
        """
        close_old_connections()
        try:
            quiet = {pk: one for pk, one in due.items() if not one.news and one.error is None}
            rest = due.keys() - self._write_quiet(quiet)
            for pk in rest:
                if self._attempt(pk, due[pk]):
                    changed.append(pk)
        finally:
            close_old_connections()

    def _write_quiet(self, quiet: dict[int, Due]) -> set[int]:
        rows = []
        for pk, one in quiet.items():
            if one.report is None or one.heard_at is None:
                continue
            with contextlib.suppress(Exception):  # told of when it is tried alone
                boot_id = (one.report.get("boot_id") or "").replace("\0", "\ufffd")
                rows.append(Quiet(pk, kept(one.report), boot_id, one.heard_at))
        try:
            return record_quiet(rows)
        except AWAY:
            raise
        except DatabaseError:
            # One of them cannot be stored. Each is tried alone then, so that it costs only itself.
            return set()

    def _attempt(self, node_id: int, due: Due) -> bool:
        try:
            changed = self._write_one(node_id, due)
        except AWAY:
            raise
        except Exception:
            if node_id not in self._unwritable:
                self._unwritable.add(node_id)
                log.exception("node %s: what it says cannot be written", node_id)
            return False
        self._unwritable.discard(node_id)
        return changed

    def _write_one(self, node_id: int, due: Due) -> bool:
        """Whether the reconciler should look: the report differs from what was kept, whoever had written that."""
        node = Node.objects.select_related("jump").filter(pk=node_id, observer=self._observer).first()
        if node is None:
            return False
        changed = False
        if due.report is not None:
            report = json.loads(kept(due.report))
            changed = node.error is not None or news(node.report) != news(report)
            record(node, report, due.heard_at)
        if due.error is not None:
            record_failure(node, due.error, Policy().report_ttl)
        return changed
