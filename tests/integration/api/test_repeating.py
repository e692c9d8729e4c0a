"""Idempotency keys, conditions on the generation, and cursors."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from deployments.models import Deployment, IdempotencyRecord, Node, SshKey
from deployments.remote.stub import StubLauncher
from deployments.services import idempotency, pruning
from deployments.services.access import Actor

from ..panel import found_model, person, ready_node, single_layout
from .client import Program, token_for

WISH = {"model": "qwen", "layout": "one"}


@pytest.fixture
def node(stub: StubLauncher, admin: Actor) -> Node:
    row = ready_node(admin)
    found_model(admin)
    single_layout(admin)
    return row


@pytest.mark.django_db
def test_a_repeat_gets_the_first_answer_and_does_nothing(api: Program) -> None:
    first = api.ok("POST", "/keys/generate", {"name": "a"}, Idempotency_Key="k1")
    assert "Idempotency-Replayed" not in api.last
    again = api.ok("POST", "/keys/generate", {"name": "a"}, Idempotency_Key="k1")
    assert (again, api.last.status_code, api.last["Idempotency-Replayed"]) == (first, 201, "true")
    assert SshKey.objects.count() == 1


@pytest.mark.django_db
def test_an_answer_without_a_body_is_repeated_too(api: Program) -> None:
    api.ok("POST", "/keys/generate", {"name": "a"})
    for _ in range(2):
        assert api.ok("DELETE", "/keys/a", Idempotency_Key="k") is None
        assert api.last.status_code == 204


@pytest.mark.django_db
def test_the_etag_is_repeated(api: Program, node: Node) -> None:
    for _ in range(2):
        api.ok("PUT", "/deployments/chat", WISH, Idempotency_Key="k")
        assert api.last["ETag"] == '"1"'


@pytest.mark.django_db
def test_a_key_is_for_one_request_of_one_caller(api: Program) -> None:
    api.ok("POST", "/keys/generate", {"name": "a"}, Idempotency_Key="k")
    assert api.refused(422, "POST", "/keys/generate", {"name": "b"}, Idempotency_Key="k")["code"] == "KEY_REUSED"
    assert api.refused(422, "DELETE", "/keys/a", Idempotency_Key="k")["code"] == "KEY_REUSED"
    other = Program(token_for(person("eve", "admin")))
    other.ok("POST", "/keys/generate", {"name": "b"}, Idempotency_Key="k")
    assert SshKey.objects.count() == 2


@pytest.mark.django_db
def test_after_an_error_the_key_is_free_again(api: Program) -> None:
    assert api.refused(404, "DELETE", "/keys/a", Idempotency_Key="k")
    api.ok("POST", "/keys/generate", {"name": "a"})
    api.ok("DELETE", "/keys/a", Idempotency_Key="k")


@pytest.mark.django_db
def test_secrets_are_not_kept(api: Program, node: Node) -> None:
    api.ok("PUT", "/deployments/chat", WISH)
    error = api.refused(422, "POST", "/deployments/chat/api-key", Idempotency_Key="k")
    assert error["field"] == "Idempotency-Key"
    key = api.ok("POST", "/deployments/chat/api-key")["api_key"]
    assert key.startswith("sk-")
    user = {"username": "eve", "password": "correct horse battery", "role": "viewer"}
    api.ok("POST", "/access/users", user, Idempotency_Key="u")
    kept = str(list(IdempotencyRecord.objects.values()))
    assert "correct horse" not in kept
    assert key not in kept


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["", " ", "x" * 201, "ключ", "a b"])
def test_a_key_that_is_no_key_is_refused(api: Program, key: str) -> None:
    error = api.refused(422, "POST", "/keys/generate", {"name": "a"}, Idempotency_Key=key)
    assert error["field"] == "Idempotency-Key"


@pytest.mark.django_db(transaction=True)
def test_while_the_first_is_at_work_its_repeat_is_told_to_come_back(api: Program, admin: Actor) -> None:
    token = admin_token_id(admin)
    asked = idempotency.Request("k", f"{admin.user_id}/{token}", "")
    holds, done = threading.Event(), threading.Event()

    def first() -> None:
        with transaction.atomic():
            idempotency.begin(asked)
            holds.set()
            done.wait(30)
        connection.close()

    worker = threading.Thread(target=first)
    worker.start()
    try:
        assert holds.wait(30)
        error = api.refused(409, "POST", "/keys/generate", {"name": "a"}, Idempotency_Key="k")
        assert (error["code"], error["retryable"]) == ("IN_PROGRESS", True)
    finally:
        done.set()
        worker.join()
    api.ok("POST", "/keys/generate", {"name": "a"}, Idempotency_Key="k")


def admin_token_id(admin: Actor) -> int:
    from deployments.models import ApiToken

    return ApiToken.objects.get(user_id=admin.user_id).pk


@pytest.mark.django_db
def test_old_answers_are_forgotten(api: Program) -> None:
    api.ok("POST", "/keys/generate", {"name": "a"}, Idempotency_Key="k")
    assert pruning.prune()["answers"] == 0
    IdempotencyRecord.objects.update(created_at="2020-01-01T00:00:00Z")
    assert pruning.prune()["answers"] == 1


@pytest.mark.django_db
def test_a_change_of_an_older_generation_is_refused(api: Program, node: Node) -> None:
    api.ok("PUT", "/deployments/chat", WISH, If_None_Match="*")
    first = api.last["ETag"]
    api.ok("PUT", "/deployments/chat", {**WISH, "args": ["--seed", "1"]}, If_Match=first)
    assert api.last["ETag"] == '"2"'
    for method, path, body in (
        ("PUT", "/deployments/chat", WISH),
        ("POST", "/deployments/chat/stop", None),
        ("POST", "/deployments/chat/scale", {"replicas": 2}),
        ("DELETE", "/deployments/chat", None),
    ):
        error = api.refused(412, method, path, body, If_Match=first)
        assert (error["code"], error["field"]) == ("STALE_GENERATION", "If-Match")
    assert Deployment.objects.get().args == ["--seed", "1"]
    assert api.refused(412, "PUT", "/deployments/other", WISH, If_Match='"1"')["code"] == "STALE_GENERATION"
    assert api.refused(409, "PUT", "/deployments/chat", WISH, If_None_Match="*")["code"] == "CONFLICT"
    assert api.refused(422, "PUT", "/deployments/chat", WISH, If_Match="one")["field"] == "If-Match"
    assert api.refused(422, "PUT", "/deployments/chat", WISH, If_None_Match='"1"')["field"] == "If-None-Match"


@pytest.mark.django_db
def test_the_same_wish_again_changes_nothing(api: Program, node: Node) -> None:
    first = api.ok("PUT", "/deployments/chat", WISH)
    assert api.ok("PUT", "/deployments/chat", WISH)["generation"] == first["generation"]
    assert api.ok("PUT", "/deployments/chat", {**WISH, "replicas": 2})["replicas"] == 2
    assert api.last["ETag"] == '"1"'


def walk(api: Program, path: str, limit: int = 2) -> list[dict]:
    found, cursor = [], ""
    while True:
        page = api.ok("GET", f"{path}{'&' if '?' in path else '?'}limit={limit}{cursor}")
        assert len(page["items"]) <= limit
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.django_db
def test_pages_together_are_the_whole_list(api: Program, node: Node) -> None:
    items = [{"name": f"n{place}", "address": f"n{place}.example", "key": "main"} for place in range(5)]
    api.ok("POST", "/nodes/many", {"nodes": items})
    for name in ("c", "a", "b"):
        api.ok("PUT", f"/deployments/{name}", WISH)
    assert [row["name"] for row in walk(api, "/nodes")] == [*(f"n{place}" for place in range(5)), "node-1"]
    assert [row["name"] for row in walk(api, "/deployments")] == ["a", "b", "c"]
    jobs = walk(api, "/jobs")
    assert len({row["id"] for row in jobs}) == len(jobs)
    assert [row["created_at"] for row in jobs] == sorted((row["created_at"] for row in jobs), reverse=True)
    events = [row["id"] for row in walk(api, "/transitions", 7)]
    assert events == sorted(events, reverse=True)
    assert len(events) == len(set(events))


@pytest.mark.django_db
def test_rows_that_come_meanwhile_shift_nothing(api: Program, node: Node) -> None:
    for name in ("b", "d", "f"):
        api.ok("PUT", f"/deployments/{name}", WISH)
    page = api.ok("GET", "/deployments?limit=2")
    api.ok("PUT", "/deployments/a", WISH)
    api.ok("PUT", "/deployments/e", WISH)
    rest = api.ok("GET", f"/deployments?limit=2&cursor={page['next_cursor']}")
    assert [row["name"] for row in page["items"] + rest["items"]] == ["b", "d", "e", "f"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "cursor", ["x", "!!", "bnVsbA", "WyJhIiwiYiJd", "W251bGxd", "W3sieCI6MX1d", "WyJcdTAwMDAiXQ", "W1t9", "\u00fc"]
)
def test_a_cursor_of_somebody_elses_making_is_refused(api: Program, cursor: str) -> None:
    for path in ("/nodes", "/deployments", "/jobs", "/transitions"):
        answer = api.send("GET", f"{path}?cursor={cursor}")
        assert answer.status_code in (200, 422), (path, answer.content)
    assert api.refused(422, "GET", "/nodes?limit=0")["field"] == "limit"
    assert api.refused(422, "GET", "/nodes?limit=501")["field"] == "limit"
