"""Many nodes at once: from JSON, from a list, an ssh config, a known_hosts; one table of fingerprints."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.models import Node
from deployments.remote.stub import StubLauncher

from ..panel import advance_all
from .client import Program

pytestmark = pytest.mark.django_db


@pytest.fixture
def keyed(stub: StubLauncher, api: Program) -> Program:
    """A panel with the key `main`."""
    api.ok("POST", "/keys/generate", {"name": "main"})
    return api


def many(api: Program, text: str, kind: str, **more: Any) -> dict[str, Any]:
    body = {"text": text, "format": kind, "defaults": {"key": "main", "user": "pilot"}, **more}
    return api.ok("POST", "/nodes/many", body)


def test_a_list_of_thirty_two_is_added_accepted_and_probed_in_three_requests(keyed: Program) -> None:
    text = "\n".join(f"gpu-{place} root@10.0.0.{place}:22" for place in range(1, 33))
    assert len(many(keyed, text, "list")["nodes"]) == 32
    advance_all()
    table = keyed.ok("GET", "/nodes/fingerprints")
    assert len({row["offered"] for row in table}) == 32
    accept = [{"node": row["node"], "fingerprint": row["offered"]} for row in table]
    keyed.ok("POST", "/nodes/fingerprints/accept", {"accept": accept})
    advance_all()
    nodes = keyed.ok("GET", "/nodes")["items"]
    assert {node["state"] for node in nodes} == {"READY"}
    assert {node["user"] for node in nodes} == {"root"}
    assert not any(row["undecided"] for row in keyed.ok("GET", "/nodes/fingerprints"))


def test_one_bad_line_adds_nothing_and_is_named(keyed: Program) -> None:
    error = keyed.refused(422, "POST", "/nodes/many", {"text": "a a.example\nb b.example:x\n", "format": "list"})
    assert "Line 2" in error["message"]
    item = {"name": "a", "address": "a.example", "key": "main"}
    bad = {**item, "name": "b", "address": "no host"}
    error = keyed.refused(422, "POST", "/nodes/many", {"nodes": [item, bad]})
    assert (error["field"], error["node"], error["detail"]["item"]) == ("address", "b", 1)
    error = keyed.refused(409, "POST", "/nodes/many", {"nodes": [item, item]})
    assert error["detail"]["item"] == 1
    assert not Node.objects.exists()


def test_a_dry_run_says_what_would_be_added(keyed: Program) -> None:
    answer = many(keyed, "a@h1\nx h2:2222 # a comment\n", "list", dry_run=True)
    assert keyed.last.status_code == 200
    assert [(item["name"], item["address"], item["port"], item["user"]) for item in answer["items"]] == [
        ("h1", "h1", 22, "a"),
        ("x", "h2", 2222, "pilot"),
    ]
    assert not Node.objects.exists()


def test_an_ssh_config_brings_addresses_users_and_jump_hosts(keyed: Program) -> None:
    config = """
    Host bastion
        HostName gate.example
        User guard
        Port 2200
    Host gpu-*
        User pilot
        ProxyJump bastion
    Host gpu-1
        HostName 10.1.0.1
    Host gpu-2
        HostName 10.1.0.2
        Port 2222
    """
    nodes = {node["name"]: node for node in many(keyed, config, "ssh_config")["nodes"]}
    assert sorted(nodes) == ["bastion", "gpu-1", "gpu-2"]
    assert (nodes["gpu-2"]["address"], nodes["gpu-2"]["port"]) == ("10.1.0.2", 2222)
    assert nodes["gpu-1"]["jump"] == {"address": "gate.example", "port": 2200, "user": "guard", "key": "main"}
    assert nodes["bastion"]["jump"] is None


def test_an_ssh_config_that_would_run_a_program_is_refused(keyed: Program) -> None:
    config = "Host a\n  ProxyCommand nc %h %p\n"
    error = keyed.refused(422, "POST", "/nodes/many", {"text": config, "format": "ssh_config"})
    assert "Line 2" in error["message"]


def test_keys_of_known_hosts_are_offered_and_only_accepted_when_an_admin_says_so(
    keyed: Program, stub: StubLauncher
) -> None:
    hosts = "".join(f"{name}.example {stub.host_key_of(f'{name}.example').public}\n" for name in ("a", "b"))
    hosts += "|1|AAAAAAAAAAAAAAAAAAAAAAAAAAA=|AAAAAAAAAAAAAAAAAAAAAAAAAAA= " + stub.host_key_of("h").public
    answer = many(keyed, hosts, "known_hosts")
    assert "hashed" in answer["notes"][0]
    table = keyed.ok("GET", "/nodes/fingerprints")
    assert [(row["node"], row["accepted"], row["offered"]) for row in table] == [
        (name, None, stub.host_key_of(f"{name}.example").fingerprint) for name in ("a", "b")
    ]
    for name in ("a", "b"):
        keyed.ok("DELETE", f"/nodes/{name}")
    many(keyed, hosts, "known_hosts", accept_known_keys=True)
    advance_all()
    assert [row["accepted"] for row in keyed.ok("GET", "/nodes/fingerprints")] == [row["offered"] for row in table]
    assert {node["state"] for node in keyed.ok("GET", "/nodes")["items"]} == {"READY"}


def test_a_list_finds_its_keys_in_a_known_hosts_text(keyed: Program, stub: StubLauncher) -> None:
    key = stub.host_key_of("a.example")
    answer = many(keyed, "one a.example:2222\n", "list", known_hosts=f"[a.example]:2222 {key.public}\n", dry_run=True)
    assert answer["items"][0]["known_key"] == key.public


def test_a_changed_key_stays_refused_until_it_is_accepted(keyed: Program, stub: StubLauncher) -> None:
    wrong = stub.host_key_of("elsewhere").public
    many(keyed, f"a.example {wrong}\n", "known_hosts", accept_known_keys=True)
    advance_all()
    keyed.ok("POST", "/nodes/a/probe")
    advance_all()
    node = keyed.ok("GET", "/nodes/a")
    assert (node["state"], node["error"]["code"]) == ("NOT_READY", "HOST_KEY_CHANGED")
    (row,) = keyed.ok("GET", "/nodes/fingerprints")
    assert row["changed"]
    stale = [{"node": "a", "fingerprint": row["accepted"]}]
    keyed.refused(409, "POST", "/nodes/fingerprints/accept", {"accept": stale})
    keyed.ok("POST", "/nodes/fingerprints/accept", {"accept": [{"node": "a", "fingerprint": row["offered"]}]})
    advance_all()
    assert keyed.ok("GET", "/nodes/a")["state"] == "READY"


def test_a_jump_hosts_key_is_accepted_before_the_hosts_is_seen(keyed: Program) -> None:
    node = {"name": "a", "address": "a.example", "key": "main", "jump": {"address": "gate.example", "user": "guard"}}
    keyed.ok("POST", "/nodes", node)
    advance_all()
    (row,) = keyed.ok("GET", "/nodes/fingerprints")
    assert (row["offered"], row["jump"]) == (None, "guard@gate.example:22")
    accept = [{"node": "a", "jump_fingerprint": row["jump_offered"]}]
    keyed.ok("POST", "/nodes/fingerprints/accept", {"accept": accept})
    advance_all()
    (row,) = keyed.ok("GET", "/nodes/fingerprints")
    keyed.ok("POST", "/nodes/fingerprints/accept", {"accept": [{"node": "a", "fingerprint": row["offered"]}]})
    advance_all()
    assert keyed.ok("GET", "/nodes/a")["state"] == "READY"
    assert keyed.ok("PATCH", "/nodes/a", {"jump": None})["jump"] is None


def test_another_address_forgets_the_accepted_key(keyed: Program) -> None:
    many(keyed, "a a.example\n", "list")
    advance_all()
    (row,) = keyed.ok("GET", "/nodes/fingerprints")
    keyed.ok("POST", "/nodes/fingerprints/accept", {"accept": [{"node": "a", "fingerprint": row["offered"]}]})
    keyed.ok("PATCH", "/nodes/a", {"user": "other"})
    assert keyed.ok("GET", "/nodes/fingerprints")[0]["accepted"]
    keyed.ok("PATCH", "/nodes/a", {"address": "b.example"})
    assert keyed.ok("GET", "/nodes/fingerprints")[0]["accepted"] is None


def test_jobs_are_started_followed_retried_and_cancelled(keyed: Program, stub: StubLauncher) -> None:
    many(keyed, "a a.example\n", "list")
    advance_all()
    stub.node(Node.objects.get().pk).silent = True
    job = keyed.ok("POST", "/nodes/probe", {"nodes": ["a"]})
    advance_all()
    found = keyed.ok("GET", f"/jobs/{job['id']}")
    assert (found["state"], found["steps"][0]["error"]["code"]) == ("FAILED", "UNREACHABLE")
    stub.node(Node.objects.get().pk).silent = False
    again = keyed.ok("POST", f"/jobs/{job['id']}/retry")
    assert again["retry_of"] == job["id"]
    assert keyed.ok("POST", f"/jobs/{again['id']}/cancel")["cancel_requested_by"] == "ada/test"
    keyed.refused(409, "POST", f"/jobs/{again['id']}/retry")
    assert keyed.refused(422, "POST", "/jobs", {"kind": "none", "nodes": ["a"]})["field"] == "kind"
    assert keyed.refused(404, "POST", "/jobs", {"kind": "probe", "nodes": ["b"]})["field"] == "nodes"
    for args in ({}, {"model": "1"}, {"model": 10**30}, {"path": "/etc"}):
        assert (
            keyed.refused(422, "POST", "/jobs", {"kind": "find_model", "nodes": ["a"], "args": args})["field"]
            == "model"
        )


def test_an_environment_is_installed_with_pins(keyed: Program, stub: StubLauncher) -> None:
    many(keyed, "a a.example\n", "list")
    advance_all()
    (row,) = keyed.ok("GET", "/nodes/fingerprints")
    keyed.ok("POST", "/nodes/fingerprints/accept", {"accept": [{"node": "a", "fingerprint": row["offered"]}]})
    advance_all()
    args = {"path": "/opt/vllm", "packages": ["vllm==0.33.0"]}
    job = keyed.ok("POST", "/jobs", {"kind": "install_environment", "nodes": ["a"], "args": args})
    advance_all()
    assert keyed.ok("GET", f"/jobs/{job['id']}")["state"] == "SUCCEEDED"
    assert "venv" in keyed.ok("GET", f"/jobs/{job['id']}/log")[0]["data"]
    assert keyed.ok("GET", "/nodes/a")["environment"] == "/opt/vllm"
    bad = {"path": "/opt/vllm", "packages": ["vllm"]}
    error = keyed.refused(422, "POST", "/jobs", {"kind": "install_environment", "nodes": ["a"], "args": bad})
    assert error["field"] == "packages"


def test_a_dry_run_refuses_what_the_real_one_would_and_keeps_nothing(keyed: Program) -> None:
    text = {"text": "one $(id)@a.example\n", "format": "list", "defaults": {"key": "main"}, "dry_run": True}
    error = keyed.refused(422, "POST", "/nodes/many", text)
    assert (error["code"], error["node"]) == ("INVALID_INPUT", "one")
    assert many(keyed, "one a.example\n", "list", dry_run=True)["items"][0]["address"] == "a.example"
    assert keyed.ok("GET", "/nodes")["items"] == []
