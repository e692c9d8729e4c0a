"""Which deployment a process belongs to, for whoever writes about it. It never changes, so it is asked once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.core.cache import caches
from django.core.exceptions import SynchronousOnlyOperation

from deployments.models import Process

KEEP_S = 3600


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a process is. `replica` is the index of its replica."""

    deployment: str
    role: str
    rank: int
    replica: int | None


def owners(process_ids: Iterable[str]) -> dict[str, Owner]:
    """Owners by process id; ids that the panel does not know are left out."""
    local = caches["local"]
    keys = {f"owner:{process}": process for process in process_ids if _is_uuid(process)}
    found = {keys[key]: owner for key, owner in local.get_many(keys).items()}
    missing = [process for process in keys.values() if process not in found]
    if missing:
        fresh = _ask(missing)
        local.set_many({f"owner:{process}": owner for process, owner in fresh.items()}, KEEP_S)
        found |= fresh
    return found


def _ask(missing: list[str]) -> dict[str, Owner]:
    rows = Process.objects.filter(pk__in=missing).select_related("deployment", "replica")
    try:
        return {str(row.pk): _owner(row) for row in rows}
    except SynchronousOnlyOperation:
        return {}


def _owner(row: Process) -> Owner:
    return Owner(row.deployment.name, row.role, row.rank, row.replica.index if row.replica else None)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
