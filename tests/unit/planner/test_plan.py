from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.domain.plan import Collect, CreateReplica, Launch, MoveReplica, Place, Plan, Settle, Stop, plan
from deployments.domain.specs import DeploymentView
from deployments.domain.states import DeploymentState, ProcessState, Reason, ReplicaState, Wish

from .views import GONE, LOADING, NOW, ORPHANED, POLICY, REFUSED, SERVING, deployment, process, replica

P, R, D = ProcessState, ReplicaState, DeploymentState


def look(seen: DeploymentView) -> Plan:
    return plan(seen, NOW, POLICY)


def only(step: Plan, kind: type) -> list:
    return [action for action in step.actions if isinstance(action, kind)]


def moves(step: Plan) -> list[tuple]:
    return [(action.old, action.new, action.reason) for action in only(step, MoveReplica)]


def settles(step: Plan) -> list[tuple]:
    return [(a.process_id, a.old, a.verdict.state, a.verdict.reason) for a in only(step, Settle)]


# Starting


def test_a_new_wish_makes_its_replicas() -> None:
    step = look(deployment(replicas_wished=2))
    assert step.actions == (CreateReplica(0, 1), CreateReplica(1, 1))
    assert step.state is D.PENDING


def test_an_index_is_free_only_when_its_old_replica_is_stopped() -> None:
    busy = replica(R.STOPPING, process(P.STOPPING, reason=Reason.SUPERSEDED), retiring=True)
    assert not only(look(deployment(busy)), CreateReplica)
    assert look(deployment(replica(R.STOPPED, retiring=True))).actions == (CreateReplica(0, 1),)


def test_a_replica_without_processes_is_placed() -> None:
    assert look(deployment(replica(R.PENDING))).actions == (Place("r1", 1),)


def test_a_replica_without_seats_keeps_its_state_and_waits() -> None:
    waiting = replica(R.PENDING, next_attempt_at=NOW + 3, reason=Reason.UNPLACEABLE)
    step = look(deployment(waiting))
    assert step.actions == ()
    assert step.state is D.PENDING
    assert step.next_look_at == NOW + 3
    assert look(deployment(replace(waiting, next_attempt_at=NOW))).actions == (Place("r1", 1),)


def test_processes_of_the_first_wave_are_launched_and_no_others() -> None:
    gang = replica(
        R.PENDING, process(P.PENDING, "head"), process(P.PENDING, "w", wave=1), process(P.PENDING, "api", wave=2)
    )
    assert only(look(deployment(gang)), Launch) == [Launch("head")]


def test_the_next_wave_waits_until_all_of_this_one_are_ready() -> None:
    head, slow = process(P.READY, "head"), process(P.STARTING, "slow", evidence=LOADING)
    gang = replica(R.STARTING, head, slow, process(P.PENDING, "api", wave=1))
    assert not only(look(deployment(gang)), Launch)
    gang = replica(R.STARTING, head, replace(slow, evidence=SERVING), process(P.PENDING, "api", wave=1))
    assert only(look(deployment(gang)), Launch) == [Launch("api")]


def test_a_process_may_wait_for_its_wave_longer_than_a_launch_may_take() -> None:
    gang = replica(
        R.STARTING, process(P.STARTING, "head", evidence=LOADING), process(P.PENDING, "api", wave=1, since=NOW - 900)
    )
    assert look(deployment(gang)).actions == ()


def test_a_launch_whose_answer_was_lost_is_asked_for_again_until_the_node_speaks() -> None:
    asked = process(P.PENDING, launch_requested=True, deadline=NOW + 30)
    assert look(deployment(replica(R.PENDING, asked))).actions == (Launch("p1"),)


def test_a_launch_whose_answer_was_lost_is_recognised_in_the_report() -> None:
    asked = process(P.PENDING, launch_requested=True, deadline=NOW + 30, evidence=LOADING)
    (settle,) = only(look(deployment(replica(R.PENDING, asked), start_deadline=700)), Settle)
    assert (settle.old, settle.verdict.state, settle.boot_id) == (P.PENDING, P.STARTING, "b1")
    assert settle.deadline == NOW + 700


def test_adopting_a_starting_process_gives_it_its_start_deadline_again() -> None:
    unseen = process(P.UNKNOWN, evidence=LOADING, deadline=NOW - 999)
    (settle,) = only(look(deployment(replica(R.DEGRADED, unseen))), Settle)
    assert (settle.verdict.state, settle.deadline) == (P.STARTING, NOW + POLICY.start_deadline)


