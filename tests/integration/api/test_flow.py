"""From an empty panel to a model that answers and back, through the API alone."""

from __future__ import annotations

import pytest

from deployments.models import Deployment
from deployments.remote.stub import StubLauncher

from ..panel import MODEL_PATH, advance_all, settle
from .client import Program

pytestmark = pytest.mark.django_db


def add_node(api: Program, name: str = "node-1") -> None:
    api.ok("POST", "/nodes", {"name": name, "address": f"{name}.example", "user": "pilot", "key": "main"})
    advance_all()
    rows = {row["node"]: row for row in api.ok("GET", "/nodes/fingerprints")}
    assert rows[name]["undecided"]
    accept = [{"node": name, "fingerprint": rows[name]["offered"]}]
    api.ok("POST", "/nodes/fingerprints/accept", {"accept": accept})
    advance_all()


def test_a_model_is_served_and_its_stop_is_proven(stub: StubLauncher, api: Program) -> None:
    public = api.ok("POST", "/keys/generate", {"name": "main"})["public"]
    assert public.startswith("ssh-ed25519 ")
    add_node(api)
    node = api.ok("GET", "/nodes/node-1")
    assert (node["state"], node["facts"]["hostname"]) == ("READY", "node-1")
    assert node["accelerators"]

    found = api.ok("POST", "/models", {"name": "qwen", "path": MODEL_PATH})
    advance_all()
    assert api.ok("GET", f"/jobs/{found['job']['id']}")["state"] == "SUCCEEDED"
    assert api.ok("GET", "/models/qwen")["copies"][0]["present"] is True
    api.ok("POST", "/layouts", {"name": "one", "kind": "single"})

    wish = {"model": "qwen", "layout": "one", "args": ["--max-model-len", "4096"]}
    preview = api.ok("POST", "/deployments/preview", {"name": "chat", **wish})
    assert preview["ok"], preview["problems"]
    assert "--max-model-len 4096" in preview["processes"][0]["command"]
    assert not Deployment.objects.exists()

    assert api.ok("PUT", "/deployments/chat", wish)["state"] == "PENDING"
    assert api.last["ETag"] == '"1"'
    settle(Deployment.objects.get())
    chat = api.ok("GET", "/deployments/chat")
    assert (chat["state"], chat["problems"]) == ("READY", [])
    assert "curl " in chat["endpoints"][0]["curl"]
    (process,) = chat["processes"]
    detail = api.ok("GET", f"/processes/{process['id']}")
    assert detail["evidence"]["completion_ok"] is True
    assert api.ok("GET", f"/processes/{process['id']}/log?offset=0")["data"].startswith("starting engine")

    stop_and_clear_away(api)


def stop_and_clear_away(api: Program) -> None:
    api.ok("POST", "/deployments/chat/stop")
    settle(Deployment.objects.get())
    assert api.ok("GET", "/deployments/chat")["state"] == "STOPPED"
    (process,) = api.ok("GET", "/deployments/chat/processes?current=false")
    assert (process["state"], process["stop_evidence"]["proven"]) == ("STOPPED", True)
    states = [row["new"] for row in api.ok("GET", "/transitions?deployment=chat&subject=process")["items"]]
    assert states == ["STOPPED", "STOPPING", "READY", "STARTING"]
    api.ok("DELETE", "/deployments/chat")
    api.refused(404, "GET", "/deployments/chat")
    api.ok("DELETE", "/models/qwen")
    api.ok("DELETE", "/layouts/one")
    api.ok("DELETE", "/nodes/node-1")
    api.ok("DELETE", "/keys/main")
