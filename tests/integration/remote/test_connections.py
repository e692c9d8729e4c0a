"""Kept connections: shared, replaced, never carried across a fork, and quiet when they end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading

import pytest

from deployments.remote import node_launcher as node_launcher_module
from deployments.remote import use_launcher
from deployments.remote.connections import Connections, endpoint_digest
from deployments.remote.launcher import HelperFailed, NodeTarget, SshEndpoint, StartRequest, StopRequest, Unreachable
from deployments.remote.stub import StubLauncher
from tests.integration.remote.sshd import INSTALLATION

HERE = NodeTarget(1, "here", INSTALLATION)
HELLO = {"installation": INSTALLATION, "schema": 1}


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTHOUSE_STATE_ROOT", str(tmp_path / "state"))


@pytest.fixture
def connections():
    connections = Connections()
    yield connections
    connections.close()


def helper_pid(connections: Connections, target: NodeTarget = HERE) -> int:
    return connections.call(target, "hello", HELLO, 10)["pid"]


def test_the_local_helper_is_kept(connections):
    assert helper_pid(connections) == helper_pid(connections)


def test_a_killed_helper_is_replaced_unseen(connections):
    before = helper_pid(connections)
    os.kill(before, signal.SIGKILL)
    assert helper_pid(connections) != before


def test_a_request_that_was_on_its_way_when_the_helper_died_is_asked_again(connections):
    before = helper_pid(connections)
    start = StartRequest("p1", "r1", 1, "engine", argv=("/bin/sleep", "60"))
    connections.call(HERE, "start", node_launcher_module.start_args(start), 20)
    args = {"process": "p1", "offset": 0, "limit": 1000, "wait_s": 1.0}
    answers = []
    thread = threading.Thread(target=lambda: answers.append(connections.call(HERE, "logs", args, 20)))
    thread.start()
    os.kill(before, signal.SIGKILL)
    thread.join(20)
    assert answers[0]["offset"] == 0
    stop = {"process": "p1", "grace_s": 1.0, "kill_s": 5.0, "signal": "TERM"}
    assert connections.call(HERE, "stop", stop, 20)["proven"]


def test_another_interpreter_means_another_connection(connections):
    before = helper_pid(connections)
    other = NodeTarget(1, "here", INSTALLATION, interpreter="/usr/bin/python3")
    assert helper_pid(connections, other) != before


def test_everything_a_connection_depends_on_is_in_its_digest():
    endpoint = SshEndpoint("10.0.0.1", 22, "root", "key", ("ssh-ed25519 AAAA",))
    targets = [
        NodeTarget(1, "a", "i", endpoint),
        NodeTarget(1, "a", "other", endpoint),
        NodeTarget(1, "a", "i", endpoint, interpreter="/usr/bin/python3"),
        NodeTarget(1, "a", "i", endpoint, jump=endpoint),
        NodeTarget(1, "a", "i", SshEndpoint("10.0.0.2", 22, "root", "key", ("ssh-ed25519 AAAA",))),
        NodeTarget(1, "a", "i", SshEndpoint("10.0.0.1", 23, "root", "key", ("ssh-ed25519 AAAA",))),
        NodeTarget(1, "a", "i", SshEndpoint("10.0.0.1", 22, "you", "key", ("ssh-ed25519 AAAA",))),
        NodeTarget(1, "a", "i", SshEndpoint("10.0.0.1", 22, "root", "new", ("ssh-ed25519 AAAA",))),
        NodeTarget(1, "a", "i", SshEndpoint("10.0.0.1", 22, "root", "key", ())),
    ]
    assert len({endpoint_digest(target) for target in targets}) == len(targets)
    assert endpoint_digest(NodeTarget(1, "renamed", "i", endpoint)) == endpoint_digest(targets[0])


def test_after_closing_the_next_call_starts_anew(connections):
    before = helper_pid(connections)
    connections.close()
    assert helper_pid(connections) != before


def test_closing_ends_the_helper(connections):
    pid = helper_pid(connections)
    connections.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_forked_child_opens_its_own_and_leaves_the_parents_alone(connections):
    parents = helper_pid(connections)
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of pytest may run here: answer and go.
        with contextlib.suppress(BaseException):
            os.write(sending, str(helper_pid(connections)).encode())
            connections.close()
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as answer:
        childs = int(answer.read())
    os.waitpid(child, 0)
    assert childs != parents
    assert helper_pid(connections) == parents


def test_a_call_from_the_connections_own_thread_is_refused(connections):
    helper_pid(connections)
    loop = connections._get().loop

    async def call() -> None:
        helper_pid(connections)

    with pytest.raises(RuntimeError, match="wait for itself"):
        asyncio.run_coroutine_threadsafe(call(), loop).result(5)


def test_many_threads_may_ask_at_once(connections):
    pids = []
    threads = [threading.Thread(target=lambda: pids.append(helper_pid(connections))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 20
    assert len(set(pids)) == 1


async def test_a_watch_runs_on_the_callers_own_loop(node_launcher):
    seen = []
    async with contextlib.aclosing(node_launcher.watch(HERE, interval_s=0.2)) as reports:
        async for report in reports:
            seen.append(report["at"])
            if len(seen) == 3:
                break
    assert seen == sorted(set(seen))


async def test_a_watch_over_ssh_tells_an_exit_at_once(sshd, node_launcher):
    target = sshd.target()
    start = StartRequest("p1", "r1", 1, "engine", argv=("/bin/sh", "-c", "read line < ~/no-such-file; exit 7"))
    async with contextlib.aclosing(node_launcher.watch(target, interval_s=30)) as reports:
        await anext(reports)
        await asyncio.to_thread(node_launcher.start, target, start)
        async for report in reports:
            if (report["processes"].get("p1") or {}).get("exit"):
                break
    assert report["processes"]["p1"]["exit"]["code"] == 7
    await asyncio.to_thread(node_launcher.stop, target, StopRequest("p1"))


async def test_a_watch_of_a_dead_connection_ends_with_an_error(sshd, node_launcher):
    async with contextlib.aclosing(node_launcher.watch(sshd.target(), interval_s=0.2)) as reports:
        await anext(reports)
        sshd.kill_sessions()
        with pytest.raises(Unreachable):
            [report async for report in reports]


def test_a_refusal_by_the_helper_is_not_asked_twice(connections):
    with pytest.raises(HelperFailed) as caught:
        connections.call(HERE, "no-such-verb", {}, 10)
    assert caught.value.code == "UNKNOWN_VERB"


def test_tests_can_bring_their_own_launcher():
    from deployments import remote

    mine = StubLauncher()
    previous = use_launcher(mine)
    try:
        assert remote.launcher() is mine
        use_launcher(None)
        assert isinstance(remote.launcher(), StubLauncher)
        assert remote.launcher() is not mine
    finally:
        use_launcher(previous)
