"""GPU figures from NVML: what is told, what is missing, GPUs that vanish, a driver that hangs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from monitoring.domain.samples import read_sample

from .client import Client, until
from .conftest import interpreters
from .gpus import GOLDEN, Driver, machine, reading, readings, without_figures

LOST = "NVMLError_GpuIsLost: GPU is lost"


@pytest.fixture
def driver(tmp_path: Path, connect: Callable[..., Client]) -> Driver:
    folder = tmp_path / "driver"
    folder.mkdir()
    return Driver(folder, connect)


@pytest.mark.parametrize("name", sorted(path.stem for path in (GOLDEN / "nvml").glob("*.json")))
def test_what_nvml_says_is_told_as_written_down(driver: Driver, name: str) -> None:
    driver.answers(machine(name))
    client = driver.client()
    found = next(readings(client))
    assert found["source"] == "nvml"
    for device in found["devices"]:
        for holder in device["processes"] or ():
            del holder["user"], holder["command"]  # this machine's process of the same number
    expected = json.loads((GOLDEN / "samples" / "nvml" / f"{name}.json").read_text())
    told = [{key: value for key, value in device.items() if value is not None} for device in found["devices"]]
    assert [{**device, **expected["machine"].get(device["uuid"], {})} for device in told] == expected["devices"]
    assert (found["problem"], found["message"]) == (expected["problem"], expected["message"])


def test_a_report_with_gpus_has_the_shape_that_the_panel_reads(driver: Driver) -> None:
    driver.answers(machine("mig"))
    events = driver.client().events(interval_s=0.2, gpu=True)
    sample = next(sample for sample in map(read_sample, events) if sample.gpu.at is not None)
    assert [device.parent for device in sample.gpu.devices] == [None, "GPU-cccc", "GPU-cccc"]
    assert sample.gpu.at <= sample.at


def test_unified_memory_is_the_hosts_and_used_by_processes(driver: Driver) -> None:
    driver.answers(machine("unified-memory"))
    (device,) = reading(driver.client())["devices"]
    total = int(Path("/proc/meminfo").read_text().split()[1])
    assert (device["unified"], device["memory_total"]) == (True, total * 1024)
    assert device["memory_used"] == 42011 << 20


def test_a_gpu_that_is_lost_keeps_its_place_and_the_others_go_on(driver: Driver) -> None:
    driver.answers(machine("three"))
    client = driver.client()
    before = [(device["uuid"], device["index"]) for device in reading(client)["devices"]]
    assert before == [("GPU-1", 0), ("GPU-2", 1), ("GPU-3", 2)]
    lost = machine("three")
    lost["handles"]["2"]["nvmlDeviceGetUtilizationRates()"] = LOST
    driver.answers(lost)
    found = reading(client, "GPU_LOST")
    assert [(device["uuid"], device["index"]) for device in found["devices"]] == before
    assert [device["lost"] for device in found["devices"]] == [None, "GPU is lost.", None]
    assert [device["utilization"] for device in found["devices"]] == [100, None, 100]
    assert without_figures(found["devices"][1])
    assert found["devices"][1]["memory_total"] == found["devices"][0]["memory_total"]
    assert found["message"] == "GPU at 00000000:5D:00.0 cannot be read: GPU is lost."
    driver.answers(machine("three"))
    assert [device["utilization"] for device in reading(client)["devices"]] == [100, 100, 100]


def test_a_gpu_that_gives_no_handle_any_more_is_lost_whatever_the_reason(driver: Driver) -> None:
    driver.answers(machine("three"))
    client = driver.client()
    reading(client)
    gone = machine("three")
    gone["handles"]["0"]["nvmlDeviceGetPowerUsage()"] = LOST
    gone["calls"]["nvmlDeviceGetHandleByIndex(0)"] = "NVMLError_Unknown: Unknown Error"
    driver.answers(gone)
    found = next(gpu for gpu in readings(client) if gpu["devices"][2]["lost"] == "Unknown Error.")
    assert [device["uuid"] for device in found["devices"]] == ["GPU-1", "GPU-2", "GPU-3"]


def test_a_gpu_that_the_driver_no_longer_lists_is_missed(driver: Driver) -> None:
    driver.answers(machine("three"))
    client = driver.client()
    reading(client)
    fewer = machine("three")
    fewer["calls"]["nvmlDeviceGetCount()"] = 2
    fewer["handles"]["0"]["nvmlDeviceGetPowerUsage()"] = LOST
    driver.answers(fewer)
    found = next(gpu for gpu in readings(client) if gpu["devices"][1]["lost"])
    assert found["devices"][1]["lost"] == "The driver does not list it any more."
    assert (found["devices"][1]["uuid"], found["devices"][0]["utilization"]) == ("GPU-2", 100)


def test_a_driver_that_hangs_is_told_without_figures_and_recovers_by_itself(driver: Driver, tmp_path: Path) -> None:
    driver.answers(machine("h200-busy"))
    client = driver.client()
    good = reading(client)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    hangs = machine("h200-busy")
    hangs["handles"]["0"]["nvmlDeviceGetPowerUsage()"] = {"blocks": str(pipe), "answer": 691899}
    driver.answers(hangs)
    found = reading(client, "DRIVER_BLOCKED")
    (device,) = found["devices"]
    assert without_figures(device)
    assert [device[name] for name in ("uuid", "index", "memory_total")] == [
        good["devices"][0][name] for name in ("uuid", "index", "memory_total")
    ]
    assert "has not answered for" in found["message"]
    assert client.call("report")["at"] > found["at"], "reports go on"
    driver.answers(machine("h200-busy"))
    pipe.write_text("")
    assert reading(client)["devices"][0]["power_w"] == pytest.approx(691.899)


def test_a_driver_that_was_replaced_while_in_use_is_opened_again(driver: Driver) -> None:
    driver.answers(machine("h200-busy"))
    client = driver.client()
    reading(client)
    replaced = machine("h200-busy")
    replaced["handles"]["0"]["nvmlDeviceGetPowerUsage()"] = "NVMLError_LibRmVersionMismatch: RM has another version"
    driver.answers(replaced)
    found = reading(client, "SMI_FAILED")
    assert "NVML cannot be used: RM has another version." in found["message"]
    assert "No devices were found" in found["message"]
    assert all(map(without_figures, found["devices"]))


def test_a_new_reading_is_taken_for_each_report(driver: Driver) -> None:
    driver.answers(machine("h200-busy"))
    seen = readings(driver.client())
    times = [next(seen)["at"] for _ in range(6)]
    assert times == sorted(times)
    assert sum(later > earlier for earlier, later in pairwise(times)) >= 3


def test_reports_carry_gpus_only_when_asked(driver: Driver) -> None:
    driver.answers(machine("h200-busy"))
    client = driver.client()
    assert client.call("report").get("gpu") is None
    assert client.call("report", gpu=True)["gpu"]["source"] == "nvml"


def test_a_machine_without_a_driver_has_no_gpus_and_no_thread_for_them(client: Client) -> None:
    if client.hello["wants"]:
        pytest.skip("NOT TESTED HERE: this machine has an NVIDIA driver")
    assert client.call("provide", modules={"pynvml": "raise SystemExit"}) == {"kept": []}
    threads = Path(f"/proc/{client.hello['pid']}/task")
    report = client.call("report")
    before = until(lambda: len(list(threads.iterdir())) == 2 and 2, "only the reader and its guard are left")
    assert (report.get("gpu"), client.call("report", gpu=True)["gpu"]) == (None, None)
    until(lambda: len(list(threads.iterdir())) == before, "the thread of the request is gone and there is no other")


@pytest.mark.parametrize("version", [name for name in interpreters() if tuple(map(int, name.split("."))) >= (3, 8)])
def test_the_real_pynvml_runs_from_memory(driver: Driver, version: str) -> None:
    spec = find_spec("pynvml")
    assert spec, "nvidia-ml-py is one of the panel's own dependencies"
    driver.tool(f"cat {GOLDEN / 'h200-busy.xml'}")
    client = driver.client(spec.loader.get_source("pynvml"), interpreter=interpreters()[version])
    found = reading(client)
    if found["source"] == "nvml":
        pytest.skip("FALLBACK NOT TESTED: this machine has an NVML")
    assert found["message"] == "NVML cannot be used: NVML Shared Library Not Found."
    assert (found["source"], found["devices"][0]["power_w"]) == ("nvidia-smi", 694.31)


@pytest.mark.parametrize(
    ("pynvml", "words"),
    [
        (None, "The panel has no pynvml to send"),
        ("def f(:", "pynvml cannot be run here: SyntaxError"),
        ("raise OSError('no ctypes')", "pynvml cannot be run here: OSError: no ctypes"),
    ],
)
def test_a_pynvml_that_cannot_be_run_is_told(driver: Driver, pynvml: str | None, words: str) -> None:
    client = driver.client(pynvml)
    (driver.folder / "nvidia-smi").unlink()
    found = reading(client, "NVML_FAILED")
    assert words in found["message"]
    assert found["devices"] == []
