"""The whole life of a deployment on simulated machines."""

from __future__ import annotations

import pytest

from deployments.domain.policy import Policy
from deployments.domain.states import DeploymentState, ProcessState, Reason, ReplicaState, Wish
from deployments.models import AcceleratorClaim, Deployment, Process, Replica, Transition
from deployments.services import deployments as services

from ..scene import (
    QUICK,
    assert_all_gone,
    claims,
    later,
    machine,
    only_process,
    only_replica,
    run,
    running,
    states,
    step,
    until,
    wish,
)

pytestmark = pytest.mark.django_db


def want(deployment, **columns):
    Deployment.objects.filter(pk=deployment.pk).update(**columns)


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_wish_is_served_and_its_stop_is_proven(stub, tensor):
    node = machine(stub)
    deployment = run(wish(tensor=tensor))
    assert deployment.state == DeploymentState.READY
    process = only_process(deployment)
    assert (process.state, process.attempt, process.ready_at is not None) == (ProcessState.READY, 1, True)
    assert process.accelerator_claims.count() == tensor
    assert process.evidence["health_status"] == 200
    assert process.phase == "ready"
    (started,) = stub.made("start")
    assert started.args.secrets == {"VLLM_API_KEY": "sk-of-a-test"}
    assert len(started.args.accelerators) == tensor

    want(deployment, wish=Wish.STOPPED)
    assert run(deployment).state == DeploymentState.STOPPED
    process.refresh_from_db()
    assert (process.state, process.reason) == (ProcessState.STOPPED, Reason.STOPPED_BY_OPERATOR)
    assert process.stop_evidence["proven"] is True
    assert_all_gone(deployment, [stub.node(node.pk)])


def test_nothing_is_done_when_all_is_as_wished(stub):
    machine(stub)
    deployment = run(wish())
    before = Transition.objects.count()
    plan = step(deployment)
    assert plan.actions == ()
    assert plan.next_look_at is not None
    assert Transition.objects.count() == before


def test_an_engine_that_ends_is_tried_again_with_a_new_row_and_its_end_is_kept(stub):
    node = machine(stub)
    deployment = run(wish())
    first = only_process(deployment)
    stub.node(node.pk).exit(str(first.pk), code=1, log="ValueError: something odd")
    assert run(deployment).state == DeploymentState.READY
    first.refresh_from_db()
    second = only_process(deployment)
    assert (first.state, second.state) == (ProcessState.FAILED, ProcessState.READY)
    assert (first.attempt, second.attempt) == (1, 2)
    assert "something odd" in first.black_box["log_tail"]
    assert first.black_box["exit"]["code"] == 1
    assert "exited with code 1" in first.note
    assert only_replica(deployment).failures == 1
    assert [process.request.process for process in running(stub.node(node.pk))] == [str(second.pk)]


def test_attempts_wait_longer_and_longer_and_are_used_up(stub):
    node = machine(stub)
    policy = Policy(backoff_base=10.0, max_attempts=3)
    deployment = wish()
    waits = []
    for _ in range(policy.max_attempts):
        process = until(deployment, "READY", policy)
        stub.node(node.pk).exit(str(process.pk), code=1)
        assert run(deployment, policy).state != DeploymentState.READY
        replica = only_replica(deployment)
        if replica.next_attempt_at is not None:
            waits.append(round((replica.next_attempt_at - replica.since).total_seconds()))
            later(replica, "next_attempt_at", 3600)
    assert waits == [10, 20]
    assert (replica.state, replica.reason) == (ReplicaState.FAILED, Reason.ATTEMPTS_USED_UP)
    assert deployment.state == DeploymentState.FAILED
    assert len(stub.made("start")) == policy.max_attempts
    assert claims(deployment) == 0


def test_being_ready_for_long_forgets_earlier_failures(stub):
    node = machine(stub)
    deployment = run(wish())
    for _ in range(4):
        later(only_replica(deployment), "ready_since", QUICK.healthy_reset + 1)
        stub.node(node.pk).exit(str(only_process(deployment).pk), code=1)
        assert run(deployment).state == DeploymentState.READY
        assert only_replica(deployment).failures == 1


def test_a_retry_by_an_operator_starts_over(stub, operator):
    node = machine(stub)
    deployment = wish()
    for _ in range(QUICK.max_attempts):
        stub.node(node.pk).exit(str(until(deployment, "READY").pk), code=1)
        run(deployment, Policy(backoff_base=100.0, max_attempts=QUICK.max_attempts))
        if (replica := only_replica(deployment)).next_attempt_at:
            later(replica, "next_attempt_at", 3600)
    assert only_replica(deployment).state == ReplicaState.FAILED
    services.retry(operator, deployment.name)
    assert run(deployment).state == DeploymentState.READY
    assert (only_replica(deployment).failures, only_process(deployment).attempt) == (0, 4)
    assert Transition.objects.filter(subject="replica", actor="otto", old="FAILED").exists()


