"""The planner: a deployment's rows and the clock in, actions and the next moment to look out. Touches nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .fold import Verdict, fold
from .policy import Policy
from .rollup import deployment_state, replica_state
from .specs import DeploymentView, ProcessView, ReplicaView
from .states import PROCESS_FINAL, DeploymentState, ProcessState, Reason, ReplicaState, Wish

P, R = ProcessState, ReplicaState
ASKED = frozenset({Reason.STOPPED_BY_OPERATOR, Reason.SUPERSEDED, Reason.PEER_FAILED, Reason.FORCED_BY_OPERATOR})
ENDING = frozenset({P.STOPPING, P.STOPPED, P.FAILED})
# Ends that leave nothing to look at: the machine forgot it, or it never reached the machine.
NO_TRACE = frozenset({Reason.NODE_LOST, Reason.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class Settle:
    """Move a process to a state, if it is still in `old`, and store the deadline of the new one.

    `boot_id` is to be stored as the process's launch boot id where it is given (an answer to a start that was lost).
    `never_requested`: only if no launch of it was asked for in the meantime.
    """

    process_id: str
    old: ProcessState
    verdict: Verdict
    deadline: float | None = None
    boot_id: str | None = None
    never_requested: bool = False


@dataclass(frozen=True, slots=True)
class CreateReplica:
    """A row for a replica that is missing."""

    index: int
    generation: int


@dataclass(frozen=True, slots=True)
class Place:
    """Find seats for a replica's next attempt and write its processes down: all of them or nothing.

    With the rows the attempt is counted, `next_attempt_at` is cleared and the state becomes PENDING. Without seats the
    state is kept and `next_attempt_at` says when to look for some again.
    """

    replica_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Launch:
    process_id: str


@dataclass(frozen=True, slots=True)
class Collect:
    """Keep the evidence of a failed process before it is cleared away."""

    process_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a process on its node and prove it. `final` is the state that the proof brings."""

    process_id: str
    final: ProcessState
    reason: Reason
    grace_s: float
    kill_s: float


@dataclass(frozen=True, slots=True)
class MoveReplica:
    """Store a replica's derived state. `old` equals `new` where only the other columns change.

    `retire` marks it as one to be stopped for good.
    """

    replica_id: str
    old: ReplicaState
    new: ReplicaState
    reason: Reason
    note: str
    failures: int
    next_attempt_at: float | None
    ready_since: float | None
    retire: bool = False


Action = Settle | CreateReplica | Place | Launch | Collect | Stop | MoveReplica


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, the deployment's state after it, and when to look again (epoch seconds; None = when nudged)."""

    actions: tuple[Action, ...]
    state: DeploymentState
    next_look_at: float | None


def plan(deployment: DeploymentView, now: float, policy: Policy) -> Plan:
    """One step towards the wish."""
    actions: list[Action] = []
    after: list[ReplicaView] = []
    for replica in deployment.replicas:
        steps, then = _plan_replica(deployment, replica, now, policy)
        actions += steps
        after.append(then)
    actions += _missing(deployment)
    state = _roll_up(deployment, after)
    return Plan(tuple(actions), state, _next_look(deployment, actions, after, state, now, policy))


def _roll_up(deployment: DeploymentView, after: list[ReplicaView]) -> DeploymentState:
    live = [replica for replica in after if replica.state is not R.STOPPED]
    processes = [process for replica in live for process in replica.processes if process.state not in PROCESS_FINAL]
    blind = bool(processes) and all(process.state is P.UNKNOWN for process in processes)
    states = [(replica.state, _is_current(deployment, replica)) for replica in live]
    return deployment_state(deployment.wish, states, deployment.replicas_wished, blind=blind)


def _is_current(deployment: DeploymentView, replica: ReplicaView) -> bool:
    return replica.generation == deployment.generation and not replica.retiring and not _surplus(deployment, replica)


def _surplus(deployment: DeploymentView, replica: ReplicaView) -> bool:
    return replica.index >= deployment.replicas_wished


def _missing(deployment: DeploymentView) -> list[Action]:
    """Replicas that are wished for and have no row. An index is free again once its old replica is STOPPED."""
    if deployment.wish is not Wish.RUNNING:
        return []
    taken = {replica.index for replica in deployment.replicas if replica.state is not R.STOPPED}
    return [CreateReplica(i, deployment.generation) for i in range(deployment.replicas_wished) if i not in taken]


