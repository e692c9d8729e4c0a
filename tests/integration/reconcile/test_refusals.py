"""What a launch that fails becomes: a typed state that names the node and what to do."""

from __future__ import annotations

import pytest

from deployments.domain.policy import Policy
from deployments.domain.states import ProcessState, Reason, ReplicaState
from deployments.models import Node
from deployments.remote.launcher import (
    AuthFailed,
    HelperFailed,
    HostKeyChanged,
    HostKeyUnknown,
    RemoteError,
    TimedOut,
    Unreachable,
)
from deployments.services.processes import problems_of, processes_of

from ..scene import QUICK, claims, later, machine, only_process, only_replica, run, running, states, step, until, wish

pytestmark = pytest.mark.django_db
PATIENT = Policy(backoff_base=100.0)


def unsent(error: RemoteError) -> RemoteError:
    """The error as it comes from a connection that could not be opened."""
    error.sent = False
    return error


def helper(code: str) -> HelperFailed:
    return HelperFailed(f"The node says {code}.", code=code, remedy="Mend it.")


HOPELESS = [
    (helper("EXEC_FAILED"), Reason.ENGINE_MISSING),
    (helper("DIR_MISSING"), Reason.EXEC_FAILED),
    (helper("DISK_FULL"), Reason.EXEC_FAILED),
    (unsent(helper("INTERPRETER_MISSING")), Reason.INTERPRETER_MISSING),
    (unsent(helper("INTERPRETER_TOO_OLD")), Reason.INTERPRETER_MISSING),
    (unsent(AuthFailed("The key is refused.")), Reason.AUTH_FAILED),
    (unsent(HostKeyChanged("Another key is shown.")), Reason.HOST_KEY_CHANGED),
    (unsent(HostKeyUnknown("A key is shown.")), Reason.HOST_KEY_UNKNOWN),
]


@pytest.mark.parametrize(("error", "reason"), HOPELESS, ids=lambda value: getattr(value, "code", str(value)))
def test_a_refusal_that_no_retry_can_help_fails_the_replica_at_once(stub, error, reason):
    node = machine(stub)
    deployment = wish()
    stub.node(node.pk).fail(error, "start")
    run(deployment)
    assert states(deployment) == [(1, "FAILED", reason)]
    process, replica = deployment.processes.get(), only_replica(deployment)
    assert (replica.state, replica.reason) == (ReplicaState.FAILED, reason)
    assert process.error["node"] == "node-1"
    assert process.error["remedy"]
    assert process.note == error.message
    assert claims(deployment) == 0
    assert len(stub.made("start")) == 1
    problems = problems_of(deployment, processes_of(deployment))
    assert {(problem.code, problem.node) for problem in problems} >= {(error.code, "node-1")}


@pytest.mark.parametrize(("code", "reason"), [("PORT_IN_USE", Reason.PORT_IN_USE), ("FENCED", Reason.FENCED)])
def test_a_refusal_that_another_attempt_may_avoid_is_tried_again(stub, code, reason):
    node = machine(stub)
    deployment = wish()
    stub.node(node.pk).fail(helper(code), "start")
    run(deployment)
    assert states(deployment) == [(1, "FAILED", reason), (2, "READY", "PROBE_PASSED")]


def test_the_attempt_after_a_port_in_use_takes_another_port(stub):
    node = machine(stub)
    stub.node(node.pk).facts["listening"].append(node.port_first)
    deployment = wish()
    assert run(deployment).state == "READY"
    assert states(deployment) == [(1, "FAILED", "PORT_IN_USE"), (2, "READY", "PROBE_PASSED")]
    assert only_process(deployment).spec["ports"] == {"http": node.port_first + 1}


def test_a_port_that_was_in_use_is_tried_again_when_there_is_no_other(stub):
    node = machine(stub)
    Node.objects.update(port_last=node.port_first, facts={**node.facts, "listening": [node.port_first]})
    deployment = wish()
    assert run(deployment).state == "READY"
    assert only_process(deployment).spec["ports"] == {"http": node.port_first}


def test_a_node_that_was_not_reached_is_asked_again_and_nothing_has_to_be_proven(stub):
    node = machine(stub)
    deployment = wish()
    until(deployment, "PENDING")
    stub.node(node.pk).fail(unsent(Unreachable("No way there.")), "start", times=2)
    step(deployment)
    process = only_process(deployment)
    assert (process.launch_requested_at, process.note) == (None, "No way there.")
    assert run(deployment).state == "READY"
    assert states(deployment) == [(1, "READY", "PROBE_PASSED")]
    assert only_process(deployment).error is None


def test_a_node_that_is_never_reached_fails_the_attempt_by_its_deadline(stub):
    node = machine(stub)
    deployment = wish()
    until(deployment, "PENDING")
    stub.node(node.pk).fail(unsent(Unreachable("No way there.")), "start", times=2)
    step(deployment)
    later(only_process(deployment), "deadline", 3600)
    run(deployment, PATIENT)
    assert states(deployment) == [(1, "FAILED", "UNREACHABLE")]
    assert stub.made("stop") == []
    assert claims(deployment) == 0


def test_a_start_whose_answer_is_lost_is_found_in_the_next_report(stub):
    node = machine(stub)
    deployment = wish()
    until(deployment, "PENDING")
    machine_ = stub.node(node.pk)
    lose_answer(stub, machine_)
    step(deployment)
    assert only_process(deployment).launch_requested_at is not None
    assert run(deployment).state == "READY"
    assert states(deployment) == [(1, "READY", "PROBE_PASSED")]
    assert only_process(deployment).launch_boot_id == machine_.facts["boot_id"]
    assert len(running(machine_)) == 1


def lose_answer(stub, machine_):
    """The next start happens, and its answer does not arrive."""
    start = machine_.start

    def started(request):
        machine_.start = start
        start(request)
        raise TimedOut("No answer.")

    machine_.start = started


def test_a_request_that_may_still_arrive_is_stopped_with_proof_before_anything_new_begins(stub):
    node = machine(stub)
    deployment = wish()
    until(deployment, "PENDING")
    stub.node(node.pk).fail(TimedOut("No answer."), "start", times=2)
    step(deployment)
    first = only_process(deployment)
    later(first, "deadline", 3600)
    run(deployment)
    assert states(deployment) == [(1, "FAILED", "UNREACHABLE"), (2, "READY", "PROBE_PASSED")]
    assert stub.made("stop")[0].args.process == str(first.pk)
    first.refresh_from_db()
    assert first.stop_evidence["known"] is False
    with pytest.raises(HelperFailed, match="stopped before"):
        stub.node(node.pk).start(stub.made("start")[0].args)


def test_a_node_that_refuses_us_takes_no_new_attempts_until_it_answers_again(stub):
    node = machine(stub)
    deployment = run(wish())
    stub.node(node.pk).fail(HostKeyChanged("Another key.", detail={"offered_key": "ssh-ed25519 AAAA"}), "report")
    step(deployment)
    node.refresh_from_db()
    assert (node.state, node.offered_host_key) == ("NOT_READY", "ssh-ed25519 AAAA")
    assert only_process(deployment).state == ProcessState.READY
    other = run(wish("other"), QUICK)
    assert other.state == "PENDING"
    step(deployment)
    assert Node.objects.get().state == "READY"