def test_without_seats_a_replica_waits_and_says_why_until_seats_come_free(stub):
    machine(stub, slots=1)
    first = run(wish("first"))
    second = run(wish("second"))
    replica = only_replica(second)
    assert (replica.state, replica.reason) == (ReplicaState.PENDING, Reason.UNPLACEABLE)
    assert "node-1 has 0 of 1 accelerators free" in replica.note
    assert second.state == DeploymentState.PENDING
    assert replica.next_attempt_at > replica.since
    want(first, wish=Wish.STOPPED)
    run(first)
    later(replica, "next_attempt_at", 60)
    assert run(second).state == DeploymentState.READY
    assert only_replica(second).reason == Reason.PROBE_PASSED


def test_a_failed_replica_without_seats_stays_in_its_backoff(stub):
    node = machine(stub, slots=1)
    deployment = run(wish())
    stub.node(node.pk).exit(str(only_process(deployment).pk), code=1)
    policy = Policy(backoff_base=50.0)
    run(deployment, policy)
    node.accelerators.update(present=False)
    later(only_replica(deployment), "next_attempt_at", 60)
    run(deployment, policy)
    replica = only_replica(deployment)
    assert (replica.state, replica.reason, replica.attempt) == (ReplicaState.BACKOFF, Reason.UNPLACEABLE, 1)
    node.accelerators.update(present=True)
    later(replica, "next_attempt_at", 60)
    assert run(deployment, policy).state == DeploymentState.READY


def test_scaling_up_leaves_what_serves_alone_and_scaling_down_stops_the_last(stub, operator):
    node = machine(stub)
    deployment = run(wish(replicas=1))
    kept = only_process(deployment).pk
    services.scale(operator, deployment.name, 3)
    assert run(deployment).state == DeploymentState.READY
    assert len(running(stub.node(node.pk))) == 3
    services.scale(operator, deployment.name, 1)
    assert run(deployment).state == DeploymentState.READY
    assert [process.request.process for process in running(stub.node(node.pk))] == [str(kept)]
    assert Process.objects.get(pk=kept).attempt == 1
    services.scale(operator, deployment.name, 0)
    assert run(deployment).state == DeploymentState.READY
    assert_all_gone(deployment, [stub.node(node.pk)])


def test_a_pause_keeps_what_runs_and_starts_nothing(stub, operator):
    node = machine(stub)
    deployment = run(wish())
    kept = only_process(deployment)
    services.set_wish(operator, deployment.name, Wish.PAUSED)
    run(deployment)
    assert only_process(deployment).state == ProcessState.READY
    stub.node(node.pk).exit(str(kept.pk), code=1)
    run(deployment)
    assert running(stub.node(node.pk)) == []
    assert only_replica(deployment).state == ReplicaState.BACKOFF
    services.set_wish(operator, deployment.name, Wish.RUNNING)
    assert run(deployment).state == DeploymentState.READY


def test_a_new_generation_replaces_the_old_one_and_its_seats_are_free_in_time(stub):
    node = machine(stub, slots=1)
    deployment = run(wish())
    old = only_process(deployment)
    want(deployment, generation=2, args=["--max-model-len", "1024"])
    assert run(deployment).state == DeploymentState.READY
    old.refresh_from_db()
    new = only_process(deployment)
    assert (old.state, old.reason) == (ProcessState.STOPPED, Reason.SUPERSEDED)
    assert "--max-model-len" in new.spec["argv"]
    assert [process.request.process for process in running(stub.node(node.pk))] == [str(new.pk)]
    assert only_replica(deployment).generation == 2


def test_a_new_generation_retires_a_replica_that_has_no_process(stub):
    machine(stub, slots=1)
    run(wish("first"))
    second = run(wish("second"))
    waiting = only_replica(second)
    want(second, generation=2)
    run(second)
    waiting.refresh_from_db()
    assert waiting.state == ReplicaState.STOPPED
    assert only_replica(second).generation == 2


