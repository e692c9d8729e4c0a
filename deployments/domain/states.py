"""States, the edges between them, and the reasons for taking one. Nothing else.

The drawing is in ARCHITECTURE.md; `deployments.transitions.move` is the only function that takes an edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any


class ProcessState(StrEnum):
    PENDING = "PENDING"
    STARTING = "STARTING"
    READY = "READY"
    UNHEALTHY = "UNHEALTHY"
    UNKNOWN = "UNKNOWN"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class ReplicaState(StrEnum):
    PENDING = "PENDING"
    STARTING = "STARTING"
    READY = "READY"
    DEGRADED = "DEGRADED"
    STOPPING = "STOPPING"
    BACKOFF = "BACKOFF"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


class DeploymentState(StrEnum):
    STOPPED = "STOPPED"
    STOPPING = "STOPPING"
    READY = "READY"
    FAILED = "FAILED"
    DEGRADED = "DEGRADED"
    STARTING = "STARTING"
    PENDING = "PENDING"
    UNKNOWN = "UNKNOWN"


class NodeState(StrEnum):
    UNKNOWN = "UNKNOWN"
    READY = "READY"
    NOT_READY = "NOT_READY"
    UNREACHABLE = "UNREACHABLE"


class JobState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Wish(StrEnum):
    """What people want of a deployment."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class NodeIntent(StrEnum):
    """What people want of a node."""

    ACTIVE = "ACTIVE"
    CORDONED = "CORDONED"
    DRAINING = "DRAINING"


P, R, J = ProcessState, ReplicaState, JobState

PROCESS_EDGES: dict[ProcessState, frozenset[ProcessState]] = {
    P.PENDING: frozenset({P.STARTING, P.FAILED, P.STOPPED, P.STOPPING}),
    P.STARTING: frozenset({P.READY, P.STOPPING, P.UNKNOWN, P.FAILED}),
    P.READY: frozenset({P.UNHEALTHY, P.STOPPING, P.UNKNOWN, P.FAILED}),
    P.UNHEALTHY: frozenset({P.READY, P.STOPPING, P.UNKNOWN, P.FAILED}),
    P.UNKNOWN: frozenset({P.STARTING, P.READY, P.UNHEALTHY, P.STOPPING, P.FAILED}),
    P.STOPPING: frozenset({P.STOPPED, P.FAILED}),
    P.STOPPED: frozenset(),
    P.FAILED: frozenset(),
}
# A replica's state is derived from its processes, so any change between living states may be seen; the ends are final.
_REPLICA_LIVE = frozenset({R.PENDING, R.STARTING, R.READY, R.DEGRADED, R.STOPPING, R.BACKOFF, R.FAILED, R.STOPPED})
REPLICA_EDGES: dict[ReplicaState, frozenset[ReplicaState]] = {
    state: (_REPLICA_LIVE - {state} if state is not R.STOPPED else frozenset()) for state in ReplicaState
}
JOB_EDGES: dict[JobState, frozenset[JobState]] = {
    J.PENDING: frozenset({J.RUNNING, J.CANCELLED, J.FAILED}),
    J.RUNNING: frozenset({J.SUCCEEDED, J.FAILED, J.CANCELLING}),
    J.CANCELLING: frozenset({J.CANCELLED, J.SUCCEEDED, J.FAILED}),
    J.SUCCEEDED: frozenset(),
    J.FAILED: frozenset(),
    J.CANCELLED: frozenset(),
}
PROCESS_FINAL = frozenset({P.STOPPED, P.FAILED})
PROCESS_ALIVE = frozenset(ProcessState) - PROCESS_FINAL
JOB_FINAL = frozenset({J.SUCCEEDED, J.FAILED, J.CANCELLED})


class Reason(StrEnum):
    """Why a state was entered. `retryable` says whether a new attempt can help."""

    APPLIED = "APPLIED"
    ROLLED_UP = "ROLLED_UP"
    PLACED = "PLACED"
    LAUNCHED = "LAUNCHED"
    PROBE_PASSED = "PROBE_PASSED"
    PROBE_FAILED = "PROBE_FAILED"
    ADOPTED = "ADOPTED"
    NODE_SILENT = "NODE_SILENT"
    STOPPED_BY_OPERATOR = "STOPPED_BY_OPERATOR"
    FORCED_BY_OPERATOR = "FORCED_BY_OPERATOR"
    SUPERSEDED = "SUPERSEDED"
    ORPHAN_STOPPED = "ORPHAN_STOPPED"
    PEER_FAILED = "PEER_FAILED"
    EXITED = "EXITED"
    START_TIMEOUT = "START_TIMEOUT"
    UNRESPONSIVE = "UNRESPONSIVE"
    NODE_LOST = "NODE_LOST"
    NEVER_STARTED = "NEVER_STARTED"
    BACKING_OFF = "BACKING_OFF"
    ATTEMPTS_USED_UP = "ATTEMPTS_USED_UP"
    UNPLACEABLE = "UNPLACEABLE"
    UNREACHABLE = "UNREACHABLE"
    PORT_IN_USE = "PORT_IN_USE"
    FENCED = "FENCED"
    AUTH_FAILED = "AUTH_FAILED"
    HOST_KEY_CHANGED = "HOST_KEY_CHANGED"
    HOST_KEY_UNKNOWN = "HOST_KEY_UNKNOWN"
    INTERPRETER_MISSING = "INTERPRETER_MISSING"
    ENGINE_MISSING = "ENGINE_MISSING"
    MODEL_MISSING = "MODEL_MISSING"
    UNKNOWN_FLAG = "UNKNOWN_FLAG"
    INVALID_OPTION = "INVALID_OPTION"
    INVALID_LAYOUT = "INVALID_LAYOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    MEMORY_HELD = "MEMORY_HELD"
    MODEL_UNSUPPORTED = "MODEL_UNSUPPORTED"
    EXEC_FAILED = "EXEC_FAILED"
    JOB_STARTED = "JOB_STARTED"
    JOB_DONE = "JOB_DONE"
    JOB_FAILED = "JOB_FAILED"
    CANCELLED = "CANCELLED"

    @property
    def retryable(self) -> bool:
        return self not in NO_RETRY


NO_RETRY = frozenset(
    {
        Reason.AUTH_FAILED,
        Reason.HOST_KEY_CHANGED,
        Reason.HOST_KEY_UNKNOWN,
        Reason.INTERPRETER_MISSING,
        Reason.ENGINE_MISSING,
        Reason.MODEL_MISSING,
        Reason.MODEL_UNSUPPORTED,
        Reason.UNKNOWN_FLAG,
        Reason.INVALID_OPTION,
        Reason.INVALID_LAYOUT,
        Reason.OUT_OF_MEMORY,
        Reason.EXEC_FAILED,
        Reason.ATTEMPTS_USED_UP,
    }
)


def may_move(edges: Mapping[Any, frozenset[Any]], old: StrEnum, new: StrEnum) -> bool:
    """Whether the table `edges` has an edge from `old` to `new`."""
    return new in edges[old]


def final_processes(states: Iterable[ProcessState]) -> bool:
    """True when every state is final (also for none at all)."""
    return all(state in PROCESS_FINAL for state in states)
