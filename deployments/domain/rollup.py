"""What a whole is, from what its parts are."""

from __future__ import annotations

from collections.abc import Sequence

from .states import DeploymentState, ProcessState, ReplicaState, Wish

P, R, D = ProcessState, ReplicaState, DeploymentState


def replica_state(states: Sequence[ProcessState]) -> ReplicaState:
    """State of a replica whose current attempt has these processes; at least one of them is not final."""
    alive = [state for state in states if state not in (P.STOPPED, P.FAILED)]
    if P.STOPPING in alive or len(alive) < len(states):
        return R.STOPPING
    if all(state is P.READY for state in alive):
        return R.READY
    if any(state in (P.UNHEALTHY, P.UNKNOWN) for state in alive):
        return R.DEGRADED
    if all(state is P.PENDING for state in alive):
        return R.PENDING
    return R.STARTING


def deployment_state(
    wish: Wish, replicas: Sequence[tuple[ReplicaState, bool]], wished: int, *, blind: bool = False
) -> DeploymentState:
    """State of a deployment.

    Args:
        wish: What people want.
        replicas: (state, is of the current generation and not retiring) of each replica that is not STOPPED.
        wished: Number of replicas wanted.
        blind: Every living process is UNKNOWN.
    """
    if wish is Wish.STOPPED:
        return D.STOPPING if replicas else D.STOPPED
    current = [state for state, is_current in replicas if is_current]
    ready = sum(state is R.READY for state in current)
    if blind:
        return D.UNKNOWN
    if ready >= wished:
        return D.READY
    if ready == 0 and R.FAILED in current:
        return D.FAILED
    if ready > 0 or R.DEGRADED in current:
        return D.DEGRADED
    if any(state in (R.STARTING, R.STOPPING, R.BACKOFF) for state, _ in replicas):
        return D.STARTING
    return D.PENDING
