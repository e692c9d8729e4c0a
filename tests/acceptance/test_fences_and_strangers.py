"""Starts that come too late, other panels on the same machines, machines that restart. The engine is a fake one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from deployments.remote.launcher import HelperFailed, NodeTarget, SshEndpoint, StartRequest, StopRequest
from deployments.remote.node_launcher import NodeLauncher
from tests.acceptance.serving import Asker, api_servers, named, story
from tests.lab import fake_engine
from tests.lab.host import Host
from tests.lab.panel import Panel
from tests.lab.remains import engine_remains

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def host(module_lab) -> Host:
    [host] = module_lab(1).hosts
    fake_engine.install(host)
    fake_engine.put_model(host)
    return host


def settle_in(panel: Panel, host: Host) -> None:
    """Give a panel the host, the model and a layout."""
    panel.add_hosts([host], "/home/engine")
    panel.add_model("toy", "/home/model", nodes=[host.name])
    panel.add_layout("single", "single")


def deploy(panel: Panel, host: Host, name: str) -> dict:
    panel.deploy(name, model="toy", layout="single", nodes=[host.name])
    panel.wait_deployment(name, "READY")
    return panel.only_process(name)


@pytest.fixture
def launcher() -> Iterator[NodeLauncher]:
    launcher = NodeLauncher()
    yield launcher
    launcher.close()


@pytest.fixture
def target(host: Host) -> NodeTarget:
    login = SshEndpoint(host.address, host.port, host.user, host.key_path.read_text(), (host.host_key,))
    return NodeTarget(1, host.name, str(uuid.uuid4()), login)


def sleeper(process: str, replica: str, attempt: int = 1) -> StartRequest:
    return StartRequest(process, replica, attempt, "engine", argv=("/bin/sleep", "4242"))


def test_a_start_that_arrives_after_its_stop_does_nothing(launcher, target, host):
    process = str(uuid.uuid4())
    proof = launcher.stop(target, StopRequest(process))
    assert (proof.proven, proof.known) == (True, False)
    for _ in range(2):
        with pytest.raises(HelperFailed) as refused:
            launcher.start(target, sleeper(process, "replica"))
        assert (refused.value.code, refused.value.node) == ("FENCED", host.name)
    assert named(host, "sleep 4242") == []


def test_a_start_of_an_older_attempt_does_nothing(launcher, target, host):
    replica = str(uuid.uuid4())
    newer = sleeper(str(uuid.uuid4()), replica, 2)
    launcher.start(target, newer)
    with pytest.raises(HelperFailed) as refused:
        launcher.start(target, sleeper(str(uuid.uuid4()), replica, 1))
    assert refused.value.code == "FENCED"
    assert len(named(host, "sleep 4242")) == 1
    assert launcher.stop(target, StopRequest(newer.process, grace_s=2)).proven
    assert named(host, "sleep 4242") == []


def test_two_panels_on_one_machine_leave_each_other_alone(panel, host):
    settle_in(panel, host)
    ours = deploy(panel, host, "ours")
    with Asker(panel, "ours") as asker, Panel() as other:
        settle_in(other, host)
        theirs = deploy(other, host, "theirs")
        assert theirs["pid"] != ours["pid"]
        assert set(api_servers(host)) == {ours["pid"], theirs["pid"]}
        for watcher, foreign in ((other, ours), (panel, theirs)):
            assert watcher.ask("GET", f"/processes/{foreign['id']}")[0] == 404
        other.api("POST", f"/nodes/{host.name}/probe")
        other.restart()
        other.wait_deployment("theirs", "READY")
        other.stop_deployment("theirs")
        assert api_servers(host) == [ours["pid"]]
        asker.wait_for_answers()
    assert asker.failures == []
    assert panel.only_process("ours")["id"] == ours["id"]
    assert panel.wait_deployment("ours", "READY")["processes"][0]["pid"] == ours["pid"]


def test_a_machine_that_restarts_loses_its_processes_and_gets_new_ones(panel, host):
    lost = panel.only_process("ours")
    host.reboot()
    new = panel.wait_process("ours", lambda process: process["id"] != lost["id"], 120)
    assert new["attempt"] == 2
    assert story(panel, lost["id"])[-1] == ("FAILED", "NODE_LOST")
    panel.wait_deployment("ours", "READY")
    with Asker(panel, "ours") as asker:
        asker.wait_for_answers()
    panel.stop_deployment("ours")
    assert engine_remains(host) == []
