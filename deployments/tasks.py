"""Celery's doorbells: ids in, one call. Lost, doubled or late rings change nothing but the moment."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.db import close_old_connections
from django.utils import timezone

from deployments import jobs
from deployments import reconcile as reconciler
from deployments.domain.states import JOB_FINAL
from deployments.jobs.engine import LOOK_S
from deployments.models import Deployment, Job
from deployments.services import nodes, pruning

# Steps that follow each other at once are taken in one ring, up to this many.
STEPS_A_RING = 20
# A look this near is waited for by the ring itself; a later one is the beat's (s).
NEAR_S = 2.0
# A ring for a moment comes a little after it, so that it is not taken for an early one (s).
MARGIN_S = 0.05


@shared_task(name="deployments.reconcile")
def reconcile(deployment_id: int) -> None:
    """Reconcile one deployment until there is nothing to do at once.

    Only the ring that did a step rings for the next, so that rings do not breed; one before its moment ends here.
    """
    close_old_connections()
    for step in range(STEPS_A_RING):
        wait = _wait(Deployment, deployment_id)
        if wait is None:
            return
        if wait > 0:
            if step and wait <= NEAR_S:
                reconcile.apply_async((deployment_id,), countdown=wait + MARGIN_S, expires=wait + 30)
            return
        if reconciler.reconcile(deployment_id) is None:
            return


def _wait(kind: type[Deployment] | type[Job], pk: Any) -> float | None:
    """Seconds until a row's moment to look; None when it has none."""
    moment = kind.objects.filter(pk=pk).values_list("next_look_at", flat=True).first()
    return None if moment is None else max(0.0, (moment - timezone.now()).total_seconds())


@shared_task(name="deployments.reconcile_due")
def reconcile_due() -> None:
    """Ring for every deployment whose moment has come."""
    close_old_connections()
    for deployment_id in reconciler.due():
        reconcile.apply_async((deployment_id,), expires=30)


@shared_task(name="deployments.sweep")
def sweep() -> None:
    """Stop what nodes still run though it counts as ended; probe those that answer and are not known."""
    close_old_connections()
    reconciler.sweep()
    nodes.probe_heard()


@shared_task(name="deployments.advance_job")
def advance_job(job_id: str) -> None:
    """Advance one job if its moment has come, and ring again for the next."""
    close_old_connections()
    wait = _wait(Job, job_id)
    if wait is None or wait > 0:
        return
    state = jobs.advance(job_id)
    if state is not None and state not in JOB_FINAL:
        advance_job.apply_async((job_id,), countdown=LOOK_S + MARGIN_S, expires=LOOK_S + 30)


@shared_task(name="deployments.advance_jobs_due")
def advance_jobs_due() -> None:
    """Ring for every job whose moment has come."""
    close_old_connections()
    for job_id in jobs.due():
        advance_job.apply_async((job_id,), expires=30)


@shared_task(name="deployments.prune")
def prune() -> None:
    """Forget what is old enough, here and on the nodes."""
    close_old_connections()
    pruning.prune()
    reconciler.clear_away()
