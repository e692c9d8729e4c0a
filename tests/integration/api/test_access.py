"""Who may do what, over every route that exists: a route without a row here fails.

Rows say the least role that is let in. What a route answers to somebody who may use it is another test's business: here
it only has to be neither 401 nor 403.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from deployments.models import ApiToken
from deployments.services.access import Actor, Role

from ..panel import PASSWORD, person
from .client import token_for

pytestmark = pytest.mark.django_db
SOME_ID = str(uuid.UUID(int=0))

OPEN = {"healthz", "readyz"}
DOCS = {"api/v1/docs", "api/v1/openapi.json"}
# Addresses that are not the API: pages have a table of their own.
OTHERS = re.compile(r"^(?!api/)")
KEY = {"name": "k", "private": "x", "file": "f"}

# method and address -> (least role, a body that is well-formed)
TABLE: dict[tuple[str, str], tuple[str, object]] = {
    ("GET", "nodes"): ("viewer", None),
    ("POST", "nodes"): ("admin", {"name": "n", "address": "n.example", "key": "k"}),
    ("POST", "nodes/many"): ("admin", {"nodes": [{"name": "n", "address": "n.example", "key": "k"}]}),
    ("GET", "nodes/fingerprints"): ("viewer", None),
    ("POST", "nodes/fingerprints/accept"): ("admin", {"accept": []}),
    ("POST", "nodes/probe"): ("operator", {}),
    ("POST", "nodes/scan"): ("admin", {}),
    ("GET", "nodes/{name}"): ("viewer", None),
    ("PATCH", "nodes/{name}"): ("admin", {"user": "root"}),
    ("DELETE", "nodes/{name}"): ("admin", None),
    ("POST", "nodes/{name}/intent"): ("operator", {"intent": "CORDONED"}),
    ("POST", "nodes/{name}/probe"): ("operator", None),
    ("POST", "nodes/{name}/scan"): ("admin", None),
    ("GET", "keys"): ("viewer", None),
    ("POST", "keys/generate"): ("admin", {"name": "k"}),
    ("POST", "keys/paste"): ("admin", {"name": "k", "private": "x"}),
    ("GET", "keys/folder"): ("admin", None),
    ("POST", "keys/import"): ("admin", {"name": "k", "file": "f"}),
    ("DELETE", "keys/{name}"): ("admin", None),
    ("GET", "models"): ("viewer", None),
    ("POST", "models"): ("operator", {"name": "m", "path": "/m"}),
    ("GET", "models/{name}"): ("viewer", None),
    ("POST", "models/{name}/find"): ("operator", {}),
    ("POST", "models/{name}/fingerprint"): ("operator", {}),
    ("DELETE", "models/{name}"): ("operator", None),
    ("GET", "layouts"): ("viewer", None),
    ("GET", "layouts/kinds"): ("viewer", None),
    ("POST", "layouts"): ("operator", {"name": "l", "kind": "single"}),
    ("GET", "layouts/{name}"): ("viewer", None),
    ("DELETE", "layouts/{name}"): ("operator", None),
    ("GET", "deployments"): ("viewer", None),
    ("POST", "deployments/preview"): ("viewer", {"name": "d", "model": "m", "layout": "l"}),
    ("GET", "deployments/{name}"): ("viewer", None),
    ("PUT", "deployments/{name}"): ("operator", {"model": "m", "layout": "l"}),
    ("DELETE", "deployments/{name}"): ("operator", None),
    ("POST", "deployments/{name}/stop"): ("operator", None),
    ("POST", "deployments/{name}/run"): ("operator", None),
    ("POST", "deployments/{name}/pause"): ("operator", None),
    ("POST", "deployments/{name}/scale"): ("operator", {"replicas": 1}),
    ("POST", "deployments/{name}/retry"): ("operator", None),
    ("POST", "deployments/{name}/api-key"): ("operator", None),
    ("POST", "deployments/{name}/chat"): ("operator", {"messages": [{"role": "user", "content": "Hello"}]}),
    ("GET", "deployments/{name}/processes"): ("viewer", None),
    ("GET", "processes/{process}"): ("viewer", None),
    ("GET", "processes/{process}/log"): ("viewer", None),
    ("POST", "processes/{process}/force-stopped"): ("admin", None),
    ("GET", "jobs"): ("viewer", None),
    ("POST", "jobs"): ("operator", {"kind": "probe", "nodes": []}),
    ("GET", "jobs/{job}"): ("viewer", None),
    ("GET", "jobs/{job}/log"): ("viewer", None),
    ("POST", "jobs/{job}/cancel"): ("operator", None),
    ("POST", "jobs/{job}/retry"): ("operator", None),
    ("GET", "transitions"): ("viewer", None),
    ("GET", "events"): ("viewer", None),
    ("GET", "access/me"): ("viewer", None),
    ("GET", "access/tokens"): ("viewer", None),
    ("POST", "access/tokens"): ("viewer", {"name": "t", "scope": "viewer"}),
    ("DELETE", "access/tokens/{token}"): ("viewer", None),
    ("GET", "access/users"): ("admin", None),
    ("POST", "access/users"): ("admin", {"username": "u", "password": "p", "role": "viewer"}),
    ("PATCH", "access/users/{user}"): ("admin", {"active": True}),
}
# A token may not do this at all, only a person who signed in.
PEOPLE_ONLY = {("POST", "access/tokens")}
SAFE = ("GET",)
EVERY = sorted(TABLE)


def addresses(patterns: list[object], prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in patterns:
        where = prefix + str(pattern.pattern)  # type: ignore[attr-defined]
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns, where)
        else:
            yield where, pattern  # type: ignore[misc]


def operations() -> set[tuple[str, str]]:
    """Method and address of every operation of the API, as it has bound them."""
    from controlplane.api import api

    found = set()
    for path, methods in api.get_openapi_schema()["paths"].items():
        found |= {(method.upper(), path.removeprefix("/api/v1/")) for method in methods}
    return found


def url(address: str) -> str:
    filled = address.replace("{name}", "x").replace("{token}", "1").replace("{user}", "1")
    return "/api/v1/" + re.sub(r"\{\w+\}", SOME_ID, filled)


def ask(client: Client, method: str, address: str, **headers: str) -> int:
    body = TABLE[method, address][1]
    content = b"" if body is None else json.dumps(body).encode()
    answer = client.generic(method, url(address), content, content_type="application/json", headers=headers)
    return answer.status_code


def with_token(method: str, address: str, token: str) -> int:
    return ask(Client(), method, address, Authorization=f"Bearer {token}")


def signed_in(actor: Actor) -> Client:
    client = Client(enforce_csrf_checks=True)
    assert client.login(username=actor.name, password=PASSWORD)
    return client


def test_every_operation_has_a_row() -> None:
    assert operations() == set(TABLE)


def test_every_address_of_the_api_is_an_operation_the_docs_or_nowhere() -> None:
    found = {where for where, _ in addresses(get_resolver().url_patterns) if where.startswith(("api/", "^api/"))}
    known = {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", where) for where in found} - DOCS - {"api/v1/", "^api/"}
    assert known == {f"api/v1/{address}" for _, address in TABLE}


def test_only_health_answers_without_signing_in(client: Client) -> None:
    for address in OPEN:
        assert client.get(f"/{address}").status_code == 200
    for address in DOCS:
        answer = client.get(f"/{address}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert client.get("/api/v1/docs", headers={"Accept": "text/html"}).headers["Location"].startswith("/login/")


@pytest.mark.parametrize(("method", "address"), EVERY)
def test_nobody_is_refused_everywhere(client: Client, method: str, address: str) -> None:
    answer = client.generic(method, url(address))
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("method", "address"), EVERY)
def test_each_scope_reaches_what_the_table_says(admin: Actor, stub: object, method: str, address: str) -> None:
    least = Role[TABLE[method, address][0]]
    for scope in Role:
        status = with_token(method, address, token_for(admin, scope.name))
        let_in = scope >= least and (method, address) not in PEOPLE_ONLY
        assert (status not in (401, 403)) == let_in, (scope, status)
        assert status != 500


@pytest.mark.parametrize(("method", "address"), EVERY)
def test_tokens_that_ended_are_refused_everywhere(admin: Actor, method: str, address: str) -> None:
    expired, revoked, good = (token_for(admin) for _ in range(3))
    old, gone, _ = ApiToken.objects.order_by("pk")
    ApiToken.objects.filter(pk=old.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    ApiToken.objects.filter(pk=gone.pk).update(revoked_at=timezone.now())
    assert [with_token(method, address, token) for token in (expired, revoked, "ph_invented", "")] == [401] * 4
    get_user_model().objects.update(is_active=False)
    assert with_token(method, address, good) == 401


@pytest.mark.parametrize(("method", "address"), EVERY)
def test_a_cookie_alone_changes_nothing(admin: Actor, stub: object, method: str, address: str) -> None:
    client = signed_in(admin)
    assert (ask(client, method, address) in (401, 403)) == (method not in SAFE)
    csrf = client.cookies["pilothouse_csrf"].value if "pilothouse_csrf" in client.cookies else csrf_of(client)
    assert ask(client, method, address, **{"X-CSRFToken": csrf}) not in (401, 403, 500)


@pytest.mark.parametrize(("method", "address"), EVERY)
def test_another_sites_page_is_refused_everywhere(admin: Actor, method: str, address: str) -> None:
    client = signed_in(admin)
    headers = {"X-CSRFToken": csrf_of(client), "Origin": "https://evil.example"}
    assert ask(client, method, address, **headers) == 403


@pytest.mark.parametrize(("method", "address"), EVERY)
def test_a_cookie_does_not_help_a_bad_token(admin: Actor, method: str, address: str) -> None:
    client = signed_in(admin)
    headers = {"X-CSRFToken": csrf_of(client), "Authorization": "Bearer ph_invented"}
    assert ask(client, method, address, **headers) == 401


def test_a_disabled_user_is_signed_out(viewer: Actor) -> None:
    client = signed_in(viewer)
    assert client.get("/api/v1/nodes").status_code == 200
    get_user_model().objects.update(is_active=False)
    assert client.get("/api/v1/nodes").status_code == 401


def test_a_token_never_does_more_than_its_user_may_do_now(admin: Actor) -> None:
    other = person("eve", "admin")
    token = token_for(other)
    get_user_model().objects.get(pk=other.user_id).member.delete()
    assert with_token("GET", "nodes", token) == 200
    assert with_token("POST", "keys/generate", token) == 403


def csrf_of(client: Client) -> str:
    """The token that pages carry; docs are the API's own page with one."""
    page = client.get("/api/v1/docs", headers={"Accept": "text/html"}).content.decode()
    found = re.search(r'data-csrf-token="(\w+)"', page)
    assert found is not None
    return found[1]
