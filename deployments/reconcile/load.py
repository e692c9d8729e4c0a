"""Rows into the frozen views that the planner works on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from django.db.models import F

from deployments.domain.evidence import evidence_of
from deployments.domain.fold import fails
from deployments.domain.specs import DeploymentView, LayoutSpec, ProcessView, ReplicaView
from deployments.domain.states import DeploymentState, ProcessState, Reason, ReplicaState, Wish
from deployments.models import Deployment, Node, ParallelLayout, Process, Replica

# Kept in columns of their own, or said by there being evidence at all.
LABELS = frozenset({"phase", "progress", "known"})


def layout_spec(row: ParallelLayout) -> LayoutSpec:
    """A layout row as the planner's value."""
    return LayoutSpec(
        row.kind, row.backend, row.tensor_parallel_size, row.pipeline_parallel_size, row.data_parallel_size
    )


def load(deployment: Deployment) -> DeploymentView:
    """A deployment with its living replicas and the processes of their current attempts; three queries at any size."""
    replicas = list(deployment.replicas.exclude(state=ReplicaState.STOPPED).order_by("index", "created_at"))
    current = Process.objects.filter(replica__in=replicas, attempt=F("replica__attempt")).order_by("wave", "rank")
    rows = list(current)
    # Reports are large: each node's is read once, however many processes it has.
    nodes = Node.objects.only("report", "heard_at").in_bulk({row.node_id for row in rows})
    processes = defaultdict(list)
    for row in rows:
        processes[row.replica_id].append(_process(row, nodes[row.node_id]))
    return DeploymentView(
        id=deployment.pk,
        name=deployment.name,
        wish=Wish(deployment.wish),
        generation=deployment.generation,
        replicas_wished=deployment.replicas_wished,
        state=DeploymentState(deployment.state),
        layout=layout_spec(deployment.layout),
        start_deadline=deployment.start_deadline,
        replicas=tuple(_replica(row, tuple(processes[row.pk])) for row in replicas),
    )


def _replica(row: Replica, processes: tuple[ProcessView, ...]) -> ReplicaView:
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
        processes=processes,
    )


def _process(row: Process, node: Node) -> ProcessView:
    probe = row.spec.get("probe") or {}
    view = ProcessView(
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
    if view.state is not ProcessState.READY or view.evidence is None or not fails(view.probe_kind, view.evidence):
        return view
    return replace(view, unhealthy_since=row.evidence.get("failing_since") or view.heard_at)


def seen_of(view: ProcessView) -> dict[str, Any]:
    """What the node said of a process, as its row and its history keep it: {} where nothing was seen."""
    if view.evidence is None or not view.evidence.known:
        return {}
    facts = {name: value for name, value in asdict(view.evidence).items() if name not in LABELS and value is not None}
    return facts if view.unhealthy_since is None else facts | {"failing_since": view.unhealthy_since}


def _epoch(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