def test_a_removed_deployment_is_not_looked_at_again_and_may_be_wished_anew(stub, operator):
    from deployments.reconcile import due

    node = machine(stub)
    deployment = run(wish())
    services.set_wish(operator, deployment.name, Wish.STOPPED)
    run(deployment)
    services.remove(operator, deployment.name)
    want(deployment, next_look_at="2020-01-01T00:00Z")
    assert deployment.pk not in due()
    again = services.DeploymentInput(name="chat", model="qwen", layout="single-1")
    row = services.apply(operator, again)
    assert (row.pk, row.generation) == (deployment.pk, 2)
    assert run(row).state == DeploymentState.READY
    assert len(running(stub.node(node.pk))) == 1


def test_a_deployment_without_nodes_says_so(stub):
    replica = only_replica(run(wish()))
    assert replica.reason == Reason.UNPLACEABLE
    assert "no node" in replica.note


def test_history_is_without_gaps_and_names_who_acted(stub, operator):
    node = machine(stub)
    stub.node(node.pk).ready_after = 1
    wish("other")
    deployment = services.apply(operator, services.DeploymentInput(name="chat", model="qwen", layout="single-1"))
    until(deployment, "READY")
    stub.node(node.pk).exit(str(only_process(deployment).pk), code=1)
    until(deployment, "FAILED")
    until(deployment, "READY")
    services.set_wish(operator, "chat", Wish.STOPPED)
    run(deployment)
    rows = list(Transition.objects.filter(deployment=deployment).order_by("id"))
    for subject in {(row.subject, row.subject_id) for row in rows if row.subject in ("process", "replica")}:
        own = [row for row in rows if (row.subject, row.subject_id) == subject]
        assert [row.old for row in own[1:]] == [row.new for row in own[:-1]], subject
    by_people = [(row.new, row.actor) for row in rows if row.actor != "pilothouse"]
    assert by_people == [("RUNNING", "otto"), ("STOPPED", "otto")]
    processes = [(row.old, row.new, row.reason) for row in rows if row.subject == "process"]
    life = [("PENDING", "STARTING", "LAUNCHED"), ("STARTING", "READY", "PROBE_PASSED")]
    end = [("READY", "STOPPING", "STOPPED_BY_OPERATOR"), ("STOPPING", "STOPPED", "STOPPED_BY_OPERATOR")]
    assert processes == [*life, ("READY", "FAILED", "EXITED"), *life, *end]
    failed = next(row for row in rows if row.new == "FAILED")
    assert failed.evidence["exit_code"] == 1
    assert failed.node_id == node.pk
    overall = [row.new for row in rows if row.subject == "deployment" and row.actor == "pilothouse"]
    assert overall == [*("STARTING", "READY"), *("STARTING", "PENDING", "STARTING", "READY"), "STOPPING", "STOPPED"]


def test_claims_are_released_with_the_proof_and_not_before(stub):
    node = machine(stub)
    deployment = run(wish())
    held = claims(deployment)
    stub.node(node.pk).stubborn = True
    want(deployment, wish=Wish.STOPPED)
    for _ in range(3):
        step(deployment)
    process = only_process(deployment)
    assert process.state == ProcessState.STOPPING
    assert "still there: pid" in process.note
    assert claims(deployment) == held > 0
    stub.node(node.pk).stubborn = False
    run(deployment)
    assert claims(deployment) == 0
    assert AcceleratorClaim.objects.filter(process=process, released_at__isnull=False).exists()


def test_a_gang_of_two_is_started_in_waves_and_ends_as_one(stub):
    node = machine(stub)
    deployment = wish()
    step(deployment)
    step(deployment)
    head = only_process(deployment)
    spec = {**head.spec, "rank": 1, "wave": 1, "ports": {"http": head.spec["ports"]["http"] + 7}}
    columns = {"deployment": deployment, "replica": head.replica, "node": node, "attempt": head.attempt}
    tail = Process.objects.create(**columns, role="engine", group=head.group, member=0, rank=1, wave=1, spec=spec)
    stub.node(node.pk).ready_after = 2
    step(deployment)
    assert [call.args.process for call in stub.made("start")] == [str(head.pk)]
    for _ in range(8):
        step(deployment)
    assert run(deployment).state == DeploymentState.READY
    assert [call.args.process for call in stub.made("start")] == [str(head.pk), str(tail.pk)]

    stub.node(node.pk).exit(str(head.pk), code=1)
    run(deployment, Policy(backoff_base=100.0))
    assert states(deployment) == [(1, "FAILED", "EXITED"), (1, "STOPPED", "PEER_FAILED")]
    assert running(stub.node(node.pk)) == []
    assert claims(deployment) == 0
    assert Replica.objects.get().reason == Reason.EXITED
