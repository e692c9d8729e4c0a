"""What happened: one row per change of state or intent. The outbox, the history and the event stream."""

from __future__ import annotations

from django.db import models

from .deployment import Deployment
from .job import Job
from .node import Node


class Transition(models.Model):
    """`subject` (deployment, replica, process, node, job, token, ...) `subject_id` went from `old` to `new`."""

    subject = models.CharField(max_length=16)
    subject_id = models.CharField(max_length=64)
    name = models.CharField(max_length=200, blank=True)
    deployment = models.ForeignKey(Deployment, null=True, on_delete=models.CASCADE, related_name="transitions")
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="transitions")
    job = models.ForeignKey(Job, null=True, on_delete=models.CASCADE, related_name="transitions")
    old = models.CharField(max_length=32, blank=True)
    new = models.CharField(max_length=32)
    reason = models.CharField(max_length=32)
    note = models.TextField(blank=True)
    actor = models.CharField(max_length=200)
    evidence = models.JSONField(default=dict)
    at = models.DateTimeField(auto_now_add=True, db_index=True)
