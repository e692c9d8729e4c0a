"""Silence of a node, and stops that cannot be proven."""

from __future__ import annotations

import pytest

from deployments import reports
from deployments.domain.errors import Conflict, NotPermitted
from deployments.domain.states import DeploymentState, ProcessState, Reason, Wish
from deployments.models import Deployment, Node, Process, Transition
from deployments.reconcile import sweep
from deployments.remote import launcher
from deployments.remote.launcher import StartRequest, Unreachable
from deployments.services import deployments as services
from deployments.targets import target_of

from ..scene import (
    assert_all_gone,
    claims,
    later,
    machine,
    only_process,
    run,
    running,
    states,
    step,
    until,
    wish,
)

pytestmark = pytest.mark.django_db


def silence(stub, node: Node) -> None:
    """The node does not answer, and has not for longer than a report lives."""
    stub.node(node.pk).silent = True
    later(node, "heard_at", 60)


def stop(deployment):
    Deployment.objects.filter(pk=deployment.pk).update(wish=Wish.STOPPED)


def test_a_silent_node_makes_unknown_and_its_process_is_adopted_as_it_is(stub):
    node = machine(stub)
    deployment = run(wish())
    process = only_process(deployment)
    silence(stub, node)
    assert run(deployment).state == DeploymentState.UNKNOWN
    assert only_process(deployment).state == ProcessState.UNKNOWN
    assert Node.objects.get().state == "UNREACHABLE"
    assert claims(deployment) > 0
    for _ in range(3):
        step(deployment)
    assert (len(stub.made("start")), len(stub.made("stop"))) == (1, 0)
    stub.node(node.pk).silent = False
    assert run(deployment).state == DeploymentState.READY
    adopted = only_process(deployment)
    assert (adopted.pk, adopted.reason, adopted.attempt) == (process.pk, Reason.ADOPTED, 1)
    assert len(running(stub.node(node.pk))) == 1
    assert Node.objects.get().state == "READY"


def test_what_ended_while_the_node_was_silent_is_seen_when_it_speaks(stub):
    node = machine(stub)
    deployment = run(wish())
    silence(stub, node)
    run(deployment)
    stub.node(node.pk).exit(str(only_process(deployment).pk), code=3)
    stub.node(node.pk).silent = False
    assert run(deployment).state == DeploymentState.READY
    assert states(deployment) == [(1, "FAILED", "EXITED"), (2, "READY", "PROBE_PASSED")]


def test_a_restarted_machine_has_lost_its_processes_and_gets_new_ones(stub):
    node = machine(stub)
    deployment = run(wish())
    stub.node(node.pk).reboot()
    assert run(deployment).state == DeploymentState.READY
    assert states(deployment) == [(1, "FAILED", "NODE_LOST"), (2, "READY", "PROBE_PASSED")]


def test_a_stop_on_a_silent_node_keeps_its_claims_until_the_proof_comes(stub):
    node = machine(stub)
    deployment = run(wish())
    held = claims(deployment)
    silence(stub, node)
    stop(deployment)
    for _ in range(4):
        step(deployment)
    process = only_process(deployment)
    assert process.state == ProcessState.STOPPING
    assert "cannot be proven" in process.note
    assert claims(deployment) == held
    deployment.refresh_from_db()
    assert deployment.state == DeploymentState.STOPPING
    stub.node(node.pk).silent = False
    assert run(deployment).state == DeploymentState.STOPPED
    assert_all_gone(deployment, [stub.node(node.pk)])


def test_an_admin_may_take_a_process_for_gone_and_what_comes_back_is_stopped(stub, admin, operator):
    node = machine(stub)
    deployment = run(wish())
    process = only_process(deployment)
    with pytest.raises(Conflict):
        services.force_stopped(admin, str(process.pk))
    silence(stub, node)
    stop(deployment)
    step(deployment)
    with pytest.raises(NotPermitted):
        services.force_stopped(operator, str(process.pk))
    services.force_stopped(admin, str(process.pk))
    assert claims(deployment) == 0
    assert run(deployment).state == DeploymentState.STOPPED
    forced = Transition.objects.get(reason=Reason.FORCED_BY_OPERATOR)
    assert (forced.actor, forced.new) == ("ada", "STOPPED")

    assert sweep() == 0, "the node is silent still"
    stub.node(node.pk).silent = False
    observe(node)
    assert len(running(stub.node(node.pk))) == 1
    assert sweep() == 1
    assert running(stub.node(node.pk)) == []
    told = Transition.objects.get(reason=Reason.ORPHAN_STOPPED)
    assert (told.subject_id, told.node_id, told.evidence["proven"]) == (str(process.pk), node.pk, True)
    observe(node)
    assert sweep() == 0


def observe(node: Node) -> None:
    reports.record(node, launcher().report(target_of(node)))


def test_what_lives_as_it_should_is_no_orphan_and_strangers_are_left_alone(stub):
    node = machine(stub)
    run(wish())
    stub.node(node.pk).start(StartRequest("not-ours-to-judge", "r", 1, "engine"))
    stub.node(node.pk).start(StartRequest("00000000-0000-4000-8000-000000000000", "r", 1, "engine"))
    observe(node)
    assert sweep() == 0
    assert len(running(stub.node(node.pk))) == 3


