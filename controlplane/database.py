"""From a DATABASE_URL to Django's DATABASES entry, and from a broker URL to what each client library calls it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

POSTGRES_SCHEMES = ("postgresql", "postgres")
BROKER_SCHEMES = ("redis", "rediss", "redis+socket")
POOL = {"min_size": 0, "max_size": 16, "timeout": 10}


def postgres(url: str) -> dict[str, Any]:
    """`postgresql://user:password@host:port/name?sslmode=require` or, by socket, `postgresql:///name?host=/folder`.

    Every part may be %-encoded. Query words other than host, port, user, password go to libpq as they are.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    port = query.pop("port", "") or (str(parts.port) if parts.port else "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.removeprefix("/")),
        "USER": query.pop("user", "") or unquote(parts.username or ""),
        "PASSWORD": query.pop("password", "") or unquote(parts.password or ""),
        "HOST": query.pop("host", "") or unquote(parts.hostname or ""),
        "PORT": port,
        # Under ASGI each request may run in a fresh thread, so connections live in a pool instead of per thread.
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"pool": dict(POOL), "connect_timeout": 5, "application_name": "pilothouse", **query},
    }


def redis_client_url(broker: str, database: int | None = None) -> str:
    """A Celery broker URL as redis-py's `from_url` wants it: `redis+socket:///x.sock` becomes `unix:///x.sock?db=0`."""
    parts = urlsplit(broker)
    if parts.scheme == "redis+socket":
        query = dict(parse_qsl(parts.query))
        number = query.get("virtual_host", "0") if database is None else database
        login = f"{parts.username or ''}:{parts.password}@" if parts.password else ""
        return f"unix://{login}{parts.path}?db={number}"
    if database is None:
        return broker
    return parts._replace(path=f"/{database}").geturl()
