"""A link cut or a worker killed just when something is started or stopped. The engine is a fake one."""

from __future__ import annotations

import pytest

from tests.acceptance.serving import Asker, api_servers, story
from tests.lab import fake_engine
from tests.lab.host import Host
from tests.lab.panel import Panel, until
from tests.lab.remains import engine_remains

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]
# A worker that was killed at work holds its lease for so long.
LEASE_S = 20.0


@pytest.fixture(scope="module")
def host(module_lab, panel) -> Host:
    [host] = module_lab(1).hosts
    panel.add_hosts([host], fake_engine.install(host))
    panel.add_model("toy", fake_engine.put_model(host), nodes=[host.name])
    panel.add_layout("single", "single")
    return host


def deploy(panel: Panel, host: Host, name: str, **more) -> None:
    panel.deploy(name, model="toy", layout="single", nodes=[host.name], **more)


def test_a_stop_that_cannot_be_proven_waits_for_its_proof(panel, host):
    deploy(panel, host, "away", stop_grace=2)
    panel.wait_deployment("away", "READY")
    process = panel.only_process("away")
    host.cut()
    try:
        panel.api("POST", "/deployments/away/stop")
        row = panel.wait(f"/processes/{process['id']}", lambda row: "cannot be proven" in row["note"], 120)
        assert row["state"] == "STOPPING"
        assert panel.deployment("away")["state"] == "STOPPING"
        assert panel.ask("DELETE", "/deployments/away")[0] == 409
    finally:
        host.heal()
    panel.wait("/deployments/away", lambda row: row["state"] == "STOPPED", 120)
    assert panel.api("GET", f"/processes/{process['id']}")["stop_evidence"]["proven"] is True
    assert engine_remains(host) == []


def test_a_start_that_finds_no_way_is_made_once_when_the_way_is_back(panel, host):
    host.cut()
    try:
        deploy(panel, host, "late")
        panel.wait_node(host.name, "UNREACHABLE", 120)
        assert panel.deployment("late")["state"] in ("PENDING", "STARTING")
        assert api_servers(host) == []
    finally:
        host.heal()
    panel.wait("/deployments/late", lambda row: row["state"] == "READY", 180)
    assert api_servers(host) == [panel.only_process("late")["pid"]]
    panel.stop_deployment("late")
    assert engine_remains(host) == []


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_link_that_loses_one_direction_touches_nothing(panel, host, direction):
    deploy(panel, host, f"one-way-{direction}")
    panel.wait_deployment(f"one-way-{direction}", "READY")
    process = panel.only_process(f"one-way-{direction}")
    host.cut(direction)
    try:
        panel.wait_process(f"one-way-{direction}", lambda process: process["state"] == "UNKNOWN", 120)
        assert api_servers(host) == [process["pid"]]
    finally:
        host.heal()
    panel.wait_deployment(f"one-way-{direction}", "READY", 120)
    assert panel.only_process(f"one-way-{direction}")["id"] == process["id"]
    assert story(panel, process["id"])[-1] == ("READY", "ADOPTED")
    panel.stop_deployment(f"one-way-{direction}")
    assert engine_remains(host) == []


def test_a_worker_killed_at_work_leaves_nothing_twice_and_nothing_behind(panel, host):
    deploy(panel, host, "torn", stop_grace=5, env={"FAKE_VLLM_MODE": "swallow_term,detach_worker"})
    kill_worker(panel)
    panel.wait("/deployments/torn", lambda row: row["state"] == "READY", LEASE_S + 60)
    process = panel.only_process("torn")
    assert api_servers(host) == [process["pid"]]
    with Asker(panel, "torn") as asker:
        asker.wait_for_answers()
    panel.api("POST", "/deployments/torn/stop")
    panel.wait_process("torn", lambda process: process["state"] == "STOPPING")
    kill_worker(panel)
    panel.wait("/deployments/torn", lambda row: row["state"] == "STOPPED", LEASE_S + 60)
    assert panel.api("GET", f"/processes/{process['id']}")["stop_evidence"]["proven"] is True
    assert engine_remains(host) == []


def kill_worker(panel: Panel) -> None:
    panel.wait_for_part("worker", instead_of=panel.kill("worker"))


def test_a_processes_stray_child_is_found_though_it_left_its_session(panel, host):
    deploy(panel, host, "stray", stop_grace=2, env={"FAKE_VLLM_MODE": "detach_worker,wipe_environ"})
    panel.wait_deployment("stray", "READY")
    assert detached(host)
    host.kill(panel.only_process("stray")["pid"])
    panel.wait_process("stray", lambda process: process["attempt"] == 2)
    until(lambda: len(detached(host)) <= 1, 30, lambda: f"strays: {detached(host)}")
    panel.wait_deployment("stray", "READY")
    panel.stop_deployment("stray")
    assert detached(host) == []
    assert engine_remains(host) == []


def detached(host: Host) -> list[int]:
    return [p.pid for p in host.processes() if p.name == "VLLM::Detached" and not p.state.startswith("Z")]