def test_an_orphan_that_does_not_go_away_is_tried_again(stub):
    node = machine(stub)
    deployment = run(wish())
    process = only_process(deployment)
    long_ago = "2020-01-01T00:00Z"
    Process.objects.filter(pk=process.pk).update(state=ProcessState.STOPPED, ended_at=long_ago)
    observe(node)
    stub.node(node.pk).stubborn = True
    assert sweep() == 0
    stub.node(node.pk).stubborn = False
    assert sweep() == 1


def test_a_probe_that_has_not_run_yet_says_nothing_against_a_process(stub):
    node = machine(stub)
    deployment = run(wish())
    report = stub.node(node.pk).report()
    report["processes"][str(only_process(deployment).pk)]["probe"] = None
    give(stub, node, report)
    step(deployment)
    assert only_process(deployment).state == ProcessState.READY


def give(stub, node, *reports):
    """The node's next reports are these."""
    machine_, left = stub.node(node.pk), list(reports)
    real = machine_.report
    machine_.report = lambda: left.pop(0) if left else real()


def test_a_probe_that_fails_for_a_moment_is_borne_and_for_longer_is_shown(stub):
    node = machine(stub)
    deployment = run(wish())
    engine = stub.node(node.pk).processes[str(only_process(deployment).pk)]
    engine.health = 500
    step(deployment)
    process = only_process(deployment)
    assert process.state == ProcessState.READY
    since = process.evidence["failing_since"]
    step(deployment)
    assert only_process(deployment).evidence["failing_since"] == since
    engine.health = 200
    step(deployment)
    assert "failing_since" not in only_process(deployment).evidence

    engine.health = 500
    step(deployment)
    process = only_process(deployment)
    Process.objects.filter(pk=process.pk).update(evidence={**process.evidence, "failing_since": since - 60})
    assert run(deployment).state == DeploymentState.DEGRADED
    assert only_process(deployment).state == ProcessState.UNHEALTHY
    engine.health = 200
    assert run(deployment).state == DeploymentState.READY


def test_what_stays_unhealthy_is_stopped_and_tried_again(stub):
    node = machine(stub)
    deployment = run(wish())
    process = only_process(deployment)
    stub.node(node.pk).processes[str(process.pk)].health = None
    step(deployment)
    Process.objects.filter(pk=process.pk).update(evidence={"failing_since": 1.0})
    step(deployment)
    later(process, "since", 3600)
    assert run(deployment).state == DeploymentState.READY
    assert states(deployment) == [(1, "FAILED", "UNRESPONSIVE"), (2, "READY", "PROBE_PASSED")]
    assert len(running(stub.node(node.pk))) == 1


def test_a_start_that_takes_too_long_is_stopped_with_proof(stub):
    node = machine(stub)
    stub.node(node.pk).ready_after = None
    deployment = wish(start_deadline=5.0)
    process = until(deployment, "STARTING")
    later(process, "deadline", 60)
    stub.node(node.pk).ready_after = 0
    assert run(deployment).state == DeploymentState.READY
    assert states(deployment) == [(1, "FAILED", "START_TIMEOUT"), (2, "READY", "PROBE_PASSED")]
    process.refresh_from_db()
    assert process.black_box["log_tail"]
    assert len(running(stub.node(node.pk))) == 1


def test_evidence_that_could_not_be_fetched_yet_is_fetched_before_the_stop_succeeds(stub):
    node = machine(stub)
    stub.node(node.pk).ready_after = None
    deployment = wish()
    process = until(deployment, "STARTING")
    later(process, "deadline", 7200)
    stub.node(node.pk).fail(Unreachable("Gone for a moment."), "collect")
    stub.node(node.pk).fail(Unreachable("Gone for a moment."), "stop")
    stub.node(node.pk).ready_after = 0
    run(deployment)
    process.refresh_from_db()
    assert (process.state, process.reason) == (ProcessState.FAILED, Reason.START_TIMEOUT)
    assert "starting engine" in process.black_box["log_tail"]


def test_one_silent_node_does_not_hold_up_the_others(stub):
    far = machine(stub, "far", slots=1)
    near = machine(stub, "near", slots=1)
    deployment = run(wish(replicas=2))
    silence(stub, far)
    run(deployment)
    deployment.refresh_from_db()
    assert deployment.state == DeploymentState.DEGRADED
    by_node = dict(deployment.processes.values_list("node__name", "state"))
    assert by_node == {"far": "UNKNOWN", "near": "READY"}
    lost = deployment.processes.get(node=near)
    stub.node(near.pk).exit(str(lost.pk), code=1)
    run(deployment)
    assert set(states(deployment)) == {
        (1, "UNKNOWN", "NODE_SILENT"),
        (1, "FAILED", "EXITED"),
        (2, "READY", "PROBE_PASSED"),
    }
    assert only_replica_states(deployment) == {"DEGRADED", "READY"}


def only_replica_states(deployment):
    return set(deployment.replicas.values_list("state", flat=True))