def test_a_ready_replica_makes_a_ready_deployment() -> None:
    step = look(deployment(replica(R.STARTING, process(P.STARTING))))
    assert settles(step) == [("p1", P.STARTING, P.READY, Reason.PROBE_PASSED)]
    (move,) = only(step, MoveReplica)
    assert (move.new, move.ready_since, move.reason) == (R.READY, NOW, Reason.PROBE_PASSED)
    assert step.state is D.READY


def test_nothing_is_done_when_all_is_as_wished() -> None:
    step = look(deployment(replica(R.READY, process(), ready_since=NOW - 50)))
    assert step == Plan((), D.READY, NOW + POLICY.look_steady)


# Blindness


def test_a_silent_node_degrades_and_stops_nothing() -> None:
    silent = process(heard_at=NOW - 60)
    step = look(deployment(replica(R.READY, silent)))
    assert settles(step) == [("p1", P.READY, P.UNKNOWN, Reason.NODE_SILENT)]
    assert moves(step) == [(R.READY, R.DEGRADED, Reason.NODE_SILENT)]
    assert step.state is D.UNKNOWN
    assert not only(step, Stop)


def test_one_silent_node_does_not_end_its_gang() -> None:
    gang = replica(R.DEGRADED, process(P.UNKNOWN, "a", heard_at=NOW - 9999), process(P.READY, "b"))
    step = look(deployment(gang))
    assert step.actions == ()
    assert step.state is D.DEGRADED


# Failing


def test_one_failed_process_stops_its_whole_gang() -> None:
    gang = replica(
        R.READY,
        process(P.READY, "a", evidence=GONE),
        process(P.READY, "b"),
        process(P.PENDING, "c", wave=1),
        process(P.PENDING, "d", wave=1, launch_requested=True, deadline=NOW + 9),
    )
    step = look(deployment(gang))
    assert settles(step) == [
        ("a", P.READY, P.FAILED, Reason.EXITED),
        ("b", P.READY, P.STOPPING, Reason.PEER_FAILED),
        ("c", P.PENDING, P.STOPPED, Reason.PEER_FAILED),
        ("d", P.PENDING, P.STOPPING, Reason.PEER_FAILED),
    ]
    assert [(stop.process_id, stop.final) for stop in only(step, Stop)] == [("b", P.STOPPED), ("d", P.STOPPED)]
    assert only(step, Collect) == [Collect("a")]
    assert moves(step) == [(R.READY, R.STOPPING, Reason.PEER_FAILED)]


@pytest.mark.parametrize("ended", [P.STOPPED, P.FAILED, P.STOPPING])
def test_a_gang_is_never_left_half_ended(ended: ProcessState) -> None:
    gang = replica(R.READY, process(ended, "a", reason=Reason.STOPPED_BY_OPERATOR), process(P.READY, "b"))
    assert ("b", P.READY, P.STOPPING, Reason.PEER_FAILED) in settles(look(deployment(gang)))


def test_evidence_is_kept_before_a_failed_process_is_cleared_away() -> None:
    step = look(deployment(replica(R.READY, process(evidence=ORPHANED))))
    stop = Stop("p1", P.FAILED, Reason.EXITED, POLICY.stop_grace, POLICY.stop_kill)
    assert [action for action in step.actions if isinstance(action, Collect | Stop)] == [Collect("p1"), stop]


def test_a_stop_is_repeated_until_it_is_proven_with_the_deployments_grace() -> None:
    stopping = process(P.STOPPING, reason=Reason.UNRESPONSIVE, evidence=REFUSED, stop_grace=33.0)
    (stop,) = only(look(deployment(replica(R.STOPPING, stopping))), Stop)
    assert (stop.final, stop.reason, stop.grace_s) == (P.FAILED, Reason.UNRESPONSIVE, 33.0)


def test_a_failed_attempt_is_counted_once_and_followed_by_a_pause() -> None:
    over = replica(R.STOPPING, process(P.FAILED, reason=Reason.EXITED), failures=1)
    (move,) = look(deployment(over)).actions
    assert (move.new, move.reason, move.failures, move.next_attempt_at) == (R.BACKOFF, Reason.EXITED, 2, NOW + 4)
    waiting = replace(over, state=R.BACKOFF, failures=2, next_attempt_at=NOW + 4)
    step = look(deployment(waiting))
    assert step == Plan((), D.STARTING, NOW + 4)


def test_a_failure_of_the_next_attempt_is_counted_though_its_replica_still_says_backoff() -> None:
    over = replica(R.BACKOFF, process(P.FAILED, reason=Reason.EXITED), attempt=2, failures=1, next_attempt_at=None)
    (move,) = only(look(deployment(over)), MoveReplica)
    assert move.failures == 2


