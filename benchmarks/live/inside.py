"""What has to happen in a process of the panel's own: `python -m benchmarks.live.inside VERB`, JSON in and out."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

USER = "bench"


def register_fleet(told: dict[str, Any]) -> dict[str, int]:
    """Rows of a simulated fleet, after those of any other are gone. Returns primary keys by name."""
    from deployments.models import Node
    from tests.fleet.register import register

    Node.objects.all().delete()
    return {row.name: row.pk for row in register(told)}


def register_hosts(hosts: list[dict[str, Any]]) -> dict[str, int]:
    """Rows of lab hosts (`name`, `address`, `port`, `user`, `host_key`, `private_key`), the only ones then."""
    from deployments.models import Node
    from tests.fleet.register import ssh_key

    Node.objects.all().delete()
    rows = Node.objects.bulk_create(
        Node(
            **{name: host[name] for name in ("name", "address", "port", "user", "host_key")},
            key=ssh_key(host["private_key"]),
            platform="cpu",
            state="READY",
        )
        for host in hosts
    )
    return {row.name: row.pk for row in rows}


def heard(data: None) -> dict[str, Any]:
    """How many nodes were heard, and what is wrong with others."""
    from deployments.models import Node

    errors = Node.objects.filter(error__isnull=False).values_list("name", "error")
    return {"heard": Node.objects.filter(heard_at__isnull=False).count(), "errors": dict(errors)}


def forget(data: None) -> int:
    """Takes back that nodes were heard; how many that were."""
    from deployments.models import Node

    return Node.objects.update(heard_at=None, error=None, report={})


def installation(data: None) -> str:
    from deployments.targets import installation_id

    return installation_id()


def sign_in(data: None) -> dict[str, str]:
    """An admin with a session and a token: the cookie of the one and the text of the other."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.contrib.sessions.backends.db import SessionStore

    from deployments.models import Member
    from deployments.services import access

    user = get_user_model().objects.create_user(USER, password=None)
    Member.objects.create(user=user, role="admin")
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    actor = access.actor_of_user(user)
    assert actor is not None
    _, token = access.create_token(actor, name=USER, scope="admin", days=1)
    return {"cookie": f"{settings.SESSION_COOKIE_NAME}={session.session_key}", "token": token}


def notes(data: dict[str, Any]) -> dict[str, Any]:
    """What passes inside for `seconds`: figures of `nodes` (primary keys) in the cache, messages to `groups`.

    It prints a line when it has begun. Returns: `samples` as [node, heard, sampled], `sent` as {digest of a message:
    when it was on the channel layer}.
    """
    from benchmarks.live.noting import note

    return asyncio.run(note(data["nodes"], data["groups"], data["seconds"]))


def unwatch(data: None) -> bool:
    """Lets nobody have watched anything: what was is rendered for half a minute more otherwise."""
    from django.core.cache import caches

    from monitoring.sinks.watchers import KEY

    backend: Any = caches["default"]
    return bool(backend._cache.get_client(write=True).delete(KEY))


def pages(data: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.live.weighing import weigh

    return weigh(data["nodes"], data["gpus"], data["reps"])


VERBS: dict[str, Callable[[Any], Any]] = {
    function.__name__: function
    for function in (register_fleet, register_hosts, heard, forget, installation, sign_in, notes, unwatch, pages)
}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    import django

    django.setup()
    print(json.dumps(VERBS[sys.argv[1]](json.load(sys.stdin))))


if __name__ == "__main__":
    main()
