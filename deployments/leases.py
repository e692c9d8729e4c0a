"""One worker at a time per deployment or job. A lease that ran out is nobody's: what it was for is done again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from deployments.models import Deployment, Job

# Longer than the slowest step (a stop: grace, kill, proof); a worker that died is replaced after this.
LEASE_S = 90


@contextmanager
def lease(kind: type[Deployment] | type[Job], pk: Any) -> Iterator[str | None]:
    """Yields a token, or None when another worker is at work on the row."""
    token = str(uuid.uuid4())
    now = timezone.now()
    free = Q(lease_until__isnull=True) | Q(lease_until__lt=now)
    if not kind.objects.filter(free, pk=pk).update(lease_token=token, lease_until=now + timedelta(seconds=LEASE_S)):
        yield None
        return
    try:
        yield token
    finally:
        kind.objects.filter(pk=pk, lease_token=token).update(lease_token="", lease_until=None)


def still_mine(kind: type[Deployment] | type[Job], pk: Any, token: str, for_s: float = 0.0) -> bool:
    """Whether the lease is still held by `token`; renews it if so, to outlast waiting for `for_s` seconds."""
    until = timezone.now() + timedelta(seconds=LEASE_S + for_s)
    return bool(kind.objects.filter(pk=pk, lease_token=token).update(lease_until=until))
