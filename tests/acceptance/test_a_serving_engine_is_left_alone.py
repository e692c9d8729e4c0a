"""One real engine that serves while everything around it is restarted, killed and cut off: nobody touches it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.acceptance.serving import SMALL, START_S, Asker, api_servers, story, transitions
from tests.lab.host import Host
from tests.lab.panel import Panel, until
from tests.lab.remains import engine_remains

pytestmark = [pytest.mark.lab, pytest.mark.vllm, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Serving:
    """The engine as it was when it became READY."""

    panel: Panel
    host: Host
    process: dict[str, Any]

    def is_untouched(self) -> None:
        """The very process that was started serves: same row, same pid, the only one on its host, never moved."""
        row = self.panel.wait_deployment("steady", "READY", 120)
        [now] = row["processes"]
        assert (now["id"], now["pid"], now["attempt"]) == (self.process["id"], self.process["pid"], 1)
        assert api_servers(self.host) == [self.process["pid"]]
        launched = [move for move in transitions(self.panel, "steady") if move["reason"] == "LAUNCHED"]
        assert len(launched) == 1


@pytest.fixture(scope="module")
def serving(module_lab, engine, panel) -> Serving:
    lab = module_lab(1)
    [host] = lab.hosts
    panel.add_hosts([host], engine)
    panel.add_model("tiny", engine.model, nodes=[host.name])
    panel.add_layout("single", "single")
    panel.deploy("steady", model="tiny", layout="single", nodes=[host.name], args=SMALL)
    panel.wait_deployment("steady", "READY", START_S)
    return Serving(panel, host, panel.only_process("steady"))


@pytest.mark.parametrize("part", ["web", "worker", "observer", "beat"])
def test_killing_a_part_of_the_panel_costs_no_request_and_starts_nothing_twice(serving, part):
    with Asker(serving.panel, "steady") as asker:
        killed = serving.panel.kill(part)
        serving.panel.wait_for_part(part, instead_of=killed)
        serving.panel.wait_until_ready()
        asker.wait_for_answers()
        serving.is_untouched()
    assert asker.failures == []


def test_restarting_the_whole_panel_costs_no_request_and_starts_nothing_twice(serving):
    with Asker(serving.panel, "steady") as asker:
        serving.panel.restart()
        asker.wait_for_answers()
        heard_again(serving)
        serving.is_untouched()
    assert asker.failures == []


def test_killing_the_whole_panel_at_once_costs_no_request_and_starts_nothing_twice(serving):
    with Asker(serving.panel, "steady") as asker:
        serving.panel.kill("supervisor")
        asker.wait_for_answers()
        serving.panel.start()
        heard_again(serving)
        serving.is_untouched()
    assert asker.failures == []


def heard_again(serving: Serving) -> None:
    """The panel has had news of the node since it is up again."""
    serving.panel.wait(f"/nodes/{serving.host.name}", lambda node: node["heard_age_s"] < 5 and not node["error"])


def test_a_cut_link_makes_it_unknown_and_then_ready_again_without_touching_it(serving):
    serving.host.cut()
    try:
        blind = serving.panel.wait_process("steady", lambda process: process["state"] == "UNKNOWN", 120)
        assert (blind["id"], blind["reason"]) == (serving.process["id"], "NODE_SILENT")
        assert serving.panel.deployment("steady")["state"] == "UNKNOWN"
        assert api_servers(serving.host) == [serving.process["pid"]]
    finally:
        serving.host.heal()
    serving.panel.wait_deployment("steady", "READY", 120)
    serving.is_untouched()
    assert story(serving.panel, serving.process["id"])[-2:] == [("UNKNOWN", "NODE_SILENT"), ("READY", "ADOPTED")]
    with Asker(serving.panel, "steady") as asker:
        asker.wait_for_answers()


def test_without_the_helpers_supervisor_it_serves_on_and_its_log_grows(serving):
    process = serving.process["id"]
    [record] = serving.host.path("/var/lib/pilothouse").glob(f"*/*/p/{process}/supervisor.json")
    supervisor = json.loads(record.read_text())["pid"]
    size = serving.panel.log(process, -1)["size"]
    serving.host.kill(supervisor)
    with Asker(serving.panel, "steady") as asker:
        asker.wait_for_answers()
        until(lambda: serving.panel.log(process, -1)["size"] > size, 60, lambda: "the log does not grow")
        serving.is_untouched()
    assert asker.failures == []
    assert supervisor not in [p.pid for p in serving.host.processes()]


def test_at_last_it_stops_with_proof_though_nobody_supervises_it(serving):
    serving.panel.stop_deployment("steady", 90)
    [over] = serving.panel.api("GET", "/deployments/steady/processes?current=false")
    assert over["stop_evidence"]["proven"] is True
    assert engine_remains(serving.host) == []
