"""Several reconcilers on one database, in threads of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, transaction

from deployments import reconcile as reconciler
from deployments.domain.errors import Conflict
from deployments.domain.states import DeploymentState, Reason
from deployments.models import AcceleratorClaim, Deployment, Node, Process, Replica, Transition
from deployments.reconcile.place import place_attempts
from deployments.services.nodes import remove_node

from ..scene import QUICK, hear, machine, only_process, only_replica, run, running, until, wish

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE_S = 30.0


class Thread(threading.Thread):
    """A thread with its own database connection; `done()` waits for what it returned or raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        finally:
            connections.close_all()

    def done(self) -> Any:
        self.join(DEADLINE_S)
        assert not self.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error
        return self._result


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """What the works return, all begun at the same moment."""
    gate = threading.Barrier(len(works))

    def after_gate(work):
        gate.wait(DEADLINE_S)
        return work()

    threads = [Thread(lambda work=work: after_gate(work)) for work in works]
    return [thread.done() for thread in threads]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.01)


@pytest.fixture
def held_start(stub) -> Iterator[tuple[threading.Event, threading.Event]]:
    """(a start is under way, let it go on) of the first start on the node with the id 1 more than none yet."""
    began, go_on = threading.Event(), threading.Event()
    yield began, go_on
    go_on.set()


def test_while_one_reconciler_waits_for_a_node_another_does_nothing(stub, held_start):
    began, go_on = held_start
    node = machine(stub)
    deployment = wish()
    until(deployment, "PENDING")
    real = stub.node(node.pk).start

    def slow(request):
        began.set()
        assert go_on.wait(DEADLINE_S)
        return real(request)

    stub.node(node.pk).start = slow
    hear(deployment)
    first = Thread(lambda: reconciler.reconcile(deployment.pk, QUICK))
    assert began.wait(DEADLINE_S)
    assert [reconciler.reconcile(deployment.pk, QUICK) for _ in range(3)] == [None, None, None]
    go_on.set()
    assert first.done() is not None
    assert len(stub.made("start")) == 1
    assert only_process(deployment).state == "STARTING"


def test_many_reconcilers_of_one_deployment_make_one_process(stub):
    node = machine(stub)
    deployment = wish()

    def passes() -> None:
        for _ in range(8):
            hear(deployment)
            reconciler.reconcile(deployment.pk, QUICK)

    at_once(passes, passes, passes)
    assert run(deployment).state == DeploymentState.READY
    assert (Replica.objects.count(), Process.objects.count()) == (1, 1)
    assert len(running(stub.node(node.pk))) == len(stub.made("start")) == 1


@pytest.mark.parametrize("number", range(3))
def test_two_deployments_race_for_the_last_accelerator_and_the_loser_is_told_why(stub, number):
    node = machine(stub, slots=1)
    wishes = [wish("left"), wish("right")]
    for deployment in wishes:
        reconciler.reconcile(deployment.pk, QUICK)
    at_once(*[lambda pk=deployment.pk: reconciler.reconcile(pk, QUICK) for deployment in wishes])
    placed = [row for row in wishes if row.processes.exists()]
    assert len(placed) == 1
    (winner,) = placed
    (loser,) = [row for row in wishes if row not in placed]
    assert AcceleratorClaim.objects.filter(released_at=None).count() == 1
    replica = only_replica(loser)
    assert (replica.reason, replica.attempt) == (Reason.UNPLACEABLE, 0)
    assert "0 of 1 accelerators free" in replica.note
    assert run(winner).state == DeploymentState.READY
    assert len(running(stub.node(node.pk))) == 1


def test_placing_and_a_change_of_the_same_deployment_do_not_wait_for_each_other_in_a_circle(stub):
    """Placing holds nodes and then points at the deployment; a change holds the deployment and points at nodes."""
    node = machine(stub)
    deployment = wish()
    reconciler.reconcile(deployment.pk, QUICK)
    replica = only_replica(deployment)
    Deployment.objects.filter(pk=deployment.pk).update(lease_token="mine")
    with transaction.atomic():
        Deployment.objects.select_for_update().get(pk=deployment.pk)
        thread = Thread(lambda: place_attempts(deployment, {str(replica.pk): 1}, "mine"))
        wait_until(lambda: not thread.is_alive() or _somebody_waits_for_a_lock())
        deployment.nodes.set([node])
    thread.done()
    assert only_process(deployment).node_id == node.pk
    assert list(deployment.nodes.all()) == [node]


def _somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return cursor.fetchone()[0] > 0


def test_reports_are_kept_while_somebody_places(stub):
    """An observer's report must not wait for a placement that waits for something else."""
    node = machine(stub)
    deployment = run(wish())
    with transaction.atomic():
        list(Node.objects.select_for_update(no_key=True))
        thread = Thread(lambda: Transition.objects.create(subject="node", subject_id="1", new="READY", node=node))
        thread.done()
    assert deployment.state == DeploymentState.READY


def test_a_lost_race_for_a_seat_is_tried_again_soon(stub):
    node = machine(stub, slots=1)
    deployment = wish()
    reconciler.reconcile(deployment.pk, QUICK)
    other = run(wish("other"))
    taken = only_process(other).accelerator_claims.get()
    AcceleratorClaim.objects.filter(pk=taken.pk).update(node=node)
    reconciler.reconcile(deployment.pk, QUICK)
    replica = only_replica(deployment)
    assert replica.next_attempt_at is not None
    assert replica.attempt == 0
    assert not deployment.processes.exists()


def test_a_node_is_not_removed_under_a_placement(stub, admin):
    """Removing looks for living processes; one that is being placed at that moment must not slip through."""
    node = machine(stub, slots=1)
    deployment = wish()
    reconciler.reconcile(deployment.pk, QUICK)
    replica = only_replica(deployment)
    Deployment.objects.filter(pk=deployment.pk).update(lease_token="mine")
    with transaction.atomic():
        place_attempts(deployment, {str(replica.pk): 1}, "mine")
        thread = Thread(lambda: remove_node(admin, node.name))
        wait_until(lambda: not thread.is_alive() or _somebody_waits_for_a_lock())
    with pytest.raises(Conflict, match="not proven gone"):
        thread.done()
    assert only_process(deployment).node_id == node.pk


def test_the_only_node_of_a_choice_is_not_removed(stub, admin):
    machine(stub)
    chosen = machine(stub, "chosen")
    deployment = wish()
    deployment.nodes.set([chosen])
    with pytest.raises(Conflict, match="chat may be served on chosen only"):
        remove_node(admin, "chosen")
    deployment.nodes.clear()
    remove_node(admin, "chosen")
    assert [node.name for node in Node.objects.all()] == ["node-1"]
