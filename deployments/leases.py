"""One worker at a time per deployment or job. A lease that ran out is nobody's: what it was for is done again."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, connection
from django.db.models import Q
from django.utils import timezone

from deployments.models import Deployment, Job

log = logging.getLogger(__name__)

# A worker that died is replaced after this; one that works renews its lease in time, however long the work takes (s).
LEASE_S = 20.0
RENEW_S = 5.0

Kind = type[Deployment] | type[Job]


@contextmanager
def lease(kind: Kind, pk: Any) -> Iterator[str | None]:
    """Yields a token, or None when another worker is at work on the row."""
    token = str(uuid.uuid4())
    now = timezone.now()
    free = Q(lease_until__isnull=True) | Q(lease_until__lt=now)
    if not kind.objects.filter(free, pk=pk).update(lease_token=token, lease_until=now + timedelta(seconds=LEASE_S)):
        yield None
        return
    over = threading.Event()
    threading.Thread(target=_keep, args=(kind, pk, token, over), name="lease", daemon=True).start()
    try:
        yield token
    finally:
        over.set()
        kind.objects.filter(pk=pk, lease_token=token).update(lease_token="", lease_until=None)


def _keep(kind: Kind, pk: Any, token: str, over: threading.Event) -> None:
    """Renew a lease until the work is over or somebody else has it. A database that is away is asked again."""
    while not over.wait(RENEW_S):
        try:
            if not still_mine(kind, pk, token):
                return
        except DatabaseError as error:
            log.warning("the lease of %s %s is not renewed: %s", kind.__name__, pk, error)
        finally:
            connection.close()


def still_mine(kind: Kind, pk: Any, token: str) -> bool:
    """Whether the lease is still held by `token`; renews it if so."""
    until = timezone.now() + timedelta(seconds=LEASE_S)
    return bool(kind.objects.filter(pk=pk, lease_token=token).update(lease_until=until))
