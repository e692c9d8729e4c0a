"""Whose the processes on a GPU are: ours by id, others by user and a short command line, some by neither."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .client import Client, until
from .conftest import kill
from .gpus import Driver, machine, reading, readings

NOBODY = 99999999


@pytest.fixture
def driver(tmp_path: Path, connect: Callable[..., Client]) -> Driver:
    folder = tmp_path / "driver"
    folder.mkdir()
    return Driver(folder, connect)


@pytest.fixture
def stranger() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts processes of nobody we know."""
    started = []

    def start(*argv: str, **options: Any) -> subprocess.Popen:
        started.append(subprocess.Popen(argv, **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def holders(driver: Driver, *pids: int, memory: int | None = 1 << 30) -> None:
    """The GPU is held by these processes."""
    said = machine("h200-busy")
    told = [{"pid": pid, "usedGpuMemory": memory} for pid in pids]
    said["handles"]["0"]["nvmlDeviceGetComputeRunningProcesses()"] = told
    driver.answers(said)


def told(client: Client, pid: int) -> dict[str, Any]:
    """What is said of one holder."""
    found = next(gpu for gpu in readings(client) if pid in [each["pid"] for each in gpu["devices"][0]["processes"]])
    return next(each for each in found["devices"][0]["processes"] if each["pid"] == pid)


def test_members_of_our_processes_are_told_by_their_id(driver: Driver) -> None:
    client = driver.client()
    process, started = client.start(argv=["/bin/sh", "-c", "sleep 600 & wait"])
    members = until(lambda: len(found := client.process(process)["members"]) == 2 and found, "main and its child run")
    holders(driver, *(member["pid"] for member in members))
    assert {told(client, member["pid"])["process"] for member in members} == {process}
    kill(started["pid"])
    child = next(member["pid"] for member in members if member["pid"] != started["pid"])
    assert told(client, child)["process"] == process, "also when main is gone"


def test_strangers_are_told_by_user_and_command(driver: Driver, stranger: Callable[..., subprocess.Popen]) -> None:
    pid = stranger("sleep", "611").pid
    holders(driver, pid)
    assert told(driver.client(), pid) == {
        "pid": pid,
        "memory": 1 << 30,
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "command": "sleep 611",
        "process": None,
    }


def test_the_user_is_the_one_who_runs_it_known_by_name_or_not(
    driver: Driver, stranger: Callable[..., subprocess.Popen]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("OTHER USERS NOT TESTED: needs root to become one")
    nobody = pwd.getpwnam("nobody")
    known = stranger("sleep", "612", user=nobody.pw_uid).pid
    unknown = stranger("sleep", "613", user=64321).pid
    holders(driver, known, unknown)
    client = driver.client()
    assert (told(client, known)["user"], told(client, unknown)["user"]) == ("nobody", "64321")


def test_command_lines_are_short_and_hold_no_control_characters_or_secrets(
    driver: Driver, stranger: Callable[..., subprocess.Popen]
) -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    words = ["\x1b[31mred\x07\nline", "--api-key", "sk-1", "--hf-token=hf_2", "--max-tokens", "7", "x" * 5000]
    pipe = subprocess.PIPE
    process = stranger(sys.executable, "-c", code, *words, stdin=pipe, stdout=pipe)
    process.stdout.readline()
    holders(driver, process.pid)
    command = told(driver.client(), process.pid)["command"]
    assert " [31mred line --api-key *** --hf-token=*** --max-tokens 7 xx" in command
    assert len(command) == 200
    assert command.isprintable()


def test_pids_that_are_not_to_be_seen_have_no_owner(driver: Driver) -> None:
    holders(driver, NOBODY, memory=None)
    nobody = {"pid": NOBODY, "memory": None, "user": None, "command": None, "process": None}
    assert told(driver.client(), NOBODY) == nobody


def test_an_owner_is_not_remembered_beyond_its_process(
    driver: Driver, stranger: Callable[..., subprocess.Popen]
) -> None:
    """Its number may be somebody else's by then."""
    process = stranger("sleep", "614")
    holders(driver, process.pid)
    client = driver.client()
    assert told(client, process.pid)["command"] == "sleep 614"
    process.kill()
    process.wait()
    until(lambda: told(client, process.pid)["command"] is None, "it is forgotten")


def test_the_host_namespaces_numbers_are_not_looked_up_in_a_container(
    driver: Driver, connect: Callable[..., Client]
) -> None:
    """The driver may count by the host's numbers; the same number inside is somebody who has no GPU open."""
    if os.geteuid() != 0:
        pytest.skip("A CONTAINER'S NUMBERS NOT TESTED: needs root to make a pid namespace")
    holders(driver, 1)
    client = driver.client(command=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh"))
    found = told(client, 1)
    assert (found["user"], found["command"]) == (None, None)


def test_graphics_and_compute_of_one_process_count_once(driver: Driver) -> None:
    said = machine("h200-busy")
    gpu = said["handles"]["0"]
    gpu["nvmlDeviceGetGraphicsRunningProcesses()"] = [{"pid": NOBODY, "usedGpuMemory": 5}]
    gpu["nvmlDeviceGetComputeRunningProcesses()"] = [{"pid": NOBODY, "usedGpuMemory": 7}]
    driver.answers(said)
    (device,) = reading(driver.client())["devices"]
    assert [(each["pid"], each["memory"]) for each in device["processes"]] == [(NOBODY, 7)]
