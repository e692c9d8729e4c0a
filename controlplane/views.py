"""What load balancers and people ask about the panel itself; open to everybody, so they say little."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from controlplane.database import redis_client_url

PATIENCE_S = 2


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as this process answers at all."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when database and broker answer in time, else 503: `{"status": ..., "parts": {name: "ok" | "down"}}`."""
    parts = {"database": _works(_ask_database), "broker": _works(_ask_broker)}
    ready = all(parts.values())
    body = {
        "status": "ok" if ready else "unavailable",
        "parts": {name: "ok" if fine else "down" for name, fine in parts.items()},
    }
    return JsonResponse(body, status=200 if ready else 503)


def _works(ask: Callable[[], None]) -> bool:
    try:
        ask()
    except (psycopg.Error, redis.RedisError, OSError):
        return False
    return True


def _ask_database() -> None:
    """Over a connection of its own, so that the answer does not wait for one of the pool."""
    psycopg.connect(settings.DATABASE_URL, connect_timeout=PATIENCE_S).close()


def _ask_broker() -> None:
    url = redis_client_url(settings.BROKER_URL)
    with redis.Redis.from_url(url, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S) as client:
        client.ping()
