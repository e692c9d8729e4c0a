"""Advancing jobs, one small step at a time. Like the reconciler: lease, look, act, record."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.utils import timezone

from deployments.domain.errors import PilothouseError
from deployments.domain.states import JOB_FINAL, JobState, Reason
from deployments.leases import lease
from deployments.models import Job, JobStep
from deployments.remote import launcher
from deployments.remote.launcher import NodeTarget, RemoteError, StopRequest
from deployments.targets import target_of
from deployments.transitions import move

from .progress import read_progress, tail
from .shapes import Kind, job_kinds

log = logging.getLogger(__name__)

WIDTH = 32
LOG_KEPT = 256 * 1024
LOG_CHUNK = 128 * 1024
LOOK_S = 1.0
FINAL = [state.value for state in JOB_FINAL]


def due(limit: int = 100) -> list[str]:
    """Jobs whose moment to look has come."""
    rows = Job.objects.filter(next_look_at__lte=timezone.now()).exclude(state__in=FINAL)
    return [str(pk) for pk in rows.order_by("next_look_at").values_list("pk", flat=True)[:limit]]


def advance(job_id: str) -> JobState | None:
    """One step of a job; its state afterwards, or None when another worker has it."""
    with lease(Job, job_id) as token:
        if token is None:
            return None
        job = Job.objects.get(pk=job_id)
        if job.state in FINAL:
            return JobState(job.state)
        kind = job_kinds()[job.kind]
        _begin(job)
        _work(kind, job)
        return _finish(job)


def _begin(job: Job) -> None:
    if job.state == JobState.PENDING:
        move(job, JobState.RUNNING, Reason.JOB_STARTED, actor=job.actor)
    if job.cancel_requested_by and job.state == JobState.RUNNING:
        move(job, JobState.CANCELLING, Reason.CANCELLED, actor=job.cancel_requested_by)


def _work(kind: Kind, job: Job) -> None:
    steps = list(job.steps.exclude(state__in=FINAL).select_related("node__key", "node__jump__key")[:WIDTH])
    pairs = [(step, target_of(step.node)) for step in steps]
    if job.state == JobState.CANCELLING:
        _side_by_side(job, kind, _cancel, pairs)
    elif kind.call is not None:
        _side_by_side(job, kind, kind.call, pairs)
    else:
        _start_and_follow(kind, job, pairs)


def _side_by_side(job: Job, kind: Kind, call: Any, pairs: Sequence[tuple[JobStep, NodeTarget]]) -> None:
    """Make calls that each end a step, and write their results down."""

    def attempt(pair: tuple[JobStep, NodeTarget]) -> Any:
        step, target = pair
        try:
            return call(target, job, step)
        except PilothouseError as error:
            return error

    if not pairs:
        return
    JobStep.objects.filter(pk__in=[step.pk for step, _ in pairs], started_at=None).update(started_at=timezone.now())
    with ThreadPoolExecutor(min(WIDTH, len(pairs))) as pool:
        results = list(pool.map(attempt, pairs))
    for (step, _), result in zip(pairs, results, strict=True):
        if call is _cancel:
            _record_cancel(step, result)
        else:
            _end(kind, job, step, result)


def _start_and_follow(kind: Kind, job: Job, pairs: Sequence[tuple[JobStep, NodeTarget]]) -> None:
    assert kind.request is not None
    new = [step for step, _ in pairs if step.launch_requested_at is None]
    # Written before the start is asked for: a stop must know that there may be something to stop.
    JobStep.objects.filter(pk__in=[step.pk for step in new]).update(
        launch_requested_at=timezone.now(), started_at=timezone.now(), state=JobState.RUNNING
    )
    requests = {step.pk: kind.request(job, step) for step in new}

    def look(pair: tuple[JobStep, NodeTarget]) -> Any:
        step, target = pair
        try:
            if step.pk in requests:
                return launcher().start(target, requests[step.pk])
            return _look(kind, job, step, target)
        except RemoteError as error:
            return error

    with ThreadPoolExecutor(max(1, min(WIDTH, len(pairs)))) as pool:
        results = list(pool.map(look, pairs))
    for (step, _), result in zip(pairs, results, strict=True):
        if step.pk in requests:
            if isinstance(result, RemoteError) and not result.retryable:
                _end(kind, job, step, result)
        else:
            _record_look(kind, job, step, result)


def _look(kind: Kind, job: Job, step: JobStep, target: NodeTarget) -> dict[str, Any]:
    """What the step's process says now: new log, how it ended, and then what there is to confirm."""
    process = str(step.process)
    entry = (launcher().report(target).get("processes") or {}).get(process)
    seen: dict[str, Any] = {"entry": entry, "chunk": None, "confirmed": None}
    if entry is None:
        return seen
    chunk = launcher().logs(target, process, step.log_offset, LOG_CHUNK)
    seen["chunk"] = chunk
    ended = not entry.get("alive") and chunk.next_offset >= chunk.size
    if ended:
        launcher().stop(target, StopRequest(process, grace_s=2.0))
        if (entry.get("exit") or {}).get("code") == 0 and kind.confirm is not None:
            try:
                seen["confirmed"] = kind.confirm(target, job, step)
            except RemoteError as error:
                seen["confirmed"] = error
        seen["ended"] = True
    return seen


