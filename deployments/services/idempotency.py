"""The same answer to a repeated request.

All of a request that carries a key happens in one transaction, together with the record of its answer: either both
are there or neither is, whatever dies in between.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils.crypto import salted_hmac

from deployments.domain.errors import Conflict, InvalidInput
from deployments.models import IdempotencyRecord
from deployments.services.access import Actor

KEY = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True, slots=True)
class Request:
    """A request as its key stands for it. The fingerprint is keyed: a body may hold a password."""

    key: str
    actor: str
    fingerprint: str


def identify(actor: Actor, key: str, method: str, path: str, body: bytes) -> Request:
    """What `begin` and `keep` need.

    Raises:
        InvalidInput: A key that is no key.
    """
    if not KEY.fullmatch(key):
        raise InvalidInput(
            "An idempotency key has 1 to 200 visible ASCII characters.",
            remedy="Use a fresh random UUID for each new request.",
            field="Idempotency-Key",
        )
    parts = [method.encode(), path.encode(), body]
    content = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    fingerprint = salted_hmac("pilothouse.idempotency", content, algorithm="sha256").hexdigest()
    return Request(key, f"{actor.user_id}/{actor.token_id or ''}", fingerprint)


def begin(request: Request) -> IdempotencyRecord | None:
    """The record of the answer to a request that was made before; None = this is the first, and it is now ours.

    Must be called in a transaction; the key is held until that ends.

    Raises:
        Conflict: The first one is still being worked on.
        InvalidInput: The key belongs to another request.
    """
    if not _hold(request):
        raise Conflict(
            "The first request with this idempotency key is still being worked on.",
            remedy="Repeat it in a moment.",
            field="Idempotency-Key",
            code="IN_PROGRESS",
        )
    found = IdempotencyRecord.objects.filter(key=request.key, actor=request.actor).first()
    if found is not None and found.fingerprint != request.fingerprint:
        raise InvalidInput(
            "This idempotency key was used for another request.",
            remedy="Use a fresh key for each new request.",
            field="Idempotency-Key",
            code="KEY_REUSED",
        )
    return found


def _hold(request: Request) -> bool:
    digest = hashlib.sha256(f"{request.actor}\0{request.key}".encode()).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        return bool(cursor.fetchone()[0])


def keep(request: Request, status: int, body: Any, headers: dict[str, str]) -> None:
    """Write down the answer to a request that succeeded."""
    IdempotencyRecord.objects.create(
        key=request.key,
        actor=request.actor,
        fingerprint=request.fingerprint,
        status=status,
        body=body,
        headers=headers,
    )