def _next_look(
    deployment: DeploymentView,
    actions: list[Action],
    after: list[ReplicaView],
    state: DeploymentState,
    now: float,
    policy: Policy,
) -> float | None:
    if actions:
        return now + policy.look_active
    if state is DeploymentState.STOPPED:
        return None
    moving = any(process.state not in (P.READY, *PROCESS_FINAL) for replica in after for process in replica.processes)
    looks = [now + (policy.look_active if moving else policy.look_steady)]
    if deployment.wish is Wish.RUNNING:
        looks += [at for replica in after if (at := replica.next_attempt_at) is not None and at > now]
    return min(looks)


def _plan_replica(
    deployment: DeploymentView, replica: ReplicaView, now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    if replica.state is R.STOPPED:
        return [], replica
    settles, replica = _settle(deployment, replica, now, policy)
    if deployment.wish is Wish.STOPPED or not _is_current(deployment, replica):
        steps, replica = _retire(deployment, replica, now, policy)
    elif any(process.state in ENDING for process in replica.processes):
        steps, replica = _after_failure(deployment, replica, now, policy)
    elif not replica.processes:
        steps, replica = _next_attempt(deployment, replica, now, policy)
    else:
        state = replica_state([process.state for process in replica.processes])
        moves, then = _store(replica, state, _why(replica, state), "", now, policy)
        steps, replica = _launches(replica, paused=deployment.wish is Wish.PAUSED) + moves, then
    return settles + steps, replica


def _why(replica: ReplicaView, state: ReplicaState) -> Reason:
    """Why a replica that is neither ending nor waiting is in a state."""
    if state is R.DEGRADED and any(process.state is P.UNKNOWN for process in replica.processes):
        return Reason.NODE_SILENT
    known = {R.READY: Reason.PROBE_PASSED, R.DEGRADED: Reason.PROBE_FAILED, R.PENDING: Reason.PLACED}
    return known.get(state, Reason.LAUNCHED)


def _settle(
    deployment: DeploymentView, replica: ReplicaView, now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    """Fold the reports in; the rest of the pass works on what the processes have become."""
    actions: list[Action] = []
    processes = []
    for process in replica.processes:
        verdict = fold(process, now, policy)
        if verdict is not None:
            actions += _move(deployment, process, verdict, now, policy)
            process = replace(process, state=verdict.state, reason=verdict.reason, since=now)
        processes.append(process)
    return actions, replace(replica, processes=tuple(processes))


def _move(
    deployment: DeploymentView, process: ProcessView, verdict: Verdict, now: float, policy: Policy
) -> list[Action]:
    """One move with the deadline of its new state; of what ended by itself the evidence is kept."""
    patience = {P.STARTING: deployment.start_deadline or policy.start_deadline, P.UNHEALTHY: policy.unhealthy_patience}
    deadline = now + patience[verdict.state] if verdict.state in patience else None
    lost_reply = process.state is P.PENDING and verdict.state is P.STARTING and process.evidence is not None
    boot_id = process.evidence.boot_id if lost_reply and process.evidence else None
    never = process.state is P.PENDING and not process.launch_requested
    move = Settle(process.id, process.state, verdict, deadline, boot_id, never)
    keep = verdict.state is P.FAILED and verdict.reason not in NO_TRACE
    return [move, Collect(process.id)] if keep else [move]


def _wind_down(
    deployment: DeploymentView, replica: ReplicaView, why: Reason, now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    """Stop whatever of a replica is not yet proven gone."""
    actions: list[Action] = []
    processes = []
    for process in replica.processes:
        verdict = None
        if process.state is P.PENDING and not process.launch_requested:
            verdict = Verdict(P.STOPPED, why, "it was never started")
        elif process.state not in ENDING:
            note = "one of its gang has ended" if why is Reason.PEER_FAILED else "a stop was asked for"
            verdict = Verdict(P.STOPPING, why, note)
        if verdict is not None:
            actions += _move(deployment, process, verdict, now, policy)
            process = replace(process, state=verdict.state, reason=why, since=now)
        if process.state is P.STOPPING:
            actions += _stop(process, policy)
        processes.append(process)
    return actions, replace(replica, processes=tuple(processes))


def _stop(process: ProcessView, policy: Policy) -> list[Action]:
    reason = process.reason or Reason.EXITED
    final = P.STOPPED if reason in ASKED else P.FAILED
    grace = policy.stop_grace if process.stop_grace is None else process.stop_grace
    collect: list[Action] = [] if reason in ASKED else [Collect(process.id)]
    return [*collect, Stop(process.id, final, reason, grace, policy.stop_kill)]


def _gone(replica: ReplicaView) -> bool:
    return all(process.state in PROCESS_FINAL for process in replica.processes)


def _retire(
    deployment: DeploymentView, replica: ReplicaView, now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    """Stop a replica for good, whether or not it has processes; another one may then have its place."""
    why = Reason.STOPPED_BY_OPERATOR if deployment.wish is Wish.STOPPED else Reason.SUPERSEDED
    steps, replica = _wind_down(deployment, replica, why, now, policy)
    if _gone(replica):
        state, note = R.STOPPED, "nothing of it is left"
    else:
        state, note = R.STOPPING, "waiting for the proof that its processes are gone"
    moves, replica = _store(replica, state, why, note, now, policy, retire=True)
    return steps + moves, replica


def _after_failure(
    deployment: DeploymentView, replica: ReplicaView, now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    """The gang rule: one ended, so all stop; when all are proven gone, wait and try again, or give up."""
    steps, replica = _wind_down(deployment, replica, Reason.PEER_FAILED, now, policy)
    if not _gone(replica):
        note = "one of its processes has ended, so all of them stop"
        moves, replica = _store(replica, R.STOPPING, Reason.PEER_FAILED, note, now, policy)
    elif _counted(replica) or not any(process.state is P.FAILED for process in replica.processes):
        moves, replica = _next_attempt(deployment, replica, now, policy)
    else:
        moves, replica = _count_failure(replica, now, policy)
    return steps + moves, replica


def _counted(replica: ReplicaView) -> bool:
    """Whether the failure of the current attempt has been accounted for (placing the next one clears the moment)."""
    return replica.state is R.FAILED or (replica.state is R.BACKOFF and replica.next_attempt_at is not None)


def _count_failure(replica: ReplicaView, now: float, policy: Policy) -> tuple[list[Action], ReplicaView]:
    reason = _root(replica)
    failures = _failures(replica, now, policy) + 1
    if not reason.retryable:
        return _store(replica, R.FAILED, reason, "trying again cannot help", now, policy, failures=failures)
    if failures >= policy.max_attempts:
        note = f"{failures} attempts in a row failed; the last: {reason.value}"
        return _store(replica, R.FAILED, Reason.ATTEMPTS_USED_UP, note, now, policy, failures=failures)
    wait = policy.backoff(failures)
    note = f"attempt {replica.attempt + 1} in {wait:.0f} s"
    return _store(replica, R.BACKOFF, reason, note, now, policy, failures=failures, at=now + wait)


def _root(replica: ReplicaView) -> Reason:
    """The reason that explains a gang's failure: one that no retry can help, else the one that ended first."""
    failed = [process for process in replica.processes if process.state is P.FAILED]
    reasons = [process.reason or Reason.EXITED for process in sorted(failed, key=lambda process: process.since)]
    return next((reason for reason in reasons if not reason.retryable), reasons[0])


def _failures(replica: ReplicaView, now: float, policy: Policy) -> int:
    """Failures in a row so far; being READY for long enough forgets them."""
    healthy = replica.state is R.READY and replica.ready_since is not None
    if healthy and replica.ready_since is not None and now - replica.ready_since >= policy.healthy_reset:
        return 0
    return replica.failures


def _next_attempt(
    deployment: DeploymentView, replica: ReplicaView, now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    """A replica with nothing left to stop: place it when its time has come."""
    moves: list[Action] = []
    if replica.state not in (R.PENDING, R.BACKOFF, R.FAILED):
        note, at = "it waits for its next attempt", replica.next_attempt_at
        moves, replica = _store(replica, R.PENDING, Reason.APPLIED, note, now, policy, at=at)
    due = replica.next_attempt_at is None or now >= replica.next_attempt_at
    if deployment.wish is not Wish.RUNNING or replica.state is R.FAILED or not due:
        return moves, replica
    return [*moves, Place(replica.id, replica.attempt + 1)], replica


def _launches(replica: ReplicaView, *, paused: bool) -> list[Action]:
    """The PENDING processes of the lowest wave that is not all READY."""
    if paused:
        return []
    open_waves = [process.wave for process in replica.processes if process.state is not P.READY]
    if not open_waves:
        return []
    wave = min(open_waves)
    return [Launch(p.id) for p in replica.processes if p.wave == wave and p.state is P.PENDING]


def _store(
    replica: ReplicaView,
    state: ReplicaState,
    reason: Reason,
    note: str,
    now: float,
    policy: Policy,
    *,
    failures: int | None = None,
    at: float | None = None,
    retire: bool = False,
) -> tuple[list[Action], ReplicaView]:
    """Keep a derived state if it differs from the stored one."""
    if state is replica.state and failures is None and (not retire or replica.retiring):
        return [], replica
    count = _failures(replica, now, policy) if failures is None else failures
    ready_since = now if state is R.READY else None
    then = replace(
        replica,
        state=state,
        failures=count,
        next_attempt_at=at,
        ready_since=ready_since,
        reason=reason,
        retiring=retire or replica.retiring,
    )
    return [MoveReplica(replica.id, replica.state, state, reason, note, count, at, ready_since, then.retiring)], then