def _record_look(kind: Kind, job: Job, step: JobStep, seen: Any) -> None:
    if isinstance(seen, RemoteError):
        JobStep.objects.filter(pk=step.pk).update(note=seen.message, error=seen.as_dict())
        return
    entry, chunk = seen["entry"], seen["chunk"]
    if entry is None:
        if timezone.now() - (step.launch_requested_at or timezone.now()) > timedelta(seconds=30):
            _end(kind, job, step, RemoteError("The node does not know the job's process.", remedy="Retry the job."))
        else:
            JobStep.objects.filter(pk=step.pk).update(launch_requested_at=None)  # the start's answer was lost
        return
    step.log = tail(step.log + chunk.data, LOG_KEPT)
    step.log_offset = chunk.next_offset
    percent, result = read_progress(step.log)
    step.progress = percent if percent is not None else step.progress
    step.note, step.error = "", None
    step.save(update_fields=["log", "log_offset", "progress", "note", "error"])
    if not seen.get("ended"):
        return
    code = (entry.get("exit") or {}).get("code")
    if code == 0:
        _end(kind, job, step, seen["confirmed"] if kind.confirm is not None else result or {})
    else:
        last = next((line for line in reversed(step.log.splitlines()) if line.strip()), "")
        _end(kind, job, step, _ended_badly(entry, last, step))


def _ended_badly(entry: dict[str, Any], last: str, step: JobStep) -> RemoteError:
    end = entry.get("exit") or {}
    how = f"signal {end['signal']}" if end.get("signal") else f"code {end.get('code')}"
    error = RemoteError(
        f"It ended with {how}: {last[:300]}", remedy="Read the log, mend the cause and retry.", node=step.node.name
    )
    error.code = "JOB_FAILED"
    return error


def _cancel(target: NodeTarget, job: Job, step: JobStep) -> Any:
    if step.launch_requested_at is None:
        return None
    return launcher().stop(target, StopRequest(str(step.process), grace_s=5.0))


def _record_cancel(step: JobStep, result: Any) -> None:
    if isinstance(result, PilothouseError):
        JobStep.objects.filter(pk=step.pk).update(note=result.message, error=result.as_dict())
    elif result is None or result.proven:
        JobStep.objects.filter(pk=step.pk).update(
            state=JobState.CANCELLED, finished_at=timezone.now(), note="cancelled; nothing of it is left"
        )
    else:
        JobStep.objects.filter(pk=step.pk).update(note="stopping: not proven yet")


def _end(kind: Kind, job: Job, step: JobStep, result: Any) -> None:
    """A step's last word."""
    now = timezone.now()
    rows = JobStep.objects.filter(pk=step.pk)
    if isinstance(result, PilothouseError):
        result.node = result.node or step.node.name
        kind.failed(job, step.node, result)
        rows.update(state=JobState.FAILED, note=result.message, error=result.as_dict(), finished_at=now)
        return
    try:
        note = kind.done(job, step.node, result)
    except PilothouseError as error:
        rows.update(state=JobState.FAILED, note=error.message, error=error.as_dict(), finished_at=now)
        return
    kept = result if isinstance(result, dict) and len(str(result)) < 20000 else None
    rows.update(state=JobState.SUCCEEDED, note=note, result=kept, error=None, progress=100, finished_at=now)


def _finish(job: Job) -> JobState:
    """The job's own progress and state, from its steps."""
    steps = list(job.steps.values_list("state", "progress"))
    progress = sum(100 if state in FINAL else percent for state, percent in steps) // len(steps) if steps else 100
    states = [state for state, _ in steps]
    if not all(state in FINAL for state in states):
        later = timezone.now() + timedelta(seconds=LOOK_S)
        Job.objects.filter(pk=job.pk).update(progress=progress, next_look_at=later)
        return JobState(job.state)
    failed, cancelled = states.count(JobState.FAILED), states.count(JobState.CANCELLED)
    note = f"{states.count(JobState.SUCCEEDED)} of {len(states)} done"
    if failed:
        end, reason, note = JobState.FAILED, Reason.JOB_FAILED, f"{failed} of {len(states)} failed"
    elif cancelled:
        end, reason = JobState.CANCELLED, Reason.CANCELLED
    else:
        end, reason = JobState.SUCCEEDED, Reason.JOB_DONE
    move(job, end, reason, note, actor=job.actor, progress=progress, next_look_at=None)
    return end
