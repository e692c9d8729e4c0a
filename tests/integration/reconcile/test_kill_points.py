"""The reconciler is killed at every write and at every call, once, and another one goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from deployments import reconcile as reconciler
from deployments.domain.states import DeploymentState, Wish
from deployments.models import Deployment, Node
from deployments.remote import use_launcher
from deployments.remote.stub_node import StubNode

from ..dying import DyingCaller, Killed
from ..scene import QUICK, assert_all_gone, hear, machine, only_process, run, running, step, until, wish

pytestmark = pytest.mark.django_db
VERBS = ("start", "stop", "collect", "report")


class Death:
    """Kills what happens inside `watched()` at its n-th write; a dead process writes nothing more, not even its lease.

    With `at` None nothing dies and the writes are counted.
    """

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.writes = 0
        self.dead = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        with connection.execute_wrapper(self._write):
            yield

    def _write(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE", "DELETE")):
            self.writes += 1
            if self.writes - 1 == self.at:
                self.dead = True
        # What a dead client leaves open is rolled back by the server.
        if self.dead and not sql.startswith("ROLLBACK"):
            raise Killed
        return execute(sql, params, many, context)


def survive(deployment: Deployment, death: Death, machine_: StubNode, goal: Callable[[Deployment], bool]) -> None:
    """Steps until the goal is reached, over one death, with the rules checked after each."""
    for _ in range(40):
        hear(deployment)
        try:
            with death.watched():
                reconciler.reconcile(deployment.pk, QUICK)
        except Killed:
            death.at, death.dead = None, False
            held = Deployment.objects.filter(pk=deployment.pk, lease_until__isnull=False)
            if held.exists():
                assert reconciler.reconcile(deployment.pk, QUICK) is None, "the dead one's lease is respected"
            held.update(lease_until=timezone.now() - timedelta(seconds=1))
        assert len(running(machine_)) <= 1
        if goal(deployment):
            return
    raise AssertionError(f"never got there; killed at write {death.at}")


def ends_well(deployment: Deployment, machine_: StubNode) -> None:
    """The wish is served by exactly one process, then stopped without a trace."""
    Deployment.objects.filter(pk=deployment.pk).update(wish=Wish.RUNNING)
    assert run(deployment).state == DeploymentState.READY
    (alive,) = running(machine_)
    assert alive.request.process == str(only_process(deployment).pk)
    Deployment.objects.filter(pk=deployment.pk).update(wish=Wish.STOPPED)
    assert run(deployment).state == DeploymentState.STOPPED
    assert_all_gone(deployment, [machine_])


def nothing_yet(deployment: Deployment, machine_: StubNode) -> None:
    """The wish alone."""


def ended_engine(deployment: Deployment, machine_: StubNode) -> None:
    run(deployment)
    machine_.exit(str(only_process(deployment).pk), code=1)


def late_engine(deployment: Deployment, machine_: StubNode) -> None:
    machine_.ready_after = None
    first = until(deployment, "STARTING")
    type(first).objects.filter(pk=first.pk).update(deadline=timezone.now() - timedelta(seconds=1))
    machine_.ready_after = 0


def wish_to_stop(deployment: Deployment, machine_: StubNode) -> None:
    run(deployment)
    Deployment.objects.filter(pk=deployment.pk).update(wish=Wish.STOPPED)


def serves(deployment: Deployment) -> bool:
    return Deployment.objects.filter(pk=deployment.pk, state=DeploymentState.READY).exists()


def serves_again(deployment: Deployment) -> bool:
    return serves(deployment) and deployment.processes.filter(attempt=2, state="READY").exists()


def is_stopped(deployment: Deployment) -> bool:
    return Deployment.objects.filter(pk=deployment.pk, state=DeploymentState.STOPPED).exists()


# What happens before the part in which somebody dies, and what that part leads to all the same.
LIVES = [(nothing_yet, serves), (ended_engine, serves_again), (late_engine, serves_again), (wish_to_stop, is_stopped)]
lives = pytest.mark.parametrize(("before", "goal"), LIVES, ids=[before.__name__ for before, _ in LIVES])


@lives
def test_death_at_any_write_neither_doubles_nor_loses_a_process(stub, before, goal):
    node = machine(stub, slots=1)
    count = Death(None)
    deployment = wish("counted")
    before(deployment, stub.node(node.pk))
    survive(deployment, count, stub.node(node.pk), goal)
    ends_well(deployment, stub.node(node.pk))
    assert count.writes > 5
    for at in range(count.writes):
        death = Death(at)
        deployment = wish(f"killed-{at}")
        before(deployment, stub.node(node.pk))
        survive(deployment, death, stub.node(node.pk), goal)
        assert death.at is None, "it lived through what it was to die of"
        ends_well(deployment, stub.node(node.pk))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", VERBS)
@lives
def test_death_at_any_call_neither_doubles_nor_loses_a_process(stub, before, goal, verb, after):
    node = machine(stub, slots=1)
    deployment = wish()
    before(deployment, stub.node(node.pk))
    use_launcher(DyingCaller(stub, verb, after))
    survive(deployment, Death(None), stub.node(node.pk), goal)
    use_launcher(stub)
    ends_well(deployment, stub.node(node.pk))


def test_a_lease_that_runs_out_during_a_call_lets_another_in_and_does_no_harm(stub):
    node = machine(stub, slots=1)
    deployment = wish()
    until(deployment, "PENDING")
    real, inner = stub.node(node.pk).start, []

    def slow(request):
        answer = real(request)
        if not inner:
            inner.append(None)
            Deployment.objects.filter(pk=deployment.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
            inner.append(step(deployment))
        return answer

    stub.node(node.pk).start = slow
    assert step(deployment) is not None
    assert inner[1] is not None, "the other one was let in"
    assert only_process(deployment).state in ("STARTING", "READY")
    stub.node(node.pk).start = real
    ends_well(deployment, stub.node(node.pk))
    assert {call.args.process for call in stub.made("start")} == {str(deployment.processes.get().pk)}


def test_a_lease_that_runs_out_during_a_stop_lets_another_in_and_does_no_harm(stub):
    node = machine(stub, slots=1)
    deployment = run(wish())
    Deployment.objects.filter(pk=deployment.pk).update(wish=Wish.STOPPED)
    real, inner = stub.node(node.pk).stop, []

    def slow(process):
        if not inner:
            inner.append(None)
            Deployment.objects.filter(pk=deployment.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
            inner.append(step(deployment))
        return real(process)

    stub.node(node.pk).stop = slow
    step(deployment)
    assert inner[1] is not None
    assert run(deployment).state == DeploymentState.STOPPED
    assert_all_gone(deployment, [stub.node(node.pk)])


def test_a_reconciler_whose_lease_was_taken_while_it_asked_nodes_does_nothing(stub):
    node = machine(stub, slots=1)
    deployment = run(wish())
    stub.node(node.pk).exit(str(only_process(deployment).pk), code=1)
    real = stub.node(node.pk).report

    def taken():
        Deployment.objects.filter(pk=deployment.pk).update(lease_token="another")
        return real()

    stub.node(node.pk).report = taken
    assert step(deployment) is None
    assert only_process(deployment).state == "READY"
    assert Node.objects.get().report["processes"], "what the node said is kept all the same"