def test_the_next_attempt_is_placed_when_its_moment_has_come() -> None:
    waiting = replica(R.BACKOFF, process(P.FAILED, reason=Reason.EXITED), attempt=3, next_attempt_at=NOW)
    assert look(deployment(waiting)).actions == (Place("r1", 4),)


def test_the_pause_between_attempts_doubles_up_to_a_limit() -> None:
    waits = [POLICY.backoff(failures) for failures in (1, 2, 3, 4, 20)]
    assert waits == [2.0, 4.0, 8.0, 16.0, POLICY.backoff_cap]


def test_attempts_are_used_up() -> None:
    over = replica(R.STOPPING, process(P.FAILED, reason=Reason.EXITED), failures=POLICY.max_attempts - 1)
    step = look(deployment(over))
    assert moves(step) == [(R.STOPPING, R.FAILED, Reason.ATTEMPTS_USED_UP)]
    assert step.state is D.FAILED
    assert look(deployment(replace(over, state=R.FAILED))).actions == ()


@pytest.mark.parametrize("reason", [Reason.UNKNOWN_FLAG, Reason.MODEL_MISSING, Reason.OUT_OF_MEMORY])
def test_what_no_retry_can_help_is_not_tried_again(reason: Reason) -> None:
    step = look(deployment(replica(R.STOPPING, process(P.FAILED, reason=reason))))
    assert moves(step) == [(R.STOPPING, R.FAILED, reason)]


def test_the_reason_that_explains_a_gangs_failure_is_kept() -> None:
    secondary = process(P.FAILED, "a", reason=Reason.EXITED, since=NOW - 30)
    root = process(P.FAILED, "b", reason=Reason.OUT_OF_MEMORY, since=NOW - 20)
    assert moves(look(deployment(replica(R.STOPPING, secondary, root))))[0][1:] == (R.FAILED, Reason.OUT_OF_MEMORY)
    first = process(P.FAILED, "b", reason=Reason.NODE_LOST, since=NOW - 40)
    assert moves(look(deployment(replica(R.STOPPING, secondary, first))))[0][1:] == (R.BACKOFF, Reason.NODE_LOST)


def test_being_ready_for_long_enough_forgets_earlier_failures() -> None:
    long = replica(R.READY, process(evidence=GONE), failures=4, ready_since=NOW - POLICY.healthy_reset)
    (move,) = only(look(deployment(long)), MoveReplica)
    assert (move.new, move.failures, move.ready_since) == (R.BACKOFF, 1, None)
    short = replace(long, ready_since=NOW - 10, failures=3)
    (move,) = only(look(deployment(short)), MoveReplica)
    assert move.failures == 4


def test_leaving_ready_keeps_or_forgets_failures_in_the_same_step() -> None:
    long = replica(R.READY, process(evidence=ORPHANED), failures=4, ready_since=NOW - POLICY.healthy_reset)
    (move,) = only(look(deployment(long)), MoveReplica)
    assert (move.new, move.failures) == (R.STOPPING, 0)


def test_a_machine_that_was_restarted_leaves_nothing_to_collect_or_stop() -> None:
    step = look(deployment(replica(R.READY, process(evidence=replace(GONE, boot_id="b2")))))
    assert settles(step) == [("p1", P.READY, P.FAILED, Reason.NODE_LOST)]
    assert not only(step, Collect)
    assert not only(step, Stop)
    assert moves(step) == [(R.READY, R.BACKOFF, Reason.NODE_LOST)]


# Stopping, pausing, changing, scaling


def test_a_stop_wish_stops_what_runs_and_forgets_what_was_never_started() -> None:
    gang = replica(R.STARTING, process(P.STARTING, "a", evidence=LOADING), process(P.PENDING, "b", wave=1))
    step = look(deployment(gang, wish=Wish.STOPPED))
    assert settles(step) == [
        ("a", P.STARTING, P.STOPPING, Reason.STOPPED_BY_OPERATOR),
        ("b", P.PENDING, P.STOPPED, Reason.STOPPED_BY_OPERATOR),
    ]
    assert [action.never_requested for action in only(step, Settle)] == [False, True]
    (move,) = only(step, MoveReplica)
    assert (move.new, move.retire) == (R.STOPPING, True)
    assert step.state is D.STOPPING


def test_a_start_that_may_be_under_way_is_stopped_with_proof() -> None:
    asked = process(P.PENDING, launch_requested=True, deadline=NOW + 9)
    step = look(deployment(replica(R.PENDING, asked), wish=Wish.STOPPED))
    assert settles(step) == [("p1", P.PENDING, P.STOPPING, Reason.STOPPED_BY_OPERATOR)]
    assert [stop.final for stop in only(step, Stop)] == [P.STOPPED]


