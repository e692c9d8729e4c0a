"""Whatever is written into whichever field of whichever route: never a 500, and what was kept can be read again."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.models import Deployment
from deployments.remote.stub import StubLauncher
from deployments.services.access import Actor

from ..panel import MODEL_PATH, found_model, ready_node, settle, single_layout
from .client import Program, token_for

pytestmark = pytest.mark.django_db

TEXTS = (
    "", " ", "\x00", "a\x00b", "a\n", "a\nb", "\r\n", "'", '"', "$(reboot)", "`reboot`", "; rm -rf /", "-rf", "--help",
    "../../etc/passwd", "/a\nb", "/with space/'\"$(x)`", "%00", "%s", "{}", "\ud800", "\U0001f4a5", "\u202e", "\u00e9",
    "1e999", "x" * 300, "/" + "x" * 100_000, "a@b", "a,b", "[::1]:22", "HOST", "ssh-rsa AAAA", "==", "x==1\n",
)  # fmt: skip
NUMBERS = (-1, 0, 65536, 2**31, 2**63, 10**40, 1.5, float("nan"), -float("inf"), None, [])
READS = ("nodes", "keys", "models", "layouts", "deployments", "jobs")


def description() -> dict[str, Any]:
    from controlplane.api import api

    return json.loads(json.dumps(api.get_openapi_schema()))


def sample(schema: dict[str, Any], parts: dict[str, Any], name: str = "") -> Any:
    """A value with every field set, so that every field can be spoilt. Rows named `a` exist, `b` are new."""
    if "$ref" in schema:
        return sample(parts[schema["$ref"].rsplit("/", 1)[1]], parts, name)
    if "anyOf" in schema:
        return sample(next(one for one in schema["anyOf"] if one.get("type") != "null"), parts, name)
    if "allOf" in schema:
        return sample(schema["allOf"][0], parts, name)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        if "properties" not in schema:
            return (
                {"OMP_NUM_THREADS": "1"}
                if name == "env"
                else {"path": "/opt/v", "packages": ["vllm==1"], "python": "/p"}
            )
        return {field: sample(inner, parts, field) for field, inner in schema["properties"].items()}
    if kind == "array":
        return ["--seed=1"] if name == "args" else [sample(schema["items"], parts, name)]
    plain = {"integer": 1, "number": 1.0, "boolean": False}
    return plain[kind] if kind in plain else WORDS.get(name, "a")


WORDS = {
    "address": "a.example",
    "path": MODEL_PATH,
    "kind": "single",
    "intent": "ACTIVE",
    "scope": "viewer",
    "role": "viewer",
    "backend": "mp",
    "interpreter": "/usr/bin/python3",
    "environment": "/opt/vllm",
    "cache_dir": "/cache",
    "cluster_address": "10.0.0.1",
    "interface": "eth0",
    "platform": "cpu",
    "known_key": "",
    "text": "b b.example\n",
    "known_hosts": "",
    "password": "correct horse battery staple",
    "username": "eve",
}


def bodies(body: Any, texts: Sequence[str]) -> Iterator[Any]:
    """`body` with each of its values spoilt in each way."""
    for where in list(leaves(body, ())):
        value = at(body, where)
        for bad in texts if isinstance(value, str) else NUMBERS:
            changed = copy.deepcopy(body)
            at(changed, where[:-1])[where[-1]] = bad
            yield changed


def leaves(value: Any, where: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*where, key))
    elif where:
        yield where


def at(value: Any, where: tuple[Any, ...]) -> Any:
    for key in where:
        value = value[key]
    return value


@pytest.fixture
def panel(stub: StubLauncher, admin: Actor) -> Program:
    """A panel in which a node, key, model, layout and deployment, each called `a`, exist."""
    api = Program(token_for(admin))
    api.ok("POST", "/keys/generate", {"name": "a"})
    ready_node(admin, "a", key="a")
    found_model(admin, "a")
    single_layout(admin, "a")
    api.ok("PUT", "/deployments/a", {"model": "a", "layout": "a"})
    settle(Deployment.objects.get())
    return api


def try_out(api: Program, method: str, path: str, body: Any = None) -> int:
    """One request in a transaction that is undone, and all lists read again when it was granted."""
    with transaction.atomic():
        answer = api.send(method, path, body)
        assert answer.status_code < 500 or answer.status_code in (502, 504), (method, path, body, answer.content[:500])
        if answer.status_code >= 400:
            assert set(answer.json()) == {"error"}
        elif method != "GET":
            changed = path.split("/")[1]
            for address in {changed, "jobs"} & set(READS) | {"transitions"}:
                api.ok("GET", f"/{address}?limit=5")
        transaction.set_rollback(True)
    return answer.status_code


def address_of(path: str, value: str = "a") -> str:
    parts = path.split("/")
    return "/" + "/".join(quote(value, safe="") if part.startswith("{") else part for part in parts)


@pytest.mark.parametrize(("name", "texts"), [("a", TEXTS[::2]), ("b", TEXTS[1::2])], ids=["changing", "adding"])
def test_no_field_of_any_body_brings_the_panel_down(panel: Program, name: str, texts: Sequence[str]) -> None:
    schema = description()
    granted = refused = 0
    for path, methods in sorted(schema["paths"].items()):
        for method, operation in methods.items():
            if "requestBody" not in operation:
                continue
            (content,) = operation["requestBody"]["content"].values()
            body = sample(content["schema"], schema["components"]["schemas"])
            if "name" in body:
                body["name"] = name
            for changed in [body, *bodies(body, texts)]:
                status = try_out(panel, method.upper(), address_of(path.removeprefix("/api/v1/"), name), changed)
                granted, refused = granted + (status < 300), refused + (status >= 400)
    assert granted > 50
    assert refused > 500


def test_no_address_and_no_query_brings_the_panel_down(panel: Program) -> None:
    schema = description()
    for path, methods in sorted(schema["paths"].items()):
        short = path.removeprefix("/api/v1/")
        for method, operation in methods.items():
            for text in TEXTS:
                if len(text) > 5000 or "\ud800" in text:
                    continue
                if "{" in short:
                    try_out(panel, method.upper(), address_of(short, text))
                for parameter in operation.get("parameters", []):
                    if parameter["in"] == "query":
                        try_out(panel, method.upper(), f"{address_of(short)}?{urlencode({parameter['name']: text})}")


def test_no_token_text_brings_the_panel_down(panel: Program) -> None:
    for text in TEXTS:
        if text.isascii() and "\n" not in text:
            assert Program(text).send("GET", "/nodes").status_code == 401


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200), where=st.sampled_from(["env", "args", "path", "served_name", "cache_dir", "list"]))
def test_any_text_is_taken_or_refused(panel: Program, text: str, where: str) -> None:
    wish: dict[str, Any] = {"model": "a", "layout": "a"}
    requests: dict[str, tuple[str, str, Any]] = {
        "env": ("PUT", "/deployments/b", {**wish, "env": {"OMP_NUM_THREADS": text}}),
        "args": ("PUT", "/deployments/b", {**wish, "args": ["--seed", text]}),
        "served_name": ("PUT", "/deployments/b", {**wish, "served_name": text}),
        "path": ("POST", "/models", {"name": "b", "path": f"/{text}"}),
        "cache_dir": ("PATCH", "/nodes/a", {"cache_dir": f"/{text}"}),
        "list": ("POST", "/nodes/many", {"text": text, "defaults": {"key": "a"}}),
    }
    try_out(panel, *requests[where])
