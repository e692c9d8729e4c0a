"""Short ways to write down what the planner is given. The clock stands at NOW."""

from __future__ import annotations

from typing import Any

from deployments.domain.policy import Policy
from deployments.domain.specs import DeploymentView, LayoutSpec, ProcessEvidence, ProcessView, ReplicaView
from deployments.domain.states import DeploymentState, ProcessState, ReplicaState, Wish

NOW = 10_000.0
POLICY = Policy()
SERVING = ProcessEvidence(
    known=True, alive=True, members=3, health_status=200, model_listed=True, completion_ok=True, boot_id="b1"
)
LOADING = ProcessEvidence(known=True, alive=True, members=3, boot_id="b1", phase="loading", progress=40)
REFUSED = ProcessEvidence(known=True, alive=True, members=3, completion_ok=True, boot_id="b1")
GONE = ProcessEvidence(known=True, alive=False, members=0, exit_code=1, boot_id="b1")
ORPHANED = ProcessEvidence(known=True, alive=False, members=2, exit_signal=9, boot_id="b1")
UNHEARD_OF = ProcessEvidence(known=False, boot_id="b1")


def process(state: ProcessState = ProcessState.READY, id: str = "p1", **fields: Any) -> ProcessView:
    """A process on node 1, launched a while ago, whose node has just spoken."""
    pending = state is ProcessState.PENDING
    values: dict[str, Any] = {
        "node_id": 1,
        "role": "engine",
        "group": "main",
        "member": 0,
        "rank": 0,
        "wave": 0,
        "reason": None,
        "since": NOW - 100,
        "probe_kind": "openai",
        "launch_requested": not pending,
        "launch_boot_id": None if pending else "b1",
        "evidence": None if pending else SERVING,
        "heard_at": NOW - 1,
    }
    return ProcessView(id=id, state=state, **(values | fields))


def replica(state: ReplicaState = ReplicaState.READY, *processes: ProcessView, **fields: Any) -> ReplicaView:
    values: dict[str, Any] = {
        "id": "r1",
        "index": 0,
        "generation": 1,
        "attempt": 1 if processes else 0,
        "failures": 0,
        "next_attempt_at": None,
    }
    return ReplicaView(state=state, processes=processes, **(values | fields))


def deployment(*replicas: ReplicaView, wish: Wish = Wish.RUNNING, **fields: Any) -> DeploymentView:
    values: dict[str, Any] = {
        "id": 1,
        "name": "chat",
        "generation": 1,
        "replicas_wished": 1,
        "state": DeploymentState.STARTING,
        "layout": LayoutSpec("single"),
    }
    return DeploymentView(wish=wish, replicas=replicas, **(values | fields))
