"""The folders that ended processes leave on nodes: kept while somebody may want the log, then cleared away."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from deployments.domain.states import JOB_FINAL, PROCESS_FINAL
from deployments.models import JobStep, Process
from deployments.remote import launcher
from deployments.remote.launcher import HelperFailed, NodeTarget, RemoteError
from deployments.targets import installation_id, target_of

from .act import side_by_side

LOGS_KEPT = timedelta(days=7)
AT_ONCE = 200


def clear_away() -> int:
    """Remove the files of what ended long ago. A node that does not answer is asked again next time.

    Returns:
        How many folders are gone.
    """
    before = timezone.now() - LOGS_KEPT
    asked = {"files_kept": True, "launch_requested_at__isnull": False}
    ended = Process.objects.filter(state__in=sorted(PROCESS_FINAL), ended_at__lt=before, **asked)
    over = JobStep.objects.filter(state__in=sorted(JOB_FINAL), finished_at__lt=before, **asked)
    rows: list[Process | JobStep] = []
    for found in (ended, over):
        rows += found.select_related("node__key", "node__jump__key")[:AT_ONCE]
    installation = installation_id()
    calls = [(target_of(row.node, installation), _id(row)) for row in rows]
    gone = [row for row, done in zip(rows, side_by_side(_forget, calls), strict=True) if done]
    for kind in (Process, JobStep):
        kind.objects.filter(pk__in=[row.pk for row in gone if isinstance(row, kind)]).update(files_kept=False)
    return len(gone)


def _id(row: Process | JobStep) -> str:
    return str(row.pk if isinstance(row, Process) else row.process)


def _forget(call: tuple[NodeTarget, str]) -> bool:
    target, process = call
    try:
        launcher().forget(target, process)
    except HelperFailed as error:
        return error.code == "UNKNOWN_PROCESS"
    except RemoteError:
        return False
    return True
