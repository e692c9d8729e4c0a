"""Taking an edge: compare-and-set, one Transition row, published on commit. Nothing else changes a state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import models, transaction
from django.utils import timezone

from deployments.domain.errors import IllegalTransition
from deployments.domain.states import (
    JOB_EDGES,
    PROCESS_EDGES,
    PROCESS_FINAL,
    REPLICA_EDGES,
    JobState,
    ProcessState,
    Reason,
    ReplicaState,
    may_move,
)
from deployments.models import AcceleratorClaim, Deployment, Job, Node, PortClaim, Process, Replica, Transition

log = logging.getLogger(__name__)

EVENTS_GROUP = "events"
PEOPLE_GROUP = "people.{}"
SYSTEM = "pilothouse"
# How long a broker may take to be told of a transition (s).
TELL_S = 2.0


def move(
    row: Process | Replica | Job,
    new: ProcessState | ReplicaState | JobState,
    reason: Reason,
    note: str = "",
    *,
    actor: str = SYSTEM,
    evidence: dict[str, Any] | None = None,
    where: models.QuerySet | None = None,
    **columns: Any,
) -> bool:
    """Move `row` from the state it was read in to `new`, setting further `columns` in the same update.

    `where` narrows what else must still be true of the row.

    Returns:
        False when somebody else moved it first (nothing is written); True otherwise, with `row` brought up to date.

    Raises:
        IllegalTransition: The table has no such edge.
    """
    kind, edges = _table(row)
    old = type(new)(row.state)
    if not may_move(edges, old, new):
        raise IllegalTransition(f"{kind} {row.pk} cannot go from {old} to {new}.")
    values = {"state": new, "note": note, **_reason(row, reason), **_times(row, new), **columns}
    if isinstance(row, Process) and evidence:
        values["evidence"] = evidence
    with transaction.atomic():
        rows = type(row).objects.all() if where is None else where
        touched = rows.filter(pk=row.pk, state=old).update(**values)
        if not touched:
            return False
        for name, value in values.items():
            setattr(row, name, value)
        if isinstance(row, Process) and new in PROCESS_FINAL:
            _release(row)
        _remember(row, kind, old, new, reason, note, actor, evidence or {})
    return True


def _table(row: models.Model) -> tuple[str, dict]:
    if isinstance(row, Process):
        return "process", PROCESS_EDGES
    if isinstance(row, Replica):
        return "replica", REPLICA_EDGES
    return "job", JOB_EDGES


def _reason(row: models.Model, reason: Reason) -> dict[str, Any]:
    return {} if isinstance(row, Job) else {"reason": reason}


def _times(row: models.Model, new: str) -> dict[str, Any]:
    now = timezone.now()
    if isinstance(row, Job):
        return {"finished_at": now} if new in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED) else {}
    times: dict[str, Any] = {"since": now}
    if isinstance(row, Process) and new in PROCESS_FINAL:
        times["ended_at"] = now
    if isinstance(row, Process) and new == ProcessState.READY and row.ready_at is None:
        times["ready_at"] = now
    return times


def _release(process: Process) -> None:
    """A proven end gives back what was claimed."""
    now = timezone.now()
    for claims in (AcceleratorClaim, PortClaim):
        claims.objects.filter(process=process, released_at__isnull=True).update(released_at=now)


def _remember(
    row: models.Model, kind: str, old: str, new: str, reason: Reason, note: str, actor: str, evidence: dict[str, Any]
) -> None:
    links: dict[str, Any] = {}
    name = ""
    if isinstance(row, Process):
        links = {"deployment_id": row.deployment_id, "node_id": row.node_id}
        name = f"{row.role} {row.rank}"
    elif isinstance(row, Replica):
        links = {"deployment_id": row.deployment_id}
        name = f"replica {row.index}"
    elif isinstance(row, Job):
        links = {"job_id": row.pk}
        name = row.title
    record(kind, row.pk, old, new, reason, note, actor=actor, evidence=evidence, name=name, **links)


def record(
    subject: str,
    subject_id: Any,
    old: str,
    new: str,
    reason: Reason | str,
    note: str = "",
    *,
    actor: str = SYSTEM,
    evidence: dict[str, Any] | None = None,
    name: str = "",
    **links: Any,
) -> Transition:
    """Write one Transition row and tell listeners once it is committed."""
    row = Transition.objects.create(
        subject=subject,
        subject_id=str(subject_id),
        name=name,
        old=old,
        new=new,
        reason=reason,
        note=note,
        actor=actor,
        evidence=evidence or {},
        **links,
    )
    transaction.on_commit(lambda: publish(row))
    return row


def record_all(rows: Sequence[Transition]) -> None:
    """Write many Transition rows at once; listeners are told of all of them by one ring."""
    if rows:
        made = Transition.objects.bulk_create(rows)
        transaction.on_commit(lambda: tell(EVENTS_GROUP, _ring_of(made[-1].pk)))


def publish(row: Transition) -> None:
    """Ring the listeners' bell. They read the rows themselves, so a lost message only delays them."""
    job = None if row.job_id is None else str(row.job_id)
    tell(EVENTS_GROUP, _ring_of(row.pk, row.subject, row.deployment_id, row.node_id, job))


