"""Real engines that are killed, or that do not obey: nothing of them stays, and what is wished runs again."""

from __future__ import annotations

import pytest

from tests.acceptance.serving import SMALL, START_S, named, story, transitions
from tests.lab.host import Host
from tests.lab.panel import Panel, until
from tests.lab.remains import engine_remains

pytestmark = [pytest.mark.lab, pytest.mark.vllm, pytest.mark.timeout(900)]
# An environment of its own around the real one, which lets setproctitle overwrite the engine's environment.
FORGETFUL = '#!/bin/sh\nunset SPT_NOENV\nexec {vllm} "$@"\n'


@pytest.fixture(scope="module")
def host(module_lab, engine, panel) -> Host:
    [host] = module_lab(1).hosts
    panel.add_hosts([host], forgetful(host, engine))
    panel.add_model("tiny", engine.model, nodes=[host.name])
    panel.add_layout("single", "single")
    return host


def forgetful(host: Host, engine) -> str:
    folder = host.path("/home/forgetful")
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").symlink_to(engine.root / "lib")
    program = folder / "bin/vllm"
    program.write_text(FORGETFUL.format(vllm=engine.vllm))
    program.chmod(0o755)
    return "/home/forgetful"


def deploy(panel: Panel, host: Host, name: str) -> None:
    panel.deploy(name, model="tiny", layout="single", nodes=[host.name], args=SMALL, stop_grace=5)


def marker_of(host: Host, pid: int) -> str:
    """What is left of our marker in a process's environment."""
    words = host.exec(["cat", f"/proc/{pid}/environ"]).stdout.split("\0")
    return "".join(word for word in words if word.startswith("PILOTHOUSE_PROCESS="))


def test_orphans_of_a_killed_engine_are_found_and_stopped_and_it_runs_again(panel: Panel, host: Host):
    deploy(panel, host, "mortal")
    panel.wait_deployment("mortal", "READY", START_S)
    first = panel.only_process("mortal")
    orphans = [p.pid for p in named(host, "VLLM::")]
    assert len(orphans) >= 2
    assert [marker_of(host, pid) for pid in orphans] == [""] * len(orphans), "the environment is not wiped"

    host.kill(first["pid"])
    second = panel.wait_process("mortal", lambda process: process["id"] != first["id"], 120)
    assert second["attempt"] == 2
    dead = panel.api("GET", f"/processes/{first['id']}")
    assert [step for step, _ in story(panel, first["id"])[-3:]] == ["READY", "STOPPING", "FAILED"]
    assert dead["reason"] == "EXITED"
    assert "signal 9" in dead["note"]
    assert dead["stop_evidence"]["proven"] is True
    assert set(orphans) <= signalled(dead)
    assert not set(orphans) & {p.pid for p in host.processes()}
    assert dead["black_box"]["exit"]["signal"] == 9
    assert "Application startup complete" in panel.log(first["id"])["data"]
    states = [row["new"] for row in transitions(panel, "mortal", "replica")]
    assert states[states.index("STOPPING") :][:3] == ["STOPPING", "BACKOFF", "PENDING"]

    panel.wait_deployment("mortal", "READY", START_S)
    panel.stop_deployment("mortal")
    assert engine_remains(host) == []


def signalled(process: dict) -> set[int]:
    """Every pid that the stop of a process sent a signal to."""
    return {pid for signal in process["stop_evidence"]["signals"] for pid in signal["to"]}


def test_an_engine_that_swallows_term_while_it_starts_is_stopped_with_proof(panel: Panel, host: Host):
    deploy(panel, host, "deaf")
    until(lambda: named(host, "VLLM::EngineCore"), START_S, lambda: "no EngineCore comes up")
    process = panel.only_process("deaf")
    assert process["state"] == "STARTING"
    panel.stop_deployment("deaf")
    stopped = panel.api("GET", f"/processes/{process['id']}")
    assert stopped["state"] == "STOPPED"
    assert stopped["stop_evidence"]["proven"] is True
    sent = [signal["signal"] for signal in stopped["stop_evidence"]["signals"]]
    assert (sent[0], sent[-1]) == ("TERM", "KILL"), "the engine obeyed, so this was no test"
    assert engine_remains(host) == []


def test_an_engines_own_words_say_why_an_option_is_wrong_and_it_is_not_tried_again(panel: Panel, host: Host):
    wish = {"model": "tiny", "layout": "single", "nodes": [host.name]}
    panel.deploy("typo", **wish, args=["--no-such-flag", "1"])
    failed = panel.wait("/deployments/typo", lambda row: row["state"] == "FAILED", START_S)
    [process] = failed["processes"]
    assert process["reason"] == "UNKNOWN_FLAG"
    assert "unrecognized arguments: --no-such-flag" in process["note"]
    assert process["attempt"] == 1
    assert [replica["reason"] for replica in failed["live_replicas"]] == ["UNKNOWN_FLAG"]
    panel.stop_deployment("typo")
    assert engine_remains(host) == []
