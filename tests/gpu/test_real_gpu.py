"""The node helper on a machine with a real NVIDIA GPU: facts, and stops whose proof includes the memory.

Not part of CI's stages, whose machines have no GPU. It needs nothing but this checkout and a Python with torch:
`python3 -m pytest --noconftest -p no:django -o addopts= tests/gpu`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.domain.facts import accelerators_of, gpu_facts
from tests.integration.helper.client import Client, until

pytestmark = pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs an NVIDIA GPU: no nvidia-smi here")

HOLDER = str(Path(__file__).parents[1] / "fakes" / "gpu_holder.py")
MIB = 20 * 1024


def smi(what: str) -> list[list[str]]:
    command = ["nvidia-smi", *what.split(), "--format=csv,noheader,nounits"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    return [line.split(", ") for line in out.splitlines()]


def used_mib() -> int:
    return int(smi("--query-gpu=memory.used")[0][0])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    found = Client(tmp_path)
    yield found
    found.close()


@pytest.fixture
def gpu(client: Client) -> str:
    return accelerators_of(client.call("probe"))[0].uuid


def hold(client: Client, gpu: str) -> str:
    env = {key: value for key, value in os.environ.items() if key.startswith(("LD_", "PATH", "CUDA"))}
    process, _ = client.start(argv=[sys.executable, HOLDER, str(MIB)], env=env, accelerators=[gpu])
    until(lambda: "holding" in client.log(process), "the worker holds its memory")
    return process


def test_facts_are_those_that_nvidia_smi_says_itself(client: Client) -> None:
    raw = client.call("probe")
    slots = accelerators_of(raw)
    rows = smi("--query-gpu=uuid,index,name,memory.total,compute_cap,driver_version")
    said = [(s.uuid, str(s.index), s.name, str(s.memory_mib), s.compute_capability) for s in slots]
    assert said == [tuple(row[:5]) for row in rows]
    assert gpu_facts(raw["nvidia_smi"])["driver"] == rows[0][5]


def test_a_stop_proves_that_the_memory_is_back(client: Client, gpu: str) -> None:
    before = used_mib()
    process = hold(client, gpu)
    assert used_mib() >= before + MIB
    proof = client.stop(process)
    assert proof["proven"], proof
    assert proof["left"]["accelerators"] == []
    assert used_mib() <= before + 64


def test_a_killed_main_leaves_its_worker_on_the_gpu_until_the_stop(client: Client, gpu: str) -> None:
    before = used_mib()
    process = hold(client, gpu)
    os.kill(client.process(process)["pid"], signal.SIGKILL)
    until(lambda: not client.process(process)["alive"], "main is seen to be gone")
    entry = client.process(process)
    assert entry["members"], "the orphan is seen"
    assert entry["exit"]["signal"] == 9
    assert used_mib() >= before + MIB, "and still holds its memory"
    proof = client.stop(process)
    assert proof["proven"], proof
    assert used_mib() <= before + 64


def test_a_strangers_memory_on_the_same_gpu_does_not_spoil_the_proof(client: Client, gpu: str) -> None:
    process = hold(client, gpu)
    stranger = subprocess.Popen([sys.executable, HOLDER, "1024"], stdout=subprocess.PIPE, text=True)
    try:
        assert "holding" in stranger.stdout.readline()
        proof = client.stop(process)
        assert proof["proven"], proof
        assert used_mib() >= 1024
        assert stranger.poll() is None, "and it lives on"
    finally:
        stranger.terminate()
        stranger.wait(30)
