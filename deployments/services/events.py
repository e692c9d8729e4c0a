"""What happened, for programs: pages of transitions, and the ones since a given one."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import QuerySet

from deployments.models import Transition
from deployments.services.access import Actor, Role
from deployments.services.deployments import get_deployment
from deployments.services.jobs import get_job
from deployments.services.nodes import get_node
from deployments.services.paging import Page, page

# Who may sign in with what is the admins' business.
ADMINS_ONLY = ("token", "user")
BATCH = 200


def transitions(
    actor: Actor,
    *,
    deployment: str | None = None,
    node: str | None = None,
    job: str | None = None,
    subject: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Transition]:
    """The newest first, of everything or of one deployment, node, job, or kind of subject.

    Raises:
        NotFound: There is no such deployment, node or job.
    """
    rows = _seen_by(actor)
    if deployment is not None:
        rows = rows.filter(deployment=get_deployment(deployment))
    if node is not None:
        rows = rows.filter(node=get_node(node))
    if job is not None:
        rows = rows.filter(job=get_job(job))
    if subject is not None:
        rows = rows.filter(subject=subject)
    return page(rows, ("-id",), cursor, limit)


def newest_id() -> int:
    """The id of the newest transition; 0 when there is none."""
    return Transition.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def since(
    actor: Actor, last_id: int, *, deployment: str | None = None, without: Collection[int] = ()
) -> list[Transition]:
    """Up to `BATCH` transitions after `last_id`, the oldest first, leaving out the ids in `without`."""
    rows = _seen_by(actor).filter(pk__gt=last_id).exclude(pk__in=without)
    if deployment is not None:
        rows = rows.filter(deployment__name=deployment)
    return list(rows.order_by("pk")[:BATCH])


def _seen_by(actor: Actor) -> QuerySet[Transition]:
    rows = Transition.objects.select_related("deployment", "node")
    return rows if actor.role >= Role.admin else rows.exclude(subject__in=ADMINS_ONLY)
