"""Wishes: what is to be served, split how, how often."""

from __future__ import annotations

from django.db import models

from deployments.domain.states import DeploymentState, Wish

from .llm import LanguageModel
from .node import Node
from .sealed import SealedText


class ParallelLayout(models.Model):
    """How one copy is split. Rows do not change; another split is another row."""

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=32)
    backend = models.CharField(max_length=16, default="mp")
    tensor_parallel_size = models.PositiveIntegerField(default=1)
    pipeline_parallel_size = models.PositiveIntegerField(default=1)
    data_parallel_size = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)


class Deployment(models.Model):
    """A wish (written by services) and how far it has come (`state` to `lease_until`, written by reconcile)."""

    name = models.CharField(max_length=64, unique=True)
    served_name = models.CharField(max_length=128)
    model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="deployments")
    layout = models.ForeignKey(ParallelLayout, on_delete=models.PROTECT, related_name="deployments")
    nodes = models.ManyToManyField(Node, related_name="wanted_by", blank=True)
    replicas_wished = models.PositiveIntegerField(default=1)
    args = models.JSONField(default=list)
    env = models.JSONField(default=dict)
    start_deadline = models.FloatField(null=True)
    stop_grace = models.FloatField(null=True)
    api_key = SealedText()
    wish = models.CharField(max_length=16, default=Wish.RUNNING)
    generation = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True)

    state = models.CharField(max_length=16, default=DeploymentState.PENDING)
    state_note = models.TextField(blank=True)
    state_at = models.DateTimeField(auto_now_add=True)
    next_look_at = models.DateTimeField(null=True, db_index=True)
    lease_token = models.CharField(max_length=36, blank=True)
    lease_until = models.DateTimeField(null=True)


class Generation(models.Model):
    """What a deployment wished at one generation, and who wished it."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="generations")
    number = models.PositiveIntegerField()
    spec = models.JSONField()
    actor = models.CharField(max_length=200)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["deployment", "number"], name="one_spec_per_generation")]
