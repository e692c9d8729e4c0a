"""Who may do what: roles of people, tokens of programs, and the answers already given to a repeated request."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models


class Installation(models.Model):
    """This panel. Its id is in everything it leaves on a node; there is exactly one row."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    created_at = models.DateTimeField(auto_now_add=True)


class Member(models.Model):
    """The role of a user: viewer, operator or admin."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="member")
    role = models.CharField(max_length=16, default="viewer")


class ApiToken(models.Model):
    """A bearer token: only its digest is kept. `scope` is a role; `prefix` lets people tell tokens apart."""

    name = models.CharField(max_length=100)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    scope = models.CharField(max_length=16)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)


class IdempotencyRecord(models.Model):
    """The answer to a request that carried an Idempotency-Key, given again to a repeat of it.

    `status` is null while the first request is still at work.
    """

    key = models.CharField(max_length=200)
    actor = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    status = models.IntegerField(null=True)
    body = models.JSONField(null=True)
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "actor"], name="one_answer_per_key_and_actor")]
