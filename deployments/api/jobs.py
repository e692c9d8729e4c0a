"""Jobs: starting, following, cancelling, retrying long work."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status

from deployments.api.asking import Asking, Cursor, Limit
from deployments.api.waiting import WaitFor, WaitTimeout, states_of, wait_until
from deployments.domain.states import JobState
from deployments.schemas.jobs import Job, JobDetail, JobInput, JobLog
from deployments.schemas.shapes import Pages, pages
from deployments.services import jobs

router = Router(tags=["jobs"])


@router.get("", response=Pages[Job])
def list_jobs(request: Asking, cursor: Cursor = None, limit: Limit = 100) -> Any:
    """The newest first."""
    return pages(jobs.page_of_jobs(cursor, limit), Job.of)


@router.post("", response={202: Job})
def start_job(request: Asking, body: JobInput) -> Any:
    """Begin a job: probe, scan, install_environment, find_model, fingerprint_model."""
    job = jobs.start_named_job(request.auth, kind=body.kind, names=body.nodes, args=body.args)
    return Status(202, Job.of(job))


@router.get("/{job}", response=JobDetail)
async def get_job(request: Asking, job: str, wait_for: WaitFor = None, timeout: WaitTimeout = 60.0) -> Any:
    """One job with its steps; `wait_for=SUCCEEDED,FAILED,CANCELLED` waits for its end."""
    states = states_of(wait_for, JobState)
    return await wait_until(request, lambda reached: _detail(job, reached), states, timeout)


def _detail(job: str, reached: bool | None) -> JobDetail:
    return JobDetail(**JobDetail.values(jobs.get_job(job)), reached=reached)


@router.get("/{job}/log", response=list[JobLog])
def read_log(request: Asking, job: str) -> Any:
    """What its processes said, per node; the tails, as far as they are kept."""
    return [{"node": step.node.name, "data": step.log} for step in jobs.get_job(job).steps.all()]


@router.post("/{job}/cancel", response=Job)
def cancel_job(request: Asking, job: str) -> Any:
    """Ask it to end; what it started on nodes is stopped with proof."""
    return Job.of(jobs.cancel_job(request.auth, job))


@router.post("/{job}/retry", response={202: Job})
def retry_job(request: Asking, job: str) -> Any:
    """The same again where it did not succeed."""
    return Status(202, Job.of(jobs.retry_job(request.auth, job)))
