"""A stop is proven, whatever the engine does to get away; strangers are never touched."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .client import Client, running, until
from .conftest import Engines, kill

Connect = Callable[..., Client]


def supervisor(client: Client, process: str) -> int:
    return json.loads((client.folder(process) / "supervisor.json").read_text())["pid"]


def recorded(client: Client, process: str) -> set[int]:
    return {pid for pid, _ in json.loads((client.folder(process) / "members.json").read_text() or "[]")}


def test_an_engine_that_stops_when_asked_is_not_killed(client: Client, engines: Engines) -> None:
    process = engines.start()
    proof = client.stop(process)
    assert proof["proven"]
    assert [sent["signal"] for sent in proof["signals"]] == ["TERM"]
    assert proof["left"] == {"members": [], "ports": [], "accelerators": []}
    assert (proof["exit"]["code"], proof["exit"]["signal"]) == (0, None)


def test_a_second_stop_proves_it_again(client: Client, engines: Engines) -> None:
    process = engines.start()
    assert client.stop(process)["proven"]
    again = client.stop(process)
    assert again["proven"]
    assert again["known"]
    assert again["members"] == []


def test_a_swallowed_signal_is_followed_by_kill(client: Client, engines: Engines) -> None:
    process = engines.start("swallow_term")
    pids = list(engines.members(process).values())
    proof = client.stop(process, grace_s=0.3)
    assert proof["proven"]
    assert [sent["signal"] for sent in proof["signals"]] == ["TERM", "KILL"]
    assert proof["exit"]["signal"] == signal.SIGKILL
    assert not any(running(pid) for pid in pids)


def test_another_signal_can_be_asked_for(client: Client) -> None:
    script = "trap 'exit 3' INT; echo up; while :; do sleep 0.05; done"
    process, _ = client.start(argv=["/bin/sh", "-c", script])
    until(lambda: "up" in client.log(process), "it came up")
    assert client.stop(process, signal="INT")["exit"]["code"] == 3


def test_orphans_of_a_killed_main_are_found_and_stopped(client: Client, engines: Engines) -> None:
    process = engines.start()
    members = engines.members(process)
    kill(client.process(process)["pid"])
    report = until(lambda: (r := client.process(process))["exit"] and r, "the end of main was recorded")
    assert report["exit"]["signal"] == signal.SIGKILL
    assert {member["pid"] for member in report["members"]} == set(members.values()) - {report["pid"]}
    assert report["supervised"]
    proof = client.stop(process)
    assert proof["proven"]
    assert len(proof["members"]) == 2


def test_a_worker_that_detaches_and_wipes_its_environment_is_found(client: Client, engines: Engines) -> None:
    process = engines.start("detach_worker,wipe_environ")
    escaped = until(lambda: engines.members(process).get("VLLM::Detached"), "the escaped worker was found")
    assert b"PILOTHOUSE" not in Path(f"/proc/{escaped}/environ").read_bytes()
    assert os.getsid(escaped) != client.process(process)["pid"]
    proof = client.stop(process, grace_s=0.3)
    assert proof["proven"]
    assert not running(escaped)


def test_an_escaped_worker_is_found_when_main_and_supervisor_are_dead(client: Client, engines: Engines) -> None:
    process = engines.start("detach_worker,wipe_environ")
    members = engines.members(process)
    until(lambda: set(members.values()) <= recorded(client, process), "all members were recorded")
    kill(supervisor(client, process))
    kill(client.process(process)["pid"])
    report = client.process(process)
    assert not report["alive"]
    assert not report["supervised"]
    assert {member["pid"] for member in report["members"]} == set(members.values()) - {report["pid"]}
    assert client.stop(process)["proven"]
    assert not any(running(pid) for pid in members.values())


def test_an_empty_environment_in_a_new_session_is_found_by_descent(client: Client) -> None:
    script = "setsid env -i setsid /bin/sh -c 'sleep 600 & wait' & echo up; sleep 600"
    process, started = client.start(argv=["/bin/sh", "-c", script])
    until(lambda: len(client.process(process)["members"]) == 4, "the descendants were found")
    kill(started["pid"])
    proof = client.stop(process)
    assert proof["proven"]
    assert "sleep" in {member["name"] for member in proof["members"]}


def test_an_engine_outlives_its_supervisor_and_can_still_be_stopped(client: Client, engines: Engines) -> None:
    process = engines.start()
    kill(supervisor(client, process))
    report = client.process(process)
    assert report["alive"]
    assert not report["supervised"]
    before = report["log"]["size"]
    until(lambda: client.process(process)["log"]["size"] > before, "the engine goes on logging")
    proof = client.stop(process)
    assert proof["proven"]
    assert proof["exit"] is None


def test_another_process_of_the_same_name_is_not_touched(client: Client, engines: Engines) -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    process, _ = client.start(argv=["sleep", "600"])
    assert client.stop(process)["proven"]
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_another_installations_process_is_not_touched(connect: Connect) -> None:
    ours, theirs = connect(installation="one"), connect(installation="two")
    _, other = theirs.start("p1", argv=["sleep", "600"])
    ours.start("p1", argv=["sleep", "600"])
    assert ours.stop("p1")["proven"]
    assert running(other["pid"])
    assert ours.call("report")["strays"] == []


def test_a_number_that_passed_to_a_stranger_is_not_ours(client: Client) -> None:
    process, _ = client.start(argv=["true"])
    until(lambda: client.process(process)["exit"], "it ended")
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    file = client.folder(process) / "pid.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pid": stranger.pid}))
    proof = client.stop(process, grace_s=0.2)
    assert proof["members"] == []
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_port_that_passed_to_a_stranger_does_not_hinder_the_proof(client: Client, engines: Engines) -> None:
    process = engines.start()
    assert client.stop(process)["proven"]
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", engines.port))
        sock.listen()
        assert client.stop(process)["proven"]


def test_what_was_started_before_a_reboot_is_gone(client: Client) -> None:
    process, started = client.start(argv=["sleep", "600"])
    file = client.folder(process) / "pid.json"
    kept = file.read_text()
    file.write_text(json.dumps({**json.loads(kept), "boot_id": "of-another-boot"}))
    assert client.process(process)["members"] == []
    assert client.stop(process)["proven"]
    assert running(started["pid"])
    file.write_text(kept)


def test_a_marked_process_without_a_folder_is_a_stray(client: Client, engines: Engines) -> None:
    env = {**os.environ, "PILOTHOUSE_INSTALLATION": "one", "PILOTHOUSE_PROCESS": "lost"}
    lost = subprocess.Popen(["sleep", "600"], env=env)
    stray = until(lambda: client.call("report")["strays"], "the stray was seen")[0]
    assert (stray["process"], stray["pid"], stray["name"]) == ("lost", lost.pid, "sleep")
    lost.kill()
    lost.wait()


FAKE_SMI = """#!/bin/sh
case "$*" in
*query-gpu*) echo "GPU-1, $(cat {folder}/used)";;
*compute-apps*) cat {folder}/apps;;
esac
"""


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    """A folder with an nvidia-smi that says what the files `used` and `apps` say."""
    (tmp_path / "nvidia-smi").write_text(FAKE_SMI.format(folder=tmp_path))
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "used").write_text("615")
    (tmp_path / "apps").write_text("")
    return tmp_path


def test_memory_that_does_not_come_back_is_no_proof(connect: Connect, gpu: Path) -> None:
    client = connect(env={"PATH": f"{gpu}:{os.environ['PATH']}"})
    process, started = client.start(argv=["sleep", "600"], accelerators=["GPU-1"])
    (gpu / "used").write_text("73292")
    (gpu / "apps").write_text(f"GPU-1, {started['pid']}, 72000")
    proof = client.stop(process, kill_s=0.5)
    assert not proof["proven"]
    assert proof["left"]["accelerators"] == ["GPU-1"]
    (gpu / "apps").write_text("")
    assert not client.stop(process, kill_s=0.5)["proven"], "memory that no process explains is still not back"
    (gpu / "used").write_text("660")
    assert client.stop(process)["proven"]


def test_an_nvidia_smi_that_no_longer_answers_is_no_proof(connect: Connect, gpu: Path) -> None:
    client = connect(env={"PATH": f"{gpu}:{os.environ['PATH']}"})
    process, _ = client.start(argv=["sleep", "600"], accelerators=["GPU-1"])
    (gpu / "nvidia-smi").write_text("#!/bin/sh\necho no devices were found; exit 6\n")
    proof = client.stop(process, kill_s=0.5)
    assert not proof["proven"]
    assert proof["left"] == {"members": [], "ports": [], "accelerators": ["GPU-1"]}


def test_memory_that_somebody_else_uses_now_is_not_waited_for(connect: Connect, gpu: Path) -> None:
    client = connect(env={"PATH": f"{gpu}:{os.environ['PATH']}"})
    process, _ = client.start(argv=["sleep", "600"], accelerators=["GPU-1"])
    (gpu / "used").write_text("50000")
    (gpu / "apps").write_text("GPU-1, 1, 49300")
    assert client.stop(process)["proven"]
