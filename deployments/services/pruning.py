"""What is old enough to be forgotten."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from deployments.domain.states import JOB_FINAL
from deployments.models import IdempotencyRecord, Job, Transition

ANSWERS_KEPT = timedelta(hours=24)
TRANSITIONS_KEPT = timedelta(days=90)
JOBS_KEPT = timedelta(days=30)


def prune() -> dict[str, int]:
    """Forget old answers, transitions and finished jobs; how many rows of each were removed."""
    now = timezone.now()
    finished = Job.objects.filter(state__in=[state.value for state in JOB_FINAL], finished_at__lt=now - JOBS_KEPT)
    rows = {
        "answers": IdempotencyRecord.objects.filter(created_at__lt=now - ANSWERS_KEPT),
        "transitions": Transition.objects.filter(at__lt=now - TRANSITIONS_KEPT),
        "jobs": finished,
    }
    return {name: found.delete()[1].get(found.model._meta.label, 0) for name, found in rows.items()}
