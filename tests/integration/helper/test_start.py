"""A start happens exactly once, too late ones are refused, and what cannot start says why."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .client import Client, Refused, running, until
from .conftest import Engines

Connect = Callable[..., Client]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes namespaces and mounts")


def counting(tmp_path: Path) -> list[str]:
    """An argv that leaves one line for each time it is run, and stays."""
    return ["/bin/sh", "-c", 'echo run >> "$0"; exec sleep 600', str(tmp_path / "runs")]


def runs(tmp_path: Path) -> int:
    file = tmp_path / "runs"
    until(lambda: file.exists() and file.read_text(), "the program ran")
    return len(file.read_text().splitlines())


def test_a_repeated_start_does_nothing(client: Client, tmp_path: Path) -> None:
    process, first = client.start(argv=counting(tmp_path))
    _, again = client.start(process, argv=counting(tmp_path))
    assert (first["already"], again["already"]) == (False, True)
    assert first["pid"] == again["pid"]
    assert runs(tmp_path) == 1


def test_a_start_of_an_ended_process_does_not_revive_it(client: Client, tmp_path: Path) -> None:
    process, _ = client.start(argv=["/bin/sh", "-c", "exit 7"])
    until(lambda: client.process(process)["exit"], "it ended")
    assert client.start(process, argv=counting(tmp_path))[1]["already"]
    assert client.process(process)["exit"]["code"] == 7


def test_many_starts_at_once_run_one_program(connect: Connect, tmp_path: Path) -> None:
    clients = [connect(), connect()]
    request = {"process": "p1", "replica": "r", "attempt": 1, "role": "engine", "argv": counting(tmp_path)}
    calls = [(client, client.send("start", **request)) for client in clients for _ in range(4)]
    replies = [client.next(number)["result"] for client, number in calls]
    assert [reply["already"] for reply in replies].count(False) == 1
    assert len({reply["pid"] for reply in replies}) == 1
    assert runs(tmp_path) == 1


def test_a_half_made_folder_is_started_by_the_next_try(client: Client, tmp_path: Path) -> None:
    client.folder("p1").mkdir(mode=0o700)
    (client.folder("p1") / "request.json").write_text('{"process": "p1", "argv": ["half')
    assert client.call("report")["processes"] == {}
    assert not client.start("p1", argv=counting(tmp_path))[1]["already"]
    assert runs(tmp_path) == 1


@pytest.mark.parametrize("delay_ms", [0, 10, 20, 40, 80])
def test_a_helper_killed_during_a_start_leaves_nothing_started_twice(
    connect: Connect, tmp_path: Path, delay_ms: int
) -> None:
    client = connect()
    request = {"process": "p1", "replica": "r", "attempt": 1, "role": "engine", "argv": counting(tmp_path)}
    client.send("start", **request)
    time.sleep(delay_ms / 1000)  # Not a wait: the point in time at which the crash hits.
    os.kill(client.hello["pid"], signal.SIGKILL)
    after = connect()
    after.call("start", **request)
    assert runs(tmp_path) == 1
    assert after.process("p1")["alive"]
    assert after.stop("p1")["proven"]


def test_a_stop_of_an_unknown_process_fences_a_later_start(client: Client, tmp_path: Path) -> None:
    proof = client.stop("p1")
    assert (proof["proven"], proof["known"]) == (True, False)
    with pytest.raises(Refused, match="FENCED"):
        client.start("p1", argv=counting(tmp_path))
    assert client.process("p1")["tombstone"]


def test_a_stop_of_a_half_made_start_fences_its_repeat(client: Client, tmp_path: Path) -> None:
    client.folder("p1").mkdir(mode=0o700)
    assert client.stop("p1")["known"] is False
    with pytest.raises(Refused, match="FENCED"):
        client.start("p1", argv=counting(tmp_path))


def test_a_forgotten_process_stays_fenced(client: Client, tmp_path: Path) -> None:
    process, _ = client.start(argv=counting(tmp_path))
    with pytest.raises(Refused, match="STILL_RUNNING"):
        client.call("forget", process=process)
    assert client.stop(process)["proven"]
    client.call("forget", process=process)
    assert not client.folder(process).exists()
    assert client.stop(process)["proven"]
    with pytest.raises(Refused, match="FENCED"):
        client.start(process, argv=counting(tmp_path))


def test_a_lower_attempt_is_refused(client: Client, tmp_path: Path) -> None:
    client.start("new", replica="r", attempt=2, argv=counting(tmp_path))
    with pytest.raises(Refused, match="FENCED"):
        client.start("old", replica="r", attempt=1, argv=counting(tmp_path))
    client.start("peer", replica="r", attempt=2, argv=counting(tmp_path))
    client.start("other", replica="s", attempt=1, argv=counting(tmp_path))


@pytest.mark.parametrize("process", ["", "..", "a/b", "a b", "x" * 129, "a\n"])
def test_an_id_that_is_no_name_is_refused(client: Client, process: str) -> None:
    with pytest.raises(Refused, match="INVALID_ID"):
        client.call("start", process=process, replica="r", attempt=1, role="engine", argv=["true"])
    with pytest.raises(Refused, match="INVALID_ID"):
        client.stop(process)


@pytest.mark.parametrize("argv", [["/opt/none/bin/vllm", "serve"], ["no-such-program"]])
def test_a_missing_program_is_named(client: Client, argv: list[str]) -> None:
    with pytest.raises(Refused, match=f"EXEC_FAILED: {argv[0]}"):
        client.start("p1", argv=argv)
    assert not client.start("p1", argv=["sleep", "600"])[1]["already"]


def test_a_program_whose_interpreter_is_gone_is_explained(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "vllm"
    script.write_text("#!/opt/deleted-venv/bin/python\n")
    script.chmod(0o755)
    with pytest.raises(Refused, match=r"EXEC_FAILED.*interpreter in its first line"):
        client.start("p1", argv=[str(script)])
    assert client.call("report")["processes"] == {}


def test_a_file_that_may_not_be_executed_is_named(client: Client, tmp_path: Path) -> None:
    (tmp_path / "vllm").write_text("")
    with pytest.raises(Refused, match=r"EXEC_FAILED.*may not be executed"):
        client.start(argv=[str(tmp_path / "vllm")])


def test_a_missing_working_folder_is_named(client: Client) -> None:
    with pytest.raises(Refused, match="DIR_MISSING: /nowhere"):
        client.start(argv=["true"], cwd="/nowhere")


def test_a_port_in_use_is_refused_with_its_owner(client: Client) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with pytest.raises(Refused, match=f"PORT_IN_USE: Port {port} .*pid {os.getpid()}") as caught:
            client.start(argv=["true"], ports=[port])
    assert caught.value.detail == {"port": port, "pids": [os.getpid()]}


@needs_root
def test_a_full_disk_is_a_typed_error(connect: Connect, root: Path) -> None:
    mount = f"mount -t tmpfs -o size=600k,mode=700 none {root} && exec /bin/sh"
    client = connect(command=("unshare", "-m", "/bin/sh", "-c", mount))
    with pytest.raises(Refused, match="DISK_FULL"):
        client.start(argv=["true"])


def test_secrets_are_in_one_private_file_and_the_environment_only(client: Client, engines: Engines) -> None:
    secret = "s3cret-0123456789"
    probe = {**engines.request()["probe"], "api_key_env": "VLLM_API_KEY"}
    process = engines.start(secrets={"VLLM_API_KEY": secret}, probe=probe)
    holders = [path.name for path in client.folder(process).iterdir() if secret in path.read_text()]
    assert holders == ["secrets.json"]
    assert stat.S_IMODE((client.folder(process) / "secrets.json").stat().st_mode) == 0o600
    until(lambda: ((client.process(process)["probe"] or {}).get("completion") or {}).get("ok"), "the key was accepted")
    pids = [member["pid"] for member in client.process(process)["members"]]
    supervisor = json.loads((client.folder(process) / "supervisor.json").read_text())["pid"]
    for pid in [*pids, supervisor, client.hello["pid"]]:
        assert secret not in Path(f"/proc/{pid}/cmdline").read_text()
    assert secret not in Path(f"/proc/{supervisor}/environ").read_text()
    assert secret not in json.dumps(client.call("collect", process=process)["request"])
    assert client.stop(process)["proven"]
    assert not (client.folder(process) / "secrets.json").exists()


def test_a_process_gets_a_clean_environment_with_its_markers(connect: Connect) -> None:
    client = connect(env={"LD_PRELOAD_NOTE": "from the login"})
    process, _ = client.start(argv=["env"], env={"A": "b c"}, replica="r", attempt=3)
    until(lambda: client.process(process)["exit"], "it ended")
    lines = client.log(process).splitlines()
    for line in ("A=b c", "LANG=C.UTF-8", "PILOTHOUSE_INSTALLATION=one", f"PILOTHOUSE_PROCESS={process}"):
        assert line in lines
    assert {"PILOTHOUSE_REPLICA=r", "PILOTHOUSE_ATTEMPT=3", "SPT_NOENV=1"} <= set(lines)
    assert not any(line.startswith("LD_PRELOAD_NOTE") for line in lines)


def test_a_process_is_told_apart_from_its_supervisor(client: Client) -> None:
    process, started = client.start(argv=["sleep", "600"])
    supervisor = json.loads((client.folder(process) / "supervisor.json").read_text())["pid"]
    words = Path(f"/proc/{supervisor}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert words[-1] == f"pilothouse-supervisor:{process}".encode()
    assert os.getsid(started["pid"]) == started["pid"]
    assert os.getsid(supervisor) == supervisor
    links = [Path(f"/proc/{supervisor}/fd/{number}") for number in (0, 1, 2)]
    until(lambda: all(link.readlink() == Path("/dev/null") for link in links), "it let go of the connection")


FAKE_SYSTEMD_RUN = """#!/bin/sh
echo "$@" >> {folder}/called
while [ "$1" != -- ] && [ "$1" != {python} ]; do shift; done
[ "$1" = -- ] && shift
[ "$1" = true ] || {after}
exec "$@"
"""


@needs_root
@pytest.mark.parametrize("after", ["true", "exit 1"])
def test_a_scope_is_used_where_systemd_gives_one_and_done_without_where_not(
    connect: Connect, tmp_path: Path, after: str
) -> None:
    script = tmp_path / "systemd-run"
    python = connect().hello["executable"]
    script.write_text(FAKE_SYSTEMD_RUN.format(folder=tmp_path, python=python, after=after))
    script.chmod(0o755)
    machine = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec /bin/sh"
    path = f"{tmp_path}:{os.environ['PATH']}"
    client = connect(command=("unshare", "-m", "/bin/sh", "-c", machine), env={"PATH": path})
    process, started = client.start(argv=["sleep", "600"])
    assert running(started["pid"])
    calls = (tmp_path / "called").read_text().splitlines()
    assert calls[0] == "--scope --quiet --collect -- true"
    assert "pilothouse-supervisor:" + process in (tmp_path / "called").read_text()
    assert client.stop(process)["proven"]


def test_processes_outlive_the_connection(connect: Connect) -> None:
    first = connect()
    process, started = first.start(argv=["sleep", "600"])
    first.close()
    assert running(started["pid"])
    second = connect()
    assert second.process(process)["supervised"]
    assert second.stop(process)["proven"]


def nurseries(client: Client) -> list[int]:
    """Pids of the helper's children that share its command line."""
    helper = client.hello["pid"]
    words = Path(f"/proc/{helper}/cmdline").read_bytes()
    found = Path(f"/proc/{helper}/task/{helper}/children").read_text().split()
    return [int(pid) for pid in found if Path(f"/proc/{pid}/cmdline").read_bytes() == words]


