"""From nothing to a real vLLM that answers, over real SSH, through the API alone; then to nothing again."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.lab.host import Host
from tests.lab.panel import Panel
from tests.lab.remains import engine_remains

pytestmark = [pytest.mark.lab, pytest.mark.vllm, pytest.mark.timeout(600)]
SMALL = ["--max-model-len", "512", "--kv-cache-memory-bytes", "64M"]
START_S = 300.0
ONE_WORKER, TWO_WORKERS = {"VLLM::Worker"}, {"VLLM::Worker_TP0", "VLLM::Worker_TP1"}


def ask(panel: Panel, deployment: str) -> dict:
    """A completion by the command line that the API shows, run by a shell with the key in its environment."""
    [endpoint] = panel.deployment(deployment)["endpoints"]
    environment = {**os.environ, "API_KEY": panel.api_key(deployment)}
    done = subprocess.run(
        ["/bin/sh", "-c", endpoint["curl"]], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def follow(panel: Panel, process: str, until: str) -> str:
    """The log from its start to the first piece with `until` in it: each piece begins where the last one ended."""
    text, offset = "", 0
    while until not in text:
        piece = panel.log(process, offset, wait_s=10.0)
        assert piece["offset"] == offset
        assert piece["data"], f"no {until!r} after {text[-2000:]}"
        text, offset = text + piece["data"], piece["next_offset"]
    return text


def phases(panel: Panel, deployment: str) -> list[str]:
    """The phases that the start went through, noted until it is READY."""
    seen: list[str] = []

    def note(row: dict) -> bool:
        for process in row["processes"]:
            if process["phase"] and process["phase"] not in seen:
                seen.append(process["phase"])
        assert row["state"] != "FAILED", row
        return row["state"] == "READY"

    panel.wait(f"/deployments/{deployment}", note, START_S)
    return seen


def test_a_single_and_a_tensor_parallel_engine_serve_on_two_machines_and_leave_nothing(lab_hosts, engine, panel):
    one, two = hosts = lab_hosts(2).hosts
    panel.add_hosts(hosts, engine)
    model = panel.add_model("tiny", engine.model, nodes=[host.name for host in hosts])
    assert {copy["node"]: copy["present"] for copy in model["copies"]} == {one.name: True, two.name: True}
    panel.add_layout("single", "single")
    panel.add_layout("tp2", "tensor", tensor_parallel_size=2)
    for name, layout, host in (("alone", "single", one), ("split", "tp2", two)):
        wish = {"model": "tiny", "layout": layout, "nodes": [host.name], "args": SMALL}
        preview = panel.api("POST", "/deployments/preview", {"name": name, **wish})
        assert preview["ok"], preview
        panel.deploy(name, **wish)
        [process] = panel.deployment(name)["processes"] or preview["processes"]
        assert process["node"] == host.name
    seen = phases(panel, "alone")
    panel.wait_deployment("split", "READY", START_S)
    # A tiny model is loaded between two looks; what is seen of the start is seen in its order.
    assert set(seen) & {"configuring", "rendezvous", "loading"}, seen
    assert seen[-1] == "ready", seen

    for name, host, workers in (("alone", one, ONE_WORKER), ("split", two, TWO_WORKERS)):
        assert ask(panel, name)["usage"]["completion_tokens"] > 0
        process = panel.only_process(name)
        assert runs(host, process["pid"], workers)
        log = follow(panel, process["id"], "Application startup complete")
        assert "Resolved architecture: Qwen2ForCausalLM" in log
        weights = log.encode().index(b"Loading weights took")
        assert panel.log(process["id"], weights)["data"].startswith("Loading weights took")

    for name in ("alone", "split"):
        stopped = panel.stop_deployment(name)
        assert stopped["endpoints"] == []
    assert engine_remains(one) == engine_remains(two) == []


def runs(host: Host, pid: int, workers: set[str]) -> bool:
    """Whether the host's own ps shows the engine: its main process under this pid, and these workers."""
    processes = host.processes()
    return any(p.pid == pid and "vllm serve" in p.command for p in processes) and workers <= {
        p.command for p in processes
    }
