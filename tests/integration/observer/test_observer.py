"""The observer on simulated machines, and on this one through the real helper."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from deployments import reconcile as reconciler
from deployments.domain.states import ProcessState
from deployments.models import Deployment, Node, Process
from deployments.remote.launcher import HostKeyChanged, Unreachable
from deployments.transitions import Transition

from ..local_node import probe, runs
from ..scene import machine, only_process, run, wish
from .conftest import becomes, held, in_thread

pytestmark = pytest.mark.django_db(transaction=True)


def heard(node: Node):
    return lambda: Node.objects.filter(pk=node.pk, heard_at__isnull=False).first()


def forget(node: Node) -> None:
    Node.objects.filter(pk=node.pk).update(heard_at=None, report={})


async def test_a_report_of_this_machine_is_written_and_the_node_is_ready(here, observe):
    await in_thread(probe)(here)
    await in_thread(forget)(here)
    observer, _ = observe()
    node = await becomes("a report", heard(here))
    assert node.report["boot_id"] == node.boot_id != ""
    assert (node.state, node.observer, node.error) == ("READY", observer.id, None)
    assert node.observed_until > timezone.now()


async def test_an_exit_rings_the_reconciler_before_any_tick(here, observe, bell):
    await in_thread(probe)(here)
    deployment = await in_thread(lambda: run_ready())()
    process = await in_thread(only_process)(deployment)
    observe()
    await becomes("the observer sees it", lambda: sees(here, process))
    bell.silence()
    await in_thread(lambda: Deployment.objects.update(next_look_at=timezone.now() + timedelta(hours=1)))()
    os.kill(process.pid, signal.SIGKILL)
    entry = await becomes("its end is written", lambda: end_of(here, process))
    assert entry["exit"]["signal"] == 9
    await becomes("it is rung", lambda: ("deployments.reconcile", [deployment.pk]) in bell.rings())
    assert await in_thread(lambda: Deployment.objects.filter(next_look_at__lte=timezone.now()).exists())()
    assert not runs(process.pid)


def end_of(node: Node, process: Process) -> dict | None:
    entry = Node.objects.get(pk=node.pk).report["processes"][str(process.pk)]
    return None if entry["alive"] else entry


def run_ready() -> Deployment:
    from ..local_node import wait_for
    from ..scene import step

    deployment = wish()

    def ready():
        step(deployment)
        row = deployment.processes.first()
        return row is not None and row.state == ProcessState.READY

    wait_for("it serves", ready)
    return deployment


def sees(node: Node, process: Process) -> bool:
    report = Node.objects.get(pk=node.pk).report
    entry = (report.get("processes") or {}).get(str(process.pk)) or {}
    probe = entry.get("probe") or {}
    return Node.objects.get(pk=node.pk).observer != "" and bool((probe.get("completion") or {}).get("ok"))


async def test_a_node_that_does_not_answer_stays_with_its_observer(stub, observe):
    node = await in_thread(machine)(stub)
    stub.node(node.pk).silent = True
    first, _ = observe()
    await becomes("the failure is kept", lambda: Node.objects.filter(error__code="UNREACHABLE").exists())
    second, _ = observe()
    await second._round()
    assert await in_thread(held)(first) == {node.pk}
    stub.node(node.pk).silent = False
    await becomes("it is heard again", lambda: Node.objects.filter(error__isnull=True, observer=first.id).exists())


async def test_a_node_that_shows_another_key_is_not_ready_and_the_offered_key_is_kept(stub, observe):
    node = await in_thread(machine)(stub)
    error = HostKeyChanged("Another key is shown.", detail={"offered_key": "ssh-ed25519 AAAAoffered", "jump": False})
    stub.node(node.pk).fail(error, "watch")
    observe()
    await becomes("it is not ready", lambda: Node.objects.filter(state="NOT_READY").exists())
    row = await in_thread(lambda: Transition.objects.get(subject="node", new="NOT_READY"))()
    assert (row.reason, row.node_id) == ("HOST_KEY_CHANGED", node.pk)
    found = await in_thread(lambda: Node.objects.get(pk=node.pk))()
    assert found.offered_host_key == "ssh-ed25519 AAAAoffered"
    assert found.error["code"] == "HOST_KEY_CHANGED"


async def test_a_cancelled_observer_leaves_no_lease_and_no_stream(here, observe):
    _, task = observe()
    await becomes("a report", heard(here))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    node = await in_thread(lambda: Node.objects.get(pk=here.pk))()
    assert (node.observer, node.observed_until) == ("", None)
    helpers = await in_thread(children)()
    assert helpers == []


def children() -> list[str]:
    """Command lines of this process's own shells and helpers for nodes."""
    found = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/cmdline") as words:
                parent, line = int(stat.read().rpartition(")")[2].split()[1]), words.read()
        except (OSError, ValueError, IndexError):
            continue
        if parent == os.getpid() and "-I\0-S\0-u" in line:
            found.append(line)
    return found


async def test_one_node_that_cannot_be_watched_does_not_disturb_the_others(stub, observe):
    bad = await in_thread(machine)(stub, "bad")
    good = await in_thread(machine)(stub, "good")
    await in_thread(lambda: Node.objects.update(heard_at=None))()
    stub.node(bad.pk).fail(RuntimeError("nobody expected this"), "watch", times=3)
    observe()
    await becomes("the good one is heard", heard(good))
    await becomes("the bad one is heard once it can be", heard(bad))


async def test_the_database_may_go_away_and_come_back(stub, observe):
    # A pool of its own: connections that threads of earlier tests took with them would count against it.
    await in_thread(connection.close_pool)()
    node = await in_thread(machine)(stub)
    observer, task = observe()
    await becomes("it is observed", lambda: held(observer))
    for _ in range(2):
        # Whoever administers the server ends every connection; the next query finds its own dead.
        await in_thread(end_connections)()
        await in_thread(forget)(node)
        await becomes("a report is written again", heard(node))
    assert not task.done()


def end_connections() -> None:
    own = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", [own])
        others = [row[0] for row in cursor.fetchall()]
        for pid in others:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    # And the one that did it, whose connection is the observer's own.
    with connection.cursor() as cursor, pytest.raises(OperationalError, match="terminating connection"):
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    connection.close()


async def test_an_observer_without_nodes_waits_for_some(stub, observe):
    observer, _ = observe()
    await observer._round()
    node = await in_thread(machine)(stub)
    await in_thread(forget)(node)
    await becomes("the new node is observed", heard(node))


async def test_a_node_that_changes_is_watched_anew(stub, observe):
    await in_thread(machine)(stub)
    observer, _ = observe()
    await becomes("it is watched", lambda: held(observer))
    before = len(stub.made("watch"))
    await in_thread(lambda: Node.objects.update(interpreter="/usr/bin/python3.11"))()
    await observer._round()
    await becomes("a second stream", lambda: len(stub.made("watch")) > before)


async def test_a_failure_is_told_to_the_reconciler_which_then_asks_itself(stub, observe):
    node = await in_thread(machine)(stub)
    deployment = await in_thread(lambda: run(wish()))()
    stub.node(node.pk).fail(Unreachable("The stream ended."), "watch", times=100)
    observe()
    await becomes("the failure is kept", lambda: Node.objects.filter(error__isnull=False).exists())
    asked = len(stub.made("report"))
    await in_thread(lambda: Node.objects.update(heard_at=timezone.now() - timedelta(seconds=2)))()
    await in_thread(reconciler.reconcile)(deployment.pk)
    assert len(stub.made("report")) == asked + 1
    assert (await in_thread(only_process)(deployment)).state == ProcessState.READY
