"""Advancing jobs, one small step at a time. Like the reconciler: lease, look, act, record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import OperationalError, transaction
from django.utils import timezone

from deployments.domain.errors import PilothouseError
from deployments.domain.states import JOB_FINAL, JobState, Reason
from deployments.leases import lease, still_mine
from deployments.models import Job, JobStep
from deployments.remote import launcher
from deployments.remote.launcher import HelperFailed, LogChunk, NodeTarget, RemoteError, StopProof, StopRequest
from deployments.targets import installation_id, target_of
from deployments.transitions import move, ring_pages

from .progress import last_words, read_progress, tail
from .shapes import Kind, job_kinds

log = logging.getLogger(__name__)

WIDTH = 32
LOG_KEPT = 256 * 1024
LOG_CHUNK = 128 * 1024
LOOK_S = 1.0
# How long a node that cannot be reached is tried before a step that was never sent to it fails (s).
START_PATIENCE_S = 60.0
FINAL = [state.value for state in JOB_FINAL]


def due(limit: int = 100) -> list[str]:
    """Jobs whose moment to look has come."""
    rows = Job.objects.filter(next_look_at__lte=timezone.now()).exclude(state__in=FINAL)
    return [str(pk) for pk in rows.order_by("next_look_at").values_list("pk", flat=True)[:limit]]


def advance(job_id: str) -> JobState | None:
    """One step of a job; its state afterwards, or None when another worker has it."""
    with lease(Job, job_id) as token:
        job = Job.objects.filter(pk=job_id).first()
        if token is None or job is None:
            return None
        if job.state in FINAL:
            return JobState(job.state)
        kind = job_kinds()[job.kind]
        _begin(job)
        if not _work(kind, job, token):
            log.warning("job %s: the lease ran out during the step; its results are looked for again", job.pk)
            return None
        return _finish(job)


def _begin(job: Job) -> None:
    if job.state == JobState.PENDING:
        move(job, JobState.RUNNING, Reason.JOB_STARTED, actor=job.actor)
    if job.cancel_requested_by and job.state == JobState.RUNNING:
        move(job, JobState.CANCELLING, Reason.CANCELLED, actor=job.cancel_requested_by)


def _work(kind: Kind, job: Job, token: str) -> bool:
    """Make the calls that are due side by side, then write down what they brought. False = no longer ours to write."""
    rows = job.steps.exclude(state__in=FINAL).select_related("node__key", "node__jump__key")
    steps = list(rows.defer("node__report")[:WIDTH])
    call, note = _ways(kind, job)
    installation = installation_id()
    pairs = [(step, target_of(step.node, installation)) for step in steps]
    if job.state == JobState.RUNNING:
        _note_begun(kind, steps)
    results = _side_by_side(call, job, pairs)
    if not still_mine(Job, job.pk, token):
        return False
    for step, result in zip(steps, results, strict=True):
        note(kind, job, step, result)
    return True


def _ways(kind: Kind, job: Job) -> tuple[Callable[..., Any], Callable[..., None]]:
    """How a step of the job is worked on, and how the result is written down."""
    if job.state == JobState.CANCELLING:
        return _cancel, _record_cancel
    if kind.call is not None:
        return kind.call, _end
    return partial(_follow, kind), _record_seen


def _note_begun(kind: Kind, steps: Sequence[JobStep]) -> None:
    now = timezone.now()
    rows = JobStep.objects.filter(pk__in=[step.pk for step in steps])
    rows.filter(started_at=None).update(started_at=now, state=JobState.RUNNING)
    if kind.request is not None:
        # Written before the start is asked for: a stop must know that there may be something to stop.
        rows.filter(launch_requested_at=None).update(launch_requested_at=now)


def _side_by_side(call: Callable[..., Any], job: Job, pairs: Sequence[tuple[JobStep, NodeTarget]]) -> list[Any]:
    """What each call brought, or its error. One node's surprise is that node's alone."""

    def attempt(pair: tuple[JobStep, NodeTarget]) -> Any:
        step, target = pair
        try:
            return call(target, job, step)
        except PilothouseError as error:
            return error
        except Exception as error:
            return _surprise(step, error)

    with ThreadPoolExecutor(max(1, min(WIDTH, len(pairs)))) as pool:
        return list(pool.map(attempt, pairs))


def _surprise(step: JobStep, error: Exception) -> PilothouseError:
    log.error("job %s on %s", step.job_id, step.node.name, exc_info=error)
    return PilothouseError(
        f"{type(error).__name__}: {error}", remedy="This is a fault of Pilothouse; please report it.", code="INTERNAL"
    )


@dataclass(slots=True)
class Seen:
    """What became visible of a step's process. `ended` = proven gone; `refused` = the start's error."""

    entry: dict[str, Any] | None = None
    chunk: LogChunk | None = None
    ended: bool = False
    confirmed: Any = None
    refused: RemoteError | None = None


def _follow(kind: Kind, target: NodeTarget, job: Job, step: JobStep) -> Seen:
    """Start the step's process where the node does not know it, else see how far it is."""
    process = str(step.process)
    entry = None if step.launch_requested_at is None else _entry(target, process)
    if entry is None or entry.get("tombstone"):
        assert kind.request is not None
        try:
            launcher().start(target, kind.request(job, step))
        except RemoteError as error:
            return Seen(refused=error)
        return Seen()
    seen = Seen(entry, launcher().logs(target, process, step.log_offset, LOG_CHUNK))
    assert seen.chunk is not None
    if entry.get("alive") or seen.chunk.next_offset < seen.chunk.size:
        return seen
    seen.ended = launcher().stop(target, StopRequest(process, grace_s=2.0)).proven
    if seen.ended and _code(entry) == 0 and kind.confirm is not None:
        try:
            seen.confirmed = kind.confirm(target, job, step)
        except RemoteError as error:
            if error.retryable:
                raise
            seen.confirmed = error
    return seen


