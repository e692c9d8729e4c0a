"""Rows into the frozen views that the planner works on."""

from __future__ import annotations

from datetime import datetime

from deployments.domain.evidence import evidence_of
from deployments.domain.specs import DeploymentView, LayoutSpec, ProcessView, ReplicaView
from deployments.domain.states import DeploymentState, ProcessState, Reason, ReplicaState, Wish
from deployments.models import Deployment, ParallelLayout, Process, Replica


def layout_spec(row: ParallelLayout) -> LayoutSpec:
    """A layout row as the planner's value."""
    return LayoutSpec(
        row.kind, row.backend, row.tensor_parallel_size, row.pipeline_parallel_size, row.data_parallel_size
    )


def load(deployment: Deployment) -> DeploymentView:
    """A deployment with its living replicas and the processes of their current attempts."""
    replicas = deployment.replicas.exclude(state=ReplicaState.STOPPED).order_by("index", "created_at")
    return DeploymentView(
        id=deployment.pk,
        name=deployment.name,
        wish=Wish(deployment.wish),
        generation=deployment.generation,
        replicas_wished=deployment.replicas_wished,
        state=DeploymentState(deployment.state),
        layout=layout_spec(deployment.layout),
        start_deadline=deployment.start_deadline,
        replicas=tuple(_replica(row) for row in replicas),
    )


def _replica(row: Replica) -> ReplicaView:
    processes = row.processes.filter(attempt=row.attempt).select_related("node").order_by("wave", "rank")
    return ReplicaView(
        id=str(row.pk),
        index=row.index,
        generation=row.generation,
        state=ReplicaState(row.state),
        attempt=row.attempt,
        failures=row.failures,
        next_attempt_at=_epoch(row.next_attempt_at),
        reason=Reason(row.reason) if row.reason else None,
        ready_since=_epoch(row.ready_since),
        retiring=row.retiring,
        processes=tuple(_process(process) for process in processes),
    )


def _process(row: Process) -> ProcessView:
    probe = row.spec.get("probe") or {}
    node = row.node
    return ProcessView(
        id=str(row.pk),
        node_id=row.node_id,
        role=row.role,
        group=row.group,
        member=row.member,
        rank=row.rank,
        wave=row.wave,
        state=ProcessState(row.state),
        reason=Reason(row.reason) if row.reason else None,
        since=row.since.timestamp(),
        probe_kind=probe.get("kind", "alive"),
        launch_requested=row.launch_requested_at is not None,
        launch_boot_id=row.launch_boot_id or None,
        deadline=_epoch(row.deadline),
        evidence=evidence_of(node.report, str(row.pk), probe.get("model")) if node.report else None,
        heard_at=_epoch(node.heard_at),
        stop_grace=row.spec.get("stop_grace"),
        served=row.ready_at is not None,
    )


def _epoch(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
