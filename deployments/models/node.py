"""Machines, how to reach them, and what they last said."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from deployments.domain.states import NodeIntent, NodeState

from .sealed import SealedText


class SshKey(models.Model):
    """A private key for logging in to nodes, encrypted at rest; `public` is the line for authorized_keys."""

    name = models.CharField(max_length=100, unique=True)
    public = models.TextField()
    fingerprint = models.CharField(max_length=100)
    private = SealedText()
    source = models.CharField(max_length=16, default="generated")
    created_at = models.DateTimeField(auto_now_add=True)


class JumpHost(models.Model):
    """A machine to log in through. `host_key` is the accepted key, `offered_host_key` what it last showed."""

    address = models.CharField(max_length=255)
    port = models.PositiveIntegerField(default=22)
    user = models.CharField(max_length=64)
    key = models.ForeignKey(SshKey, on_delete=models.PROTECT)
    host_key = models.TextField(blank=True)
    offered_host_key = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["address", "port", "user"], name="one_row_per_jump_host")]


class Node(models.Model):
    """A machine. People write how to reach and use it; `reports` writes what it says (state to facts_at)."""

    class Kind(models.TextChoices):
        SSH = "ssh", "SSH"
        LOCAL = "local", "this machine"

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.SSH)
    address = models.CharField(max_length=255, blank=True)
    port = models.PositiveIntegerField(default=22)
    user = models.CharField(max_length=64, blank=True)
    key = models.ForeignKey(SshKey, on_delete=models.PROTECT, null=True)
    jump = models.ForeignKey(JumpHost, on_delete=models.PROTECT, null=True)
    host_key = models.TextField(blank=True)
    offered_host_key = models.TextField(blank=True)
    interpreter = models.CharField(max_length=500, blank=True)
    environment = models.CharField(max_length=500, blank=True)
    cluster_address = models.CharField(max_length=255, blank=True)
    interface = models.CharField(max_length=32, blank=True)
    port_first = models.PositiveIntegerField(default=20000)
    port_last = models.PositiveIntegerField(default=20999)
    env = models.JSONField(default=dict)
    cache_dir = models.CharField(max_length=500, blank=True)
    platform = models.CharField(max_length=16, blank=True)
    intent = models.CharField(max_length=16, default=NodeIntent.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)

    state = models.CharField(max_length=16, default=NodeState.UNKNOWN)
    state_note = models.TextField(blank=True)
    state_at = models.DateTimeField(null=True)
    error = models.JSONField(null=True)
    heard_at = models.DateTimeField(null=True)
    boot_id = models.CharField(max_length=64, blank=True)
    report = models.JSONField(default=dict)
    facts = models.JSONField(default=dict)
    facts_at = models.DateTimeField(null=True)
    observer = models.CharField(max_length=64, blank=True)
    observed_until = models.DateTimeField(null=True)


class Accelerator(models.Model):
    """One slot of a node as its last probe saw it; `present` turns false when a later probe misses it."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="accelerators")
    uuid = models.CharField(max_length=64)
    index = models.PositiveIntegerField()
    name = models.CharField(max_length=100)
    memory_mib = models.PositiveIntegerField(null=True)
    platform = models.CharField(max_length=16)
    compute_capability = models.CharField(max_length=8, blank=True)
    mig = models.BooleanField(default=False)
    present = models.BooleanField(default=True)

    class Meta:
        ordering = ["node_id", "index"]
        constraints = [
            models.UniqueConstraint(fields=["node", "uuid"], name="one_row_per_accelerator"),
            models.CheckConstraint(condition=~Q(uuid=""), name="accelerator_has_uuid"),
        ]
