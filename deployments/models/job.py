"""Long work for people to follow."""

from __future__ import annotations

import uuid

from django.db import models

from deployments.domain.states import JobState

from .node import Node


class Job(models.Model):
    """One piece of long work on one or more nodes. `args` is what was asked for; `kind` names its runner."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    kind = models.CharField(max_length=32)
    title = models.CharField(max_length=200)
    args = models.JSONField(default=dict)
    actor = models.CharField(max_length=200)
    retry_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="retries")
    state = models.CharField(max_length=16, default=JobState.PENDING)
    note = models.TextField(blank=True)
    progress = models.PositiveSmallIntegerField(default=0)
    cancel_requested_by = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    next_look_at = models.DateTimeField(null=True, db_index=True)
    lease_token = models.CharField(max_length=36, blank=True)
    lease_until = models.DateTimeField(null=True)


class JobStep(models.Model):
    """A job's work on one node. `process` is its process on the node, when it runs one; `log` is kept to its tail."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="steps")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="job_steps")
    state = models.CharField(max_length=16, default=JobState.PENDING)
    note = models.TextField(blank=True)
    progress = models.PositiveSmallIntegerField(default=0)
    process = models.UUIDField(default=uuid.uuid4)
    launch_requested_at = models.DateTimeField(null=True)
    files_kept = models.BooleanField(default=True)
    log = models.TextField(blank=True)
    log_offset = models.BigIntegerField(default=0)
    result = models.JSONField(null=True)
    error = models.JSONField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["job", "node"], name="one_step_per_job_and_node")]