def _ring_of(
    row_id: int, subject: str = "", deployment: int | None = None, node: int | None = None, job: str | None = None
) -> dict[str, Any]:
    """What listeners are told of a transition. Without a subject it stands for many: look at everything."""
    return {"type": "transition", "id": row_id, "subject": subject, "deployment": deployment, "node": node, "job": job}


def ring_pages(*, deployment: int | None = None, job: str | None = None) -> None:
    """Have pages look again at something that changed without a transition, such as progress."""
    message = {"type": "changed", "deployment": deployment, "job": job}
    transaction.on_commit(lambda: tell(EVENTS_GROUP, message))


def ring_person(user_id: int) -> None:
    """Have the open pages of a person checked, once what was written is committed."""
    transaction.on_commit(lambda: tell(PEOPLE_GROUP.format(user_id), {"type": "person"}))


def tell(group: str, message: dict[str, Any]) -> None:
    """Send a message to whoever listens to a group now."""
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async_to_sync(_send_soon)(layer, group, message)
    except Exception as error:  # the broker's absence must not undo or delay what has happened
        log.warning("%s not announced to %s: %s", message["type"], group, str(error) or type(error).__name__)


async def _send_soon(layer: Any, group: str, message: dict[str, Any]) -> None:
    """A broker that hangs is not waited for: left alone, its client would try for half a minute."""
    async with asyncio.timeout(TELL_S):
        await layer.group_send(group, message)


def nudge(deployment: Deployment) -> None:
    """Ask for a reconcile soon, once what was written is committed."""
    Deployment.objects.filter(pk=deployment.pk).update(next_look_at=timezone.now())
    transaction.on_commit(lambda: _ring("deployments.reconcile", deployment.pk))


def nudge_job(job: Job) -> None:
    """Ask for a job to be advanced soon."""
    Job.objects.filter(pk=job.pk).update(next_look_at=timezone.now())
    transaction.on_commit(lambda: _ring("deployments.advance_job", str(job.pk)))


def ring_node(node: Node) -> None:
    """Wake the reconciler of every deployment with living processes on a node."""
    live = Process.objects.filter(node=node).exclude(state__in=[state.value for state in PROCESS_FINAL])
    for pk in set(live.values_list("deployment_id", flat=True)):
        Deployment.objects.filter(pk=pk).update(next_look_at=timezone.now())
        _ring("deployments.reconcile", pk)


def _ring(task: str, *args: Any) -> None:
    from celery import current_app

    try:
        current_app.send_task(task, args=args, retry=False, ignore_result=True, expires=30)
    except Exception as error:  # the beat looks at everything due anyway
        log.warning("%s%s not announced: %s", task, args, error)
