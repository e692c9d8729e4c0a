"""Each way to fail is a typed error that says what to do; nothing half-done is left."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.test import Client

from deployments.models import Deployment, LanguageModel, Node
from deployments.remote.launcher import AuthFailed, HelperFailed, TimedOut, Unreachable
from deployments.remote.stub import StubLauncher
from deployments.services.access import Actor

from ..panel import advance_all, found_model, ready_node, settle, single_layout
from .client import Program

pytestmark = pytest.mark.django_db
WISH = {"model": "qwen", "layout": "one"}


@pytest.fixture
def node(stub: StubLauncher, admin: Actor) -> Node:
    """A panel with a node, a model and a layout."""
    row = ready_node(admin)
    found_model(admin)
    single_layout(admin)
    return row


def test_a_body_that_is_no_json_is_400(api: Program) -> None:
    for body in (b"{", b"\xff\xfe", b"[" * 100_000):
        assert api.refused(400, "POST", "/nodes", body)["code"] == "INVALID_JSON"


def test_a_bad_field_is_named_as_people_know_it(api: Program) -> None:
    error = api.refused(422, "POST", "/nodes", {"name": "n", "address": "a", "jump": {"address": "j", "port": "x"}})
    assert (error["code"], error["field"]) == ("INVALID_INPUT", "jump.port")
    error = api.refused(422, "POST", "/nodes", {"name": "n", "address": "a", "adress": "b"})
    assert error["field"] == "adress"
    assert api.refused(422, "GET", "/nodes?limit=many")["field"] == "limit"
    assert api.refused(422, "POST", "/nodes")["code"] == "INVALID_INPUT"


def test_a_missing_address_and_a_wrong_method_are_typed_too(api: Program) -> None:
    assert api.refused(404, "GET", "/nothing/here")["code"] == "NOT_FOUND"
    assert api.refused(405, "PUT", "/nodes")["code"] == "METHOD_NOT_ALLOWED"
    assert api.last["Allow"]
    assert api.refused(404, "GET", "/nodes/%00")["code"] == "NOT_FOUND"


def test_a_body_that_is_too_large_is_413(api: Program) -> None:
    assert api.refused(413, "POST", "/nodes", b" " * (5 * 1024 * 1024))["code"] == "TOO_LARGE"


def test_a_fault_of_ours_is_500_and_tells_nothing(api: Program, stub: StubLauncher, node: Node) -> None:
    api.ok("PUT", "/deployments/chat", WISH)
    settle(Deployment.objects.get())
    process = Deployment.objects.get().processes.get()
    stub.node(node.pk).fail(RuntimeError("a secret: hunter2"), verb="logs")
    error = api.refused(500, "GET", f"/processes/{process.pk}/log")
    assert error["code"] == "INTERNAL"
    assert "hunter2" not in api.last.content.decode()
    assert error["detail"]["mark"] in error["remedy"]


def test_a_database_that_is_away_is_503(api: Program, stub: StubLauncher, node: Node) -> None:
    api.ok("PUT", "/deployments/chat", WISH)
    settle(Deployment.objects.get())
    process = Deployment.objects.get().processes.get()
    stub.node(node.pk).fail(OperationalError("connection refused"), verb="logs")
    error = api.refused(503, "GET", f"/processes/{process.pk}/log")
    assert (error["code"], error["retryable"]) == ("UNAVAILABLE", True)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unreachable("gone"), 502),
        (TimedOut("slow"), 504),
        (AuthFailed("no"), 502),
        (HelperFailed("no such process", code="UNKNOWN_PROCESS"), 404),
        (HelperFailed("full", code="DISK_FULL"), 502),
    ],
)
def test_what_a_node_cannot_do_names_the_node(
    api: Program, stub: StubLauncher, node: Node, error: Exception, status: int
) -> None:
    api.ok("PUT", "/deployments/chat", WISH)
    settle(Deployment.objects.get())
    process = Deployment.objects.get().processes.get()
    error.node = node.name  # type: ignore[attr-defined]
    stub.node(node.pk).fail(error, verb="logs")
    found = api.refused(status, "GET", f"/processes/{process.pk}/log")
    assert (found["node"], found["code"]) == ("node-1", error.code)  # type: ignore[attr-defined]


def test_names_that_are_taken_are_409(api: Program, node: Node) -> None:
    item = {"name": "node-1", "address": "other.example", "key": "main"}
    assert api.refused(409, "POST", "/nodes", item)["field"] == "name"
    assert api.refused(409, "POST", "/keys/generate", {"name": "main"})["code"] == "CONFLICT"
    assert api.refused(409, "POST", "/models", {"name": "qwen", "path": "/x"})["code"] == "CONFLICT"
    assert api.refused(409, "POST", "/layouts", {"name": "one", "kind": "single"})["code"] == "CONFLICT"


def test_what_is_in_use_is_not_removed(api: Program, node: Node) -> None:
    api.ok("PUT", "/deployments/chat", WISH)
    settle(Deployment.objects.get())
    for address in ("/keys/main", "/models/qwen", "/layouts/one", "/nodes/node-1", "/deployments/chat"):
        assert api.refused(409, "DELETE", address)["remedy"]
    assert Node.objects.count() == LanguageModel.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "status", "code", "field"),
    [
        ({"model": "none"}, 422, "NOT_FOUND", "model"),
        ({"layout": "none"}, 422, "NOT_FOUND", "layout"),
        ({"nodes": ["none"]}, 422, "NOT_FOUND", "node"),
        ({"args": ["--port", "1"]}, 422, "INVALID_OPTION", "args"),
        ({"args": ["model"]}, 422, "INVALID_OPTION", "args"),
        ({"env": {"VLLM_API_KEY": "x"}}, 422, "INVALID_OPTION", "env"),
        ({"replicas": -1}, 422, "INVALID_INPUT", "replicas"),
        ({"start_deadline": -1}, 422, "INVALID_INPUT", "start_deadline"),
    ],
)
def test_a_wish_that_cannot_be_granted_lists_every_problem(
    api: Program, node: Node, change: dict[str, object], status: int, code: str, field: str
) -> None:
    error = api.refused(status, "PUT", "/deployments/chat", {**WISH, **change})
    assert (error["code"], error["field"]) == (code, field)
    assert error["detail"]["problems"]
    preview = api.ok("POST", "/deployments/preview", {"name": "chat", **WISH, **change})
    assert not preview["ok"]
    assert preview["problems"] == error["detail"]["problems"]
    assert not Deployment.objects.exists()


def test_a_model_that_is_nowhere_is_422_with_node_and_remedy(api: Program, node: Node) -> None:
    api.ok("POST", "/models", {"name": "lost", "path": "/models/lost"})
    advance_all()
    error = api.refused(422, "PUT", "/deployments/chat", {**WISH, "model": "lost"})
    assert (error["code"], error["node"]) == ("MODEL_MISSING", "node-1")
    assert error["remedy"]


def test_an_operator_may_not_run_code(operators_api: Program, node: Node) -> None:
    for change in ({"args": ["--trust-remote-code"]}, {"env": {"LD_AUDIT": "/x"}}):
        assert operators_api.refused(403, "PUT", "/deployments/chat", {**WISH, **change})["code"] == "NOT_PERMITTED"


def test_secrets_in_an_environment_are_for_admins(api: Program, viewers_api: Program, node: Node) -> None:
    api.ok("PUT", "/deployments/chat", {**WISH, "env": {"HF_TOKEN": "hf_secret", "OMP_NUM_THREADS": "4"}})
    assert api.ok("GET", "/deployments/chat")["env"]["HF_TOKEN"] == "hf_secret"
    settle(Deployment.objects.get())
    process = Deployment.objects.get().processes.get()
    for address in ("/deployments/chat", f"/processes/{process.pk}", "/deployments"):
        viewers_api.ok("GET", address)
        assert "hf_secret" not in viewers_api.last.content.decode()
    assert viewers_api.ok("GET", "/deployments/chat")["env"] == {"HF_TOKEN": "***", "OMP_NUM_THREADS": "4"}


def test_no_key_is_ever_given_out(api: Program, node: Node) -> None:
    for address in ("/keys", "/nodes", "/nodes/node-1", "/transitions", "/access/tokens"):
        api.ok("GET", address)
        text = api.last.content.decode()
        assert "PRIVATE" not in text
        assert api.token not in text


def test_a_token_is_shown_once_and_made_by_people_only(api: Program, admin: Actor) -> None:
    assert api.refused(403, "POST", "/access/tokens", {"name": "t", "scope": "viewer"})["code"] == "NOT_PERMITTED"
    client = Client()
    client.login(username="ada", password="correct horse battery staple")
    made = client.post("/api/v1/access/tokens", {"name": "t", "scope": "viewer"}, content_type="application/json")
    assert made.status_code == 201
    token = made.json()
    assert Program(token["text"]).ok("GET", "/access/me") == {"name": "ada/t", "role": "viewer"}
    assert all("text" not in row for row in api.ok("GET", "/access/tokens"))
    api.ok("DELETE", f"/access/tokens/{token['id']}")
    assert Program(token["text"]).refused(401, "GET", "/access/me")["code"] == "UNAUTHENTICATED"


def test_another_users_token_cannot_be_revoked(viewers_api: Program, api: Program) -> None:
    own = api.ok("GET", "/access/tokens")
    ada = next(row["id"] for row in own if row["user"] == "ada")
    viewers_api.refused(404, "DELETE", f"/access/tokens/{ada}")
    assert [row["user"] for row in viewers_api.ok("GET", "/access/tokens")] == ["vera"]


def test_admins_business_is_not_in_a_viewers_history(api: Program, viewers_api: Program) -> None:
    api.ok("POST", "/access/users", {"username": "new", "password": "correct horse battery", "role": "viewer"})
    subjects = {row["subject"] for row in api.ok("GET", "/transitions")["items"]}
    assert {"user", "token"} <= subjects
    assert not {row["subject"] for row in viewers_api.ok("GET", "/transitions")["items"]} & {"user", "token"}
