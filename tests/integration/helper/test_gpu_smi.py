"""GPU figures from nvidia-smi, where there is no NVML: its ways to fail, one query at a time, and one that hangs."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from .client import Client, until
from .gpus import GOLDEN, Driver, reading, readings, without_figures

NO_NVML = "class NVMLError(Exception):\n    value = 12\ndef nvmlInit():\n    raise NVMLError('no library')\n"
BUSY = GOLDEN / "h200-busy.xml"
SENTENCE = "Unable to determine the device handle for GPU 0000:BA:00.0: Unknown Error"
PTRACE_SEIZE = 0x4206


@pytest.fixture
def driver(tmp_path: Path, connect: Callable[..., Client]) -> Driver:
    folder = tmp_path / "driver"
    folder.mkdir()
    return Driver(folder, connect)


def watched(driver: Driver) -> Client:
    return driver.client(NO_NVML)


def test_the_figures_come_from_nvidia_smi_and_why_is_said(driver: Driver) -> None:
    driver.tool(f"cat {BUSY}")
    found = reading(watched(driver))
    assert (found["source"], found["message"]) == ("nvidia-smi", "NVML cannot be used: no library.")
    assert (found["devices"][0]["power_w"], found["devices"][0]["memory_used"]) == (694.31, 21619 << 20)


@pytest.mark.parametrize("script", [f"echo '{SENTENCE}'", f"echo '{SENTENCE}' >&2; exit 15"])
def test_a_lost_gpu_is_recognised_by_what_is_said_wherever_and_with_any_code(driver: Driver, script: str) -> None:
    driver.tool(f"cat {GOLDEN / 'two-gpus-out-of-order.xml'}")
    client = watched(driver)
    assert [device["uuid"] for device in reading(client)["devices"]] == ["GPU-aaaa", "GPU-bbbb"]
    driver.tool(script)
    found = reading(client, "GPU_LOST")
    assert found["message"] == SENTENCE
    told = [(device["uuid"], device["index"], device["lost"]) for device in found["devices"]]
    assert told == [("GPU-aaaa", 0, None), ("GPU-bbbb", 1, "Unknown Error")]
    assert all(map(without_figures, found["devices"])), "nothing is known of the other one either"
    driver.tool(f"cat {GOLDEN / 'two-gpus-out-of-order.xml'}")
    assert [device["lost"] for device in reading(client)["devices"]] == [None, None]


def test_a_lost_gpu_beside_figures_costs_only_itself(driver: Driver) -> None:
    driver.tool(f"cat {GOLDEN / 'one-gpu-lost.xml'}")
    found = reading(watched(driver), "GPU_LOST")
    assert [(device["bus_id"], device["lost"]) for device in found["devices"]] == [
        ("00000000:2A:00.0", None),
        ("00000000:18:00.0", "GPU is lost."),
    ]
    assert found["devices"][0]["memory_total"] == 81559 << 20


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            "Driver/library version mismatch",
        ),
        ("exit 9", "ended with code 9 and said nothing"),
        (f"cat {GOLDEN / 'cut-short.xml'}", "its answer cannot be read"),
        ("head -c 3000 /dev/urandom", "nvidia-smi: "),
    ],
)
def test_a_tool_that_fails_is_quoted(driver: Driver, script: str, words: str) -> None:
    driver.tool(script)
    found = reading(watched(driver), "SMI_FAILED")
    assert words in found["message"]
    assert found["message"].endswith("NVML cannot be used: no library.")
    assert found["devices"] == []


def begun(driver: Driver) -> int:
    """How many queries were started."""
    return len((driver.folder / "begun").read_text().splitlines())


def test_queries_are_at_least_two_seconds_apart(driver: Driver) -> None:
    driver.tool(f"echo >> {driver.folder}/begun; cat {BUSY}")
    client, began = watched(driver), time.monotonic()
    list(islice(readings(client), 20))
    assert 2 <= begun(driver) <= 1 + (time.monotonic() - began) / 2


def test_a_tool_that_hangs_is_ended_and_its_last_figures_do_not_stay(driver: Driver) -> None:
    driver.tool(f"cat {BUSY}")
    client = watched(driver)
    reading(client)
    driver.tool(f"echo $$ >> {driver.folder}/begun; exec sleep 600")
    found = reading(client, "DRIVER_BLOCKED")
    assert without_figures(found["devices"][0])
    assert found["devices"][0]["uuid"].startswith("GPU-0000")
    until(lambda: begun(driver) >= 2, "it is tried again")
    pids = [int(line) for line in (driver.folder / "begun").read_text().split()]
    assert not Path(f"/proc/{pids[0]}").exists(), "the first was killed before"
    driver.tool(f"cat {BUSY}")
    assert reading(client)["devices"][0]["power_w"] == 694.31


@contextmanager
def unkillable(pid: int) -> Iterator[None]:
    """Holds a process so that its parent cannot see it end, as one in the driver cannot be ended: by being its tracer
    who does not look."""
    held, release, failed = threading.Event(), threading.Event(), []

    def trace() -> None:
        # Only the thread that traces may let go.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(PTRACE_SEIZE, pid, None, None):
            failed.append(os.strerror(ctypes.get_errno()))
        held.set()
        release.wait()
        if not failed:
            os.waitpid(pid, 0x40000000)  # __WALL

    thread = threading.Thread(target=trace)
    thread.start()
    held.wait()
    try:
        if failed:
            pytest.skip(f"AN UNKILLABLE QUERY IS NOT TESTED: this machine forbids tracing ({failed[0]})")
        yield
    finally:
        release.set()
        thread.join()


def test_no_second_query_is_started_beside_one_that_cannot_be_killed(driver: Driver) -> None:
    driver.tool(f"echo $$ >> {driver.folder}/begun; exec sleep 600")
    client = watched(driver)
    seen = client.events(interval_s=0.2, gpu=True)
    next(seen)
    pid = until(lambda: (driver.folder / "begun").exists() and (driver.folder / "begun").read_text(), "a query began")
    with unkillable(int(pid)):
        hangs = f"An nvidia-smi (pid {int(pid)}) hangs in the driver."
        until(lambda: hangs in (next(seen)["gpu"]["message"] or ""), "it is told")
        # For longer than a query would be waited with.
        assert {report["gpu"]["problem"] for report in islice(seen, 15)} == {"DRIVER_BLOCKED"}
        assert begun(driver) == 1
        driver.tool(f"cat {BUSY}")
    until(lambda: next(seen)["gpu"]["problem"] is None, "it goes on when the first one is gone")
