"""One pass over one deployment."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.utils import timezone

from deployments.domain.plan import Collect, CreateReplica, Launch, MoveReplica, Place, Plan, Settle, Stop, plan
from deployments.domain.policy import Policy
from deployments.domain.specs import ProcessView
from deployments.domain.states import PROCESS_FINAL, Reason
from deployments.leases import lease, still_mine
from deployments.models import Deployment, Node, Process, Replica, Transition
from deployments.remote import launcher
from deployments.remote.launcher import RemoteError
from deployments.reports import record as record_report
from deployments.reports import record_failure
from deployments.targets import installation_id, target_of
from deployments.transitions import SYSTEM, move, record_all, ring_pages
from deployments.transitions import record as record_transition

from . import act
from .load import load, seen_of
from .place import place_attempts

log = logging.getLogger(__name__)

# A report younger than this is good enough to act on when no observer keeps them fresh (s).
FRESH_S = 1.0
# After actions that changed rows the next step is there to be taken at once.
ROWS = (Settle, CreateReplica, MoveReplica, Place)


def due(limit: int = 200) -> list[int]:
    """Deployments whose moment to look has come, the longest waiting first."""
    rows = Deployment.objects.filter(Q(next_look_at__lte=timezone.now()), removed_at=None)
    return list(rows.order_by(F("next_look_at").asc()).values_list("pk", flat=True)[:limit])


def reconcile(deployment_id: int, policy: Policy | None = None) -> Plan | None:
    """One step towards the wish; None when another reconciler holds the lease or the row is gone."""
    policy = policy or Policy()
    with lease(Deployment, deployment_id) as token:
        deployment = Deployment.objects.select_related("model", "layout").filter(pk=deployment_id).first()
        if token is None or deployment is None:
            return None
        look_at_nodes(deployment, policy)
        if not still_mine(Deployment, deployment.pk, token):
            return None
        view = load(deployment)
        step = plan(view, timezone.now().timestamp(), policy)
        views = {process.id: process for replica in view.replicas for process in replica.processes}
        _note_what_is_seen(views)
        written = _write(deployment, views, step, token)
        if written:
            _roll_up(deployment, step, token)
        moved = not written or _act(deployment, step, policy, token)
        _finish(deployment, step, token, again=moved or any(isinstance(a, ROWS) for a in step.actions))
        return step


def look_at_nodes(deployment: Deployment, policy: Policy) -> None:
    """Ask the nodes of living processes for a report, where no observer has brought a fresh one."""
    now = timezone.now()
    stale = Q(heard_at=None) | Q(heard_at__lt=now - timedelta(seconds=FRESH_S))
    # An observer that has a node but no stream from it has marked it with the error, or will have fallen silent.
    late = Q(heard_at=None) | Q(heard_at__lt=now - timedelta(seconds=policy.report_ttl / 2))
    unobserved = Q(observed_until=None) | Q(observed_until__lt=now) | Q(error__isnull=False) | late
    live = Process.objects.filter(deployment=deployment).exclude(state__in=[s.value for s in PROCESS_FINAL])
    rows = Node.objects.filter(stale, unobserved, pk__in=live.values("node"))
    installation = installation_id()
    calls = [(node, target_of(node, installation)) for node in rows.select_related("key", "jump__key")]
    for (node, _), answer in zip(calls, act.side_by_side(_report, [target for _, target in calls]), strict=True):
        if isinstance(answer, RemoteError):
            record_failure(node, answer, policy.report_ttl)
        else:
            record_report(node, answer)


def _report(target):
    try:
        return launcher().report(target)
    except RemoteError as error:
        return error


def _note_what_is_seen(views: dict[str, ProcessView]) -> None:
    """Keep evidence, phase and progress beside the states of what is not over; they need no transition."""
    rows = Process.objects.filter(pk__in=views).exclude(state__in=[state.value for state in PROCESS_FINAL])
    for row in rows.only("deployment_id", "evidence", "phase", "progress"):
        seen, facts = views[str(row.pk)].evidence, seen_of(views[str(row.pk)])
        values: dict[str, Any] = {"evidence": facts} if facts and facts != row.evidence else {}
        if seen is not None and seen.phase and (seen.phase, seen.progress) != (row.phase, row.progress):
            values |= {"phase": seen.phase, "progress": seen.progress}
            ring_pages(deployment=row.deployment_id)
        if values:
            Process.objects.filter(pk=row.pk).update(**values)


def _write(deployment: Deployment, views: dict[str, ProcessView], step: Plan, token: str) -> bool:
    """Everything of a plan that is only rows. False = somebody else changed them first; look again."""
    for action in step.actions:
        if isinstance(action, Settle):
            if not _settle(action, views[action.process_id]):
                return False
        elif isinstance(action, MoveReplica):
            _move_replica(action)
    _create(deployment, [action for action in step.actions if isinstance(action, CreateReplica)], token)
    places = {action.replica_id: action.attempt for action in step.actions if isinstance(action, Place)}
    place_attempts(deployment, places, token)
    return True


def _settle(action: Settle, view: ProcessView) -> bool:
    """Move a process, with what its node said as the evidence."""
    verdict = action.verdict
    rows = Process.objects.filter(pk=action.process_id, state=action.old)
    if action.never_requested:
        rows = rows.filter(launch_requested_at=None)
    row = rows.first()
    if row is None:
        return False
    columns: dict[str, Any] = {"deadline": _moment(action.deadline)}
    if action.boot_id:
        columns["launch_boot_id"] = action.boot_id
    evidence = {**seen_of(view), "heard_at": view.heard_at}
    return move(row, verdict.state, verdict.reason, verdict.note, where=rows, evidence=evidence, **columns)


def _create(deployment: Deployment, actions: Sequence[CreateReplica], token: str) -> None:
    """Rows for missing replicas. Without the lease nothing may be added: nobody would look at it again."""
    if not actions:
        return
    rows = [Replica(deployment=deployment, index=a.index, generation=a.generation) for a in actions]
    with contextlib.suppress(IntegrityError), transaction.atomic():
        if Deployment.objects.select_for_update().filter(pk=deployment.pk, lease_token=token).exists():
            Replica.objects.bulk_create(rows)
            record_all([_applied(deployment, row) for row in rows])


def _applied(deployment: Deployment, row: Replica) -> Transition:
    return Transition(
        subject="replica",
        subject_id=str(row.pk),
        name=f"replica {row.index}",
        new=row.state,
        reason=Reason.APPLIED,
        actor=SYSTEM,
        deployment=deployment,
    )


def _move_replica(action: MoveReplica) -> None:
    columns: dict[str, Any] = {
        "failures": action.failures,
        "next_attempt_at": _moment(action.next_attempt_at),
        "ready_since": _moment(action.ready_since),
        "retiring": action.retire,
    }
    replica = Replica.objects.filter(pk=action.replica_id, state=action.old).first()
    if replica is None:
        return
    if action.old == action.new:
        Replica.objects.filter(pk=replica.pk).update(**columns)
    else:
        move(replica, action.new, action.reason, action.note, **columns)


def _moment(epoch: float | None) -> datetime | None:
    return None if epoch is None else datetime.fromtimestamp(epoch, UTC)


def _act(deployment: Deployment, step: Plan, policy: Policy, token: str) -> bool:
    """Collect before stop, so that the evidence is kept before it is cleared away. True = a state changed."""
    moved = False
    for actions in (_wanted_boxes(step), [action for action in step.actions if isinstance(action, (Launch, Stop))]):
        # Before anything is marked as asked for: a mark without a call would have to be ended by a stop.
        calls = act.prepare(deployment, actions, policy) if still_mine(Deployment, deployment.pk, token) else []
        if not calls:
            continue
        if not still_mine(Deployment, deployment.pk, token):
            return True
        results = act.perform(calls)
        if not still_mine(Deployment, deployment.pk, token):
            log.warning(
                "deployment %s: the lease ran out during the step; its results are looked for again", deployment.pk
            )
            return True
        for call, result in results:
            moved |= act.record(deployment, call, result, policy)
    return moved


def _wanted_boxes(step: Plan) -> list[Collect]:
    """What is to be collected and was not yet."""
    actions = [action for action in step.actions if isinstance(action, Collect)]
    missing = Process.objects.filter(pk__in=[action.process_id for action in actions], black_box__isnull=True)
    wanted = {str(pk) for pk in missing.values_list("pk", flat=True)}
    return [action for action in actions if action.process_id in wanted]


def _roll_up(deployment: Deployment, step: Plan, token: str) -> None:
    """The deployment's own state, told before the calls are made: a stop may take its time."""
    if deployment.state == step.state:
        return
    mine = Deployment.objects.filter(pk=deployment.pk, lease_token=token, state=deployment.state)
    if mine.update(state=step.state, state_at=timezone.now()):
        record_transition(
            "deployment",
            deployment.pk,
            deployment.state,
            step.state,
            Reason.ROLLED_UP,
            deployment_id=deployment.pk,
            name=deployment.name,
        )


def _finish(deployment: Deployment, step: Plan, token: str, *, again: bool) -> None:
    """The next moment to look, if the lease is still ours. A nudge during the pass set another; that one stays."""
    mine = Deployment.objects.filter(pk=deployment.pk, lease_token=token)
    as_read = {"next_look_at": deployment.next_look_at} if deployment.next_look_at else {"next_look_at__isnull": True}
    mine.filter(**as_read).update(next_look_at=timezone.now() if again else _moment(step.next_look_at))
