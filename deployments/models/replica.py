"""What was started for a wish. Written by `reconcile` alone."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from deployments.domain.states import PROCESS_FINAL, ProcessState, ReplicaState

from .deployment import Deployment
from .node import Node


class Replica(models.Model):
    """One serving copy: a gang of processes. `attempt` counts its tries and only grows."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="replicas")
    index = models.PositiveIntegerField()
    generation = models.PositiveIntegerField()
    state = models.CharField(max_length=16, default=ReplicaState.PENDING)
    reason = models.CharField(max_length=32, blank=True)
    note = models.TextField(blank=True)
    since = models.DateTimeField(auto_now_add=True)
    attempt = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True)
    ready_since = models.DateTimeField(null=True)
    retiring = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["deployment", "index"],
                condition=~Q(state=ReplicaState.STOPPED),
                name="one_live_replica_per_index",
            )
        ]


class Process(models.Model):
    """One thing started on one node: one row per attempt, never revived.

    `spec` is a ProcessSpec as JSON. `evidence` is how the state was observed; `deadline` is what ends it. `files_kept`:
    its folder is still on the node.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="processes")
    replica = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="processes", null=True)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="processes")
    attempt = models.PositiveIntegerField()
    role = models.CharField(max_length=16)
    group = models.CharField(max_length=32)
    member = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    wave = models.PositiveIntegerField()
    spec = models.JSONField()
    state = models.CharField(max_length=16, default=ProcessState.PENDING)
    reason = models.CharField(max_length=32, blank=True)
    note = models.TextField(blank=True)
    since = models.DateTimeField(auto_now_add=True)
    deadline = models.DateTimeField(null=True)
    evidence = models.JSONField(default=dict)
    launch_requested_at = models.DateTimeField(null=True)
    launch_boot_id = models.CharField(max_length=64, blank=True)
    pid = models.PositiveIntegerField(null=True)
    phase = models.CharField(max_length=32, blank=True)
    progress = models.PositiveSmallIntegerField(null=True)
    error = models.JSONField(null=True)
    black_box = models.JSONField(null=True)
    stop_evidence = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    files_kept = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["replica", "group", "member", "rank"],
                condition=~Q(state__in=sorted(PROCESS_FINAL)),
                name="one_live_process_per_seat",
            )
        ]


class AcceleratorClaim(models.Model):
    """A process's hold on an accelerator, until it is proven gone. `share_mib` null = the whole of it."""

    process = models.ForeignKey(Process, on_delete=models.CASCADE, related_name="accelerator_claims")
    node = models.ForeignKey(Node, on_delete=models.PROTECT)
    uuid = models.CharField(max_length=64)
    share_mib = models.PositiveIntegerField(null=True)
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node", "uuid"],
                condition=Q(released_at__isnull=True, share_mib__isnull=True),
                name="one_whole_claim_per_accelerator",
            )
        ]


class PortClaim(models.Model):
    """A process's hold on a port of its node, until it is proven gone."""

    process = models.ForeignKey(Process, on_delete=models.CASCADE, related_name="port_claims")
    node = models.ForeignKey(Node, on_delete=models.PROTECT)
    port = models.PositiveIntegerField()
    name = models.CharField(max_length=32)
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node", "port"], condition=Q(released_at__isnull=True), name="one_claim_per_port"
            )
        ]
