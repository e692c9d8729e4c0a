"""GPU figures of the node helper on a real NVIDIA GPU, beside what nvidia-smi says itself.

`python3 -m pytest --noconftest -p no:django -o addopts= tests/gpu`, as the other tests here. Those of NVML need
`nvidia-ml-py`, which may lie in any folder of PYTHONPATH.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.test_real_gpu import HOLDER, hold, smi
from tests.integration.helper.client import Client, until

pytestmark = pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs an NVIDIA GPU: no nvidia-smi here")

MIB = 1 << 20
HELD_MIB = 4 * 1024
NUMBERS = (
    "utilization.gpu,utilization.memory,memory.total,memory.used,memory.reserved,power.draw,enforced.power.limit,"
    "temperature.gpu,temperature.memory,clocks.sm,clocks.max.sm,clocks.mem"
)
NAMES = (
    "utilization", "memory_utilization", "memory_total", "memory_used", "memory_reserved", "power_w", "power_limit_w",
    "temperature_c", "memory_temperature_c", "sm_clock_mhz", "sm_clock_max_mhz", "memory_clock_mhz",
)  # fmt: skip
# What moves between one look and the next, and by how much on a GPU that does nothing.
MAY_DIFFER = {"power_w": 15, "temperature_c": 3, "memory_temperature_c": 3, "sm_clock_mhz": 2000}


@pytest.fixture(params=["nvml", "nvidia-smi"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    found = Client(tmp_path)
    assert found.hello["wants"] == ["pynvml"]
    if request.param == "nvml":
        spec = find_spec("pynvml")
        if spec is None:
            pytest.skip("NVML NOT TESTED: the package nvidia-ml-py is missing in this Python")
        found.call("provide", modules={"pynvml": spec.loader.get_source("pynvml")})
    found.source = request.param
    yield found
    found.close()


def readings(client: Client) -> Iterator[dict[str, Any]]:
    """The GPU part of each report once there is one."""
    for report in client.events(interval_s=0.5, gpu=True):
        gpu = report["gpu"]
        if gpu["at"] is not None:
            assert (gpu["source"], gpu["problem"]) == (client.source, None), gpu
            yield gpu


def figures() -> list[dict[str, float | None]]:
    """nvidia-smi's own, in its order."""
    found = []
    for row in smi(f"--query-gpu={NUMBERS}"):
        values = [float(text) if text.replace(".", "").isdigit() else None for text in row]
        scaled = [value * MIB if value and name.startswith("memory_") and name[7:] in ("total", "used", "reserved")
                  else value for name, value in zip(NAMES, values, strict=True)]  # fmt: skip
        found.append(dict(zip(NAMES, scaled, strict=True)))
    return found


def test_the_figures_are_those_of_nvidia_smi(client: Client) -> None:
    for device, said in zip(next(readings(client))["devices"], figures(), strict=True):
        for name, value in said.items():
            assert (device[name] is None) == (value is None), name
            if value is not None:
                slack = MIB if name.startswith("memory_") and value > MIB else MAY_DIFFER.get(name, 1)
                assert device[name] == pytest.approx(value, abs=slack), name


def test_identity_is_uuid_and_place_on_the_bus(client: Client) -> None:
    found = [(d["uuid"], str(d["index"]), d["name"], d["bus_id"]) for d in next(readings(client))["devices"]]
    assert found == [tuple(row) for row in smi("--query-gpu=uuid,index,name,pci.bus_id")]


def test_a_process_of_ours_and_a_strangers_are_told_apart(client: Client) -> None:
    stranger = subprocess.Popen([sys.executable, HOLDER, str(HELD_MIB)], stdout=subprocess.PIPE, text=True)
    try:
        assert "holding" in stranger.stdout.readline()
        uuid = next(readings(client))["devices"][0]["uuid"]
        process = hold(client, uuid)
        told = until(lambda: both(next(readings(client))["devices"][0]), "both hold memory")
        ours, other = sorted(told, key=lambda holder: holder["process"] is None)
        assert ours["process"] == process
        assert other["process"] is None
        assert other["user"] == pwd.getpwuid(os.getuid()).pw_name
        assert "gpu_holder.py --worker" in other["command"]
        assert other["memory"] >= HELD_MIB * MIB
        assert client.stop(process)["proven"]
    finally:
        stranger.terminate()
        stranger.wait(30)


def both(device: dict[str, Any]) -> list[dict[str, Any]] | None:
    return device["processes"] if len(device["processes"]) == 2 else None
