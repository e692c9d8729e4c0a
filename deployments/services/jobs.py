"""Jobs: starting, cancelling, retrying, following."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from deployments.domain.errors import Conflict, InvalidInput, NotFound
from deployments.domain.states import JOB_FINAL, JobState
from deployments.jobs import job_kinds
from deployments.models import Job, JobStep, LanguageModel, Node
from deployments.services.access import Actor, Role, require
from deployments.services.paging import Page, page
from deployments.transitions import nudge_job


def start_job(
    actor: Actor,
    *,
    kind: str,
    nodes: Sequence[Node],
    args: Mapping[str, Any] | None = None,
    retry_of: Job | None = None,
) -> Job:
    """Begin a piece of long work on nodes.

    Raises:
        InvalidInput: No such kind, no node, or bad arguments.
        NotPermitted: The actor's role is too small for this kind.
    """
    kinds = job_kinds()
    if kind not in kinds:
        raise InvalidInput(f"There is no job {kind!r}.", remedy=f"Choose one of {', '.join(kinds)}.", field="kind")
    require(actor, Role[kinds[kind].role], f"start a {kind} job")
    if not nodes:
        raise InvalidInput("A job needs at least one node.", field="nodes")
    if kind == "scan" and any(node.kind == Node.Kind.LOCAL for node in nodes):
        raise InvalidInput("This machine is not reached by SSH and has no host key to fetch.", field="nodes")
    checked = kinds[kind].check(args or {})
    with transaction.atomic():
        job = Job.objects.create(
            kind=kind, title=kinds[kind].title(checked)[:200], args=checked, actor=actor.name, retry_of=retry_of
        )
        JobStep.objects.bulk_create([JobStep(job=job, node=node) for node in dict.fromkeys(nodes)])
        nudge_job(job)
    return job


def list_jobs(limit: int = 100) -> list[Job]:
    """The newest jobs."""
    return list(Job.objects.prefetch_related("steps__node").order_by("-created_at")[:limit])


def start_named_job(actor: Actor, *, kind: str, names: Sequence[str], args: Mapping[str, Any]) -> Job:
    """`start_job` on the nodes of these names.

    Raises:
        NotFound: There is none of a name.
    """
    require(actor, Role.operator, "start jobs")
    rows = {node.name: node for node in Node.objects.filter(name__in=names)}
    for name in names:
        if name not in rows:
            raise NotFound(f"There is no node {name!r}.", field="nodes")
    return start_job(actor, kind=kind, nodes=list(rows.values()), args=args)


def page_of_jobs(cursor: str | None, limit: int) -> Page[Job]:
    """Some jobs, the newest first."""
    return page(Job.objects.prefetch_related("steps__node"), ("-created_at", "-id"), cursor, limit)


def get_job(job_id: str) -> Job:
    """The job with this id."""
    try:
        key = uuid.UUID(str(job_id))
    except ValueError:
        raise NotFound(f"{job_id!r} is not the id of a job.") from None
    job = Job.objects.prefetch_related("steps__node").filter(pk=key).first()
    if job is None:
        raise NotFound(f"There is no job {job_id}.")
    return job


def cancel_job(actor: Actor, job_id: str) -> Job:
    """Ask for a job to end. What it started on nodes is stopped with proof. Asking twice does no harm."""
    require(actor, Role.operator, "cancel jobs")
    job = get_job(job_id)
    require(actor, Role[job_kinds()[job.kind].role], f"cancel a {job.kind} job")
    if job.state not in JOB_FINAL and not job.cancel_requested_by:
        Job.objects.filter(pk=job.pk, cancel_requested_by="").update(cancel_requested_by=actor.name)
        job.cancel_requested_by = actor.name
        nudge_job(job)
    return job


def retry_job(actor: Actor, job_id: str) -> Job:
    """The same work again, on the nodes where it did not succeed.

    Raises:
        Conflict: It is still running, or succeeded everywhere.
    """
    require(actor, Role.operator, "retry jobs")
    job = get_job(job_id)
    require(actor, Role[job_kinds()[job.kind].role], f"retry a {job.kind} job")
    if job.state not in JOB_FINAL:
        raise Conflict("The job is still running.", remedy="Cancel it first, or wait.")
    nodes = [step.node for step in job.steps.all() if step.state != JobState.SUCCEEDED]
    if not nodes:
        raise Conflict("The job succeeded on all of its nodes.", remedy="Start a new one.")
    return start_job(actor, kind=job.kind, nodes=nodes, args=job.args, retry_of=job)


def jobs_of(node: Node, limit: int = 10) -> list[Job]:
    """The newest jobs with a step on a node."""
    rows = Job.objects.filter(steps__node=node).prefetch_related("steps__node").order_by("-created_at")
    return list(rows[:limit])


def jobs_about(model: LanguageModel, limit: int = 10) -> list[Job]:
    """The newest jobs that look at a model's files."""
    return list(Job.objects.filter(args__model=model.pk).order_by("-created_at")[:limit])
