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


@dataclass(frozen=True, slots=True)
class Settle:
    """Move a process to a state."""

    process_id: str
    old: ProcessState
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CreateReplica:
    """A row for a replica that is missing."""

    index: int
    generation: int


@dataclass(frozen=True, slots=True)
class Place:
    """Find seats for a replica's next attempt and write its processes down."""

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
    """Store a replica's derived state. `retire` marks it as one to be stopped for good."""

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
    return Plan(tuple(actions), state, _next_look(actions, after, state, now, policy))


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
    actions: list[Action], after: list[ReplicaView], state: DeploymentState, now: float, policy: Policy
) -> float | None:
    if actions:
        return now + policy.look_active
    if state is DeploymentState.STOPPED:
        return None
    waiting = [replica.next_attempt_at for replica in after if replica.state is R.BACKOFF and replica.next_attempt_at]
    moving = any(
        process.state not in (P.READY, *PROCESS_FINAL) for replica in after for process in replica.processes
    ) or any(replica.state is R.PENDING for replica in after)
    return min([now + (policy.look_active if moving else policy.look_steady), *waiting])


def _plan_replica(
    deployment: DeploymentView, replica: ReplicaView, now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    if replica.state is R.STOPPED:
        return [], replica
    retiring = replica.retiring or deployment.wish is Wish.STOPPED or not _is_current(deployment, replica)
    settles, replica = _settle(replica, now, policy)
    why = Reason.STOPPED_BY_OPERATOR if deployment.wish is Wish.STOPPED else Reason.SUPERSEDED
    if retiring:
        steps, replica = _wind_down(replica, why, now, policy)
        return settles + steps + _store(replica, *_retired(replica), why, retire=True)[0], _retired_view(replica)
    failed = next((process for process in replica.processes if process.state is P.FAILED), None)
    if failed or any(process.state is P.STOPPING for process in replica.processes):
        return _after_failure(deployment, replica, settles, now, policy)
    if not replica.processes or all(process.state in PROCESS_FINAL for process in replica.processes):
        return settles + _next_attempt(deployment, replica, now), replica
    launches = _launches(replica, paused=deployment.wish is Wish.PAUSED)
    moves, replica = _store(
        replica, replica_state([process.state for process in replica.processes]), "", Reason.PROBE_PASSED, now=now
    )
    return settles + launches + moves, replica


def _settle(replica: ReplicaView, now: float, policy: Policy) -> tuple[list[Action], ReplicaView]:
    """Fold the reports in; the rest of the pass works on what the processes have become."""
    actions: list[Action] = []
    processes = []
    for process in replica.processes:
        verdict = fold(process, now, policy)
        if verdict is not None:
            actions.append(Settle(process.id, process.state, verdict))
            process = replace(process, state=verdict.state, reason=verdict.reason, since=now)
        processes.append(process)
    return actions, replace(replica, processes=tuple(processes))


def _wind_down(replica: ReplicaView, why: Reason, now: float, policy: Policy) -> tuple[list[Action], ReplicaView]:
    """Stop whatever of a replica is not yet proven gone."""
    actions: list[Action] = []
    processes = []
    for process in replica.processes:
        if process.state is P.PENDING and not process.launch_requested:
            actions.append(Settle(process.id, P.PENDING, Verdict(P.STOPPED, why, "it was never started")))
            process = replace(process, state=P.STOPPED, reason=why)
        elif process.state not in (P.STOPPING, *PROCESS_FINAL):
            actions.append(Settle(process.id, process.state, Verdict(P.STOPPING, why, "a stop was asked for")))
            process = replace(process, state=P.STOPPING, reason=why, since=now)
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


def _retired(replica: ReplicaView) -> tuple[ReplicaState, str]:
    if all(process.state in PROCESS_FINAL for process in replica.processes):
        return R.STOPPED, "nothing of it is left"
    return R.STOPPING, "waiting for the proof that its processes are gone"


def _retired_view(replica: ReplicaView) -> ReplicaView:
    return replace(replica, state=_retired(replica)[0], retiring=True)


def _after_failure(
    deployment: DeploymentView, replica: ReplicaView, settles: list[Action], now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    """The gang rule: one failed, so all stop; when all are proven gone, wait and try again, or give up."""
    steps, replica = _wind_down(replica, Reason.PEER_FAILED, now, policy)
    if not all(process.state in PROCESS_FINAL for process in replica.processes):
        moves, replica = _store(replica, R.STOPPING, "one process failed, so all of them stop", Reason.PEER_FAILED)
        return settles + steps + moves, replica
    if replica.state in (R.BACKOFF, R.FAILED):
        return settles + steps + _due(deployment, replica, now), replica
    return _count_failure(replica, settles + steps, now, policy)


def _due(deployment: DeploymentView, replica: ReplicaView, now: float) -> list[Action]:
    if deployment.wish is not Wish.RUNNING:
        return []
    due = replica.state is R.BACKOFF and replica.next_attempt_at is not None and now >= replica.next_attempt_at
    return [Place(replica.id, replica.attempt + 1)] if due else []


def _count_failure(
    replica: ReplicaView, before: list[Action], now: float, policy: Policy
) -> tuple[list[Action], ReplicaView]:
    first = next(process for process in replica.processes if process.state is P.FAILED)
    reason = first.reason or Reason.EXITED
    healthy = replica.ready_since is not None and now - replica.ready_since >= policy.healthy_reset
    failures = 1 if healthy else replica.failures + 1
    if not reason.retryable:
        moves, then = _store(replica, R.FAILED, "trying again cannot help", reason, failures=failures)
    elif failures >= policy.max_attempts:
        note = f"{failures} attempts in a row failed; the last: {reason.value}"
        moves, then = _store(replica, R.FAILED, note, Reason.ATTEMPTS_USED_UP, failures=failures)
    else:
        at = now + policy.backoff(failures)
        note = f"attempt {replica.attempt + 1} in {policy.backoff(failures):.0f} s"
        moves, then = _store(replica, R.BACKOFF, note, reason, failures=failures, at=at)
    return before + moves, then


def _next_attempt(deployment: DeploymentView, replica: ReplicaView, now: float) -> list[Action]:
    """A replica without living processes and without a failure to account for: place it when its time has come."""
    if deployment.wish is not Wish.RUNNING or replica.state is R.FAILED:
        return []
    if replica.next_attempt_at is not None and now < replica.next_attempt_at:
        return []
    return [Place(replica.id, replica.attempt + 1)]


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
    note: str,
    reason: Reason,
    *,
    failures: int | None = None,
    at: float | None = None,
    now: float | None = None,
    retire: bool = False,
) -> tuple[list[Action], ReplicaView]:
    """Keep a derived state if it differs from the stored one."""
    count = replica.failures if failures is None else failures
    ready_since = replica.ready_since
    if state is R.READY and replica.state is not R.READY:
        ready_since = now
    then = replace(
        replica,
        state=state,
        failures=count,
        next_attempt_at=at,
        ready_since=ready_since,
        reason=reason,
        retiring=retire,
    )
    if state is replica.state and (not retire or replica.retiring):
        return [], replace(replica, retiring=retire)
    move = MoveReplica(replica.id, replica.state, state, reason, note, count, at, ready_since, retire)
    return [move], then