def test_a_connection_that_began_with_watching_still_starts_processes(client: Client) -> None:
    events = client.events(interval_s=0.2)
    next(events)
    process, started = client.start(argv=["sleep", "600"])
    assert nurseries(client) == []
    assert running(started["pid"])
    assert client.process(process)["supervised"]
    assert client.stop(process)["proven"]


def test_a_nursery_that_was_killed_is_done_without(client: Client) -> None:
    first, _ = client.start(argv=["sleep", "600"])
    (nursery,) = nurseries(client)
    os.kill(nursery, signal.SIGKILL)
    until(lambda: not running(nursery), "it ended")
    second, started = client.start(argv=["sleep", "600"])
    assert running(started["pid"])
    assert all(client.process(process)["supervised"] for process in (first, second))
    assert client.stop(first)["proven"]
    assert client.stop(second)["proven"]


def test_a_nursery_ends_with_its_helper_and_its_processes_stay(client: Client) -> None:
    _, started = client.start(argv=["sleep", "600"])
    (nursery,) = nurseries(client)
    os.kill(client.hello["pid"], signal.SIGKILL)
    until(lambda: not running(nursery), "it ended")
    assert running(started["pid"])


def test_many_starts_at_once_each_get_their_own_answer(client: Client) -> None:
    numbers = {
        f"many-{n}": client.send("start", process=f"many-{n}", replica=f"r{n}", attempt=1, role="engine", argv=argv)
        for n, argv in enumerate([["sleep", "600"], ["no-such-program"]] * 4)
    }
    pids = set()
    for n, (process, number) in enumerate(numbers.items()):
        if n % 2:
            with pytest.raises(Refused, match="EXEC_FAILED"):
                client.next(number)
        else:
            pids.add(client.next(number)["result"]["pid"])
            assert client.process(process)["alive"]
    assert len(pids) == 4