def _entry(target: NodeTarget, process: str) -> dict[str, Any] | None:
    """What the node says of a process; None = it does not know it."""
    report = launcher().report(target)
    entry = (report.get("processes") or {}).get(process)
    if entry is None and process in (report.get("ended") or ()):
        return {"alive": False, "exit": launcher().collect(target, process).get("exit")}
    return entry


def _code(entry: dict[str, Any]) -> int | None:
    return (entry.get("exit") or {}).get("code")


def _record_seen(kind: Kind, job: Job, step: JobStep, seen: Seen | PilothouseError) -> None:
    if isinstance(seen, PilothouseError):
        if isinstance(seen, RemoteError):
            JobStep.objects.filter(pk=step.pk).update(note=seen.message, error=seen.as_dict())
        else:
            _end(kind, job, step, seen)
        return
    if seen.refused is not None:
        _record_refusal(kind, job, step, seen.refused)
        return
    if seen.entry is None or seen.chunk is None:
        return
    _keep_log(step, seen.chunk)
    if not seen.ended:
        return
    if _code(seen.entry) == 0:
        _end(kind, job, step, seen.confirmed if kind.confirm is not None else read_progress(step.log)[1] or {})
    else:
        _end(kind, job, step, _ended_badly(seen.entry, last_words(step.log), step))


def _record_refusal(kind: Kind, job: Job, step: JobStep, error: RemoteError) -> None:
    """A start that failed: for good when the node said so, or when nothing could be sent for long enough."""
    unsent = step.launch_requested_at is None and not error.sent
    tried = timezone.now() - (step.started_at or timezone.now())
    given_up = unsent and (not error.retryable or tried > timedelta(seconds=START_PATIENCE_S))
    if given_up or (isinstance(error, HelperFailed) and not error.retryable and error.sent):
        _end(kind, job, step, error)
    else:
        values: dict[str, Any] = {"note": error.message, "error": error.as_dict()}
        # Where nothing left the panel, there is nothing that a cancel would have to stop.
        JobStep.objects.filter(pk=step.pk).update(**values, **({"launch_requested_at": None} if unsent else {}))


def _keep_log(step: JobStep, chunk: LogChunk) -> None:
    step.log = tail(step.log + chunk.data, LOG_KEPT)
    step.log_offset = chunk.next_offset
    percent, _ = read_progress(step.log)
    step.progress = percent if percent is not None else step.progress
    step.note, step.error = "", None
    step.save(update_fields=["log", "log_offset", "progress", "note", "error"])
    if chunk.data:
        ring_pages(job=str(step.job_id))


def _ended_badly(entry: dict[str, Any], last: str, step: JobStep) -> RemoteError:
    end = entry.get("exit") or {}
    how = f"signal {end['signal']}" if end.get("signal") else f"code {end.get('code')}"
    error = RemoteError(
        f"It ended with {how}: {last[:300]}", remedy="Read the log, mend the cause and retry.", node=step.node.name
    )
    error.code = "JOB_FAILED"
    return error


def _cancel(target: NodeTarget, job: Job, step: JobStep) -> StopProof | None:
    if step.launch_requested_at is None:
        return None
    return launcher().stop(target, StopRequest(str(step.process), grace_s=5.0))


def _record_cancel(kind: Kind, job: Job, step: JobStep, result: StopProof | PilothouseError | None) -> None:
    rows = JobStep.objects.filter(pk=step.pk)
    if isinstance(result, PilothouseError):
        rows.update(note=f"the stop cannot be proven: {result.message}", error=result.as_dict())
    elif result is None or result.proven:
        note = "cancelled; no process of it is left"
        rows.update(state=JobState.CANCELLED, finished_at=timezone.now(), note=note, error=None)
    else:
        rows.update(note="stopping: not proven yet")


def _end(kind: Kind, job: Job, step: JobStep, result: Any) -> None:
    """A step's last word."""
    rows = JobStep.objects.filter(pk=step.pk)
    try:
        with transaction.atomic():
            if isinstance(result, PilothouseError):
                kind.failed(job, step.node, result)
            else:
                note = kind.done(job, step.node, result)
    except PilothouseError as error:
        result = error
    except OperationalError:
        raise  # the database is away; this is done again when it is back
    except Exception as error:
        result = _surprise(step, error)
    now = timezone.now()
    if isinstance(result, PilothouseError):
        result.node = result.node or step.node.name
        rows.update(state=JobState.FAILED, note=result.message, error=result.as_dict(), finished_at=now)
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
        if progress != job.progress:
            ring_pages(job=str(job.pk))
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