def test_a_stopped_deployment_is_looked_at_only_when_nudged() -> None:
    gone = replica(R.STOPPING, process(P.STOPPED, reason=Reason.STOPPED_BY_OPERATOR), retiring=True)
    step = look(deployment(gone, wish=Wish.STOPPED))
    assert moves(step) == [(R.STOPPING, R.STOPPED, Reason.STOPPED_BY_OPERATOR)]
    assert step.state is D.STOPPED
    assert look(deployment(wish=Wish.STOPPED)) == Plan((), D.STOPPED, None)


def test_a_replica_that_is_stopping_already_is_still_marked_to_go() -> None:
    stopping = replica(R.STOPPING, process(P.STOPPING, reason=Reason.EXITED, evidence=ORPHANED))
    (move,) = only(look(deployment(stopping, wish=Wish.STOPPED)), MoveReplica)
    assert (move.old, move.new, move.retire) == (R.STOPPING, R.STOPPING, True)


def test_a_retiring_replica_goes_on_retiring_when_the_wish_returns() -> None:
    going = replica(R.STOPPING, process(P.STOPPING, reason=Reason.STOPPED_BY_OPERATOR), retiring=True)
    step = look(deployment(going))
    assert [stop.process_id for stop in only(step, Stop)] == ["p1"]
    assert not only(step, Place)


def test_a_stop_that_was_taken_back_halfway_is_not_a_failure() -> None:
    halfway = replica(R.READY, process(P.STOPPED, reason=Reason.STOPPED_BY_OPERATOR), ready_since=NOW - 5)
    step = look(deployment(halfway))
    assert moves(step) == [(R.READY, R.PENDING, Reason.APPLIED)]
    assert only(step, Place) == [Place("r1", 2)]
    assert step.state is D.PENDING


@pytest.mark.parametrize(
    "waiting",
    [
        replica(R.PENDING),
        replica(R.BACKOFF, process(P.FAILED, reason=Reason.EXITED), next_attempt_at=NOW - 5),
        replica(R.PENDING, process(P.PENDING)),
    ],
    ids=["not placed", "backing off", "not launched"],
)
def test_a_pause_starts_nothing_new(waiting) -> None:
    step = look(deployment(waiting, wish=Wish.PAUSED, replicas_wished=2))
    assert step.actions == ()
    assert step.next_look_at is not None
    assert step.next_look_at > NOW


def test_a_pause_leaves_what_runs_and_still_ends_a_broken_gang() -> None:
    assert look(deployment(replica(R.READY, process(), ready_since=NOW), wish=Wish.PAUSED)).actions == ()
    broken = replica(R.READY, process(P.READY, "a", evidence=GONE), process(P.READY, "b"))
    assert [stop.process_id for stop in only(look(deployment(broken, wish=Wish.PAUSED)), Stop)] == ["b"]


def test_a_change_retires_the_old_generation_and_makes_no_new_one_beside_it() -> None:
    step = look(deployment(replica(R.READY, process()), generation=2))
    assert settles(step) == [("p1", P.READY, P.STOPPING, Reason.SUPERSEDED)]
    assert moves(step) == [(R.READY, R.STOPPING, Reason.SUPERSEDED)]
    assert not only(step, CreateReplica)


@pytest.mark.parametrize("state", [R.PENDING, R.BACKOFF, R.FAILED])
def test_a_change_retires_a_replica_without_processes_too(state: ReplicaState) -> None:
    step = look(deployment(replica(state, next_attempt_at=NOW + 99), generation=2))
    assert moves(step) == [(state, R.STOPPED, Reason.SUPERSEDED)]
    assert not only(step, Place)


def test_scaling_down_retires_the_surplus_only() -> None:
    keep = replica(R.READY, process(P.READY, "a"), ready_since=NOW - 5)
    surplus = replica(R.READY, process(P.READY, "b"), id="r2", index=1, ready_since=NOW - 5)
    step = look(deployment(keep, surplus, replicas_wished=1))
    assert [stop.process_id for stop in only(step, Stop)] == ["b"]
    assert [move.replica_id for move in only(step, MoveReplica)] == ["r2"]
    assert step.state is D.READY


def test_scaling_up_adds_only_what_is_missing() -> None:
    keep = replica(R.READY, process(), ready_since=NOW - 5)
    step = look(deployment(keep, replicas_wished=3))
    assert step.actions == (CreateReplica(1, 1), CreateReplica(2, 1))
    assert step.state is D.DEGRADED


def test_something_that_moves_is_looked_at_sooner_than_something_steady() -> None:
    starting = look(deployment(replica(R.STARTING, process(P.STARTING, evidence=LOADING))))
    assert starting.next_look_at == NOW + POLICY.look_active
