"""Which deployment's engine a process is, and on which nodes a deployment's engines run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from uuid import UUID

from deployments.domain.states import PROCESS_FINAL
from deployments.models import Process

# A process never changes its deployment, so only unbounded growth has to be prevented.
KEEP = 20_000
# How long it is believed on which nodes a deployment runs (s).
PLACES_S = 3.0


class Owners:
    """Remembers what it asked the database. For one thread."""

    def __init__(self) -> None:
        self._deployments: dict[str, int | None] = {}
        self._nodes: dict[int, set[int]] = {}
        self._asked_at = float("-inf")
        self._asked: frozenset[int] = frozenset()

    def deployments_of(self, processes: Iterable[str]) -> Mapping[str, int | None]:
        """Deployments by process id, asked for once; None for what is no process of a deployment.

        Raises:
            DatabaseError: The database is away.
        """
        missing = [process for process in processes if process not in self._deployments]
        if missing:
            if len(self._deployments) > KEEP:
                self._deployments.clear()
            ids = [process for process in missing if _is_uuid(process)]
            found = {str(pk): deployment for pk, deployment in _rows(ids)}
            self._deployments |= {process: found.get(process) for process in missing}
        return self._deployments

    def nodes_of(self, deployments: frozenset[int]) -> set[int]:
        """Nodes on which engines of these deployments run, as of a moment ago.

        Raises:
            DatabaseError: The database is away.
        """
        now = time.monotonic()
        if deployments != self._asked or now - self._asked_at > PLACES_S:
            live = Process.objects.filter(deployment__in=deployments).exclude(state__in=PROCESS_FINAL)
            self._nodes = {pk: set() for pk in deployments}
            for deployment, node in live.values_list("deployment_id", "node_id"):
                self._nodes[deployment].add(node)
            self._asked, self._asked_at = deployments, now
        return set().union(*self._nodes.values())


def _rows(ids: list[str]) -> Iterable[tuple[UUID, int]]:
    return Process.objects.filter(pk__in=ids).values_list("pk", "deployment_id") if ids else ()


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
