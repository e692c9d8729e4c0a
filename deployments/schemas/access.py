"""Tokens, users, and what happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema

from deployments.models import ApiToken
from deployments.models import Transition as TransitionRow
from deployments.schemas.shapes import Input


class TokenInput(Input):
    name: str
    scope: str
    days: int = 30


class Token(Schema):
    """A bearer token; its text was shown once when it was made, `prefix` tells it from others."""

    id: int
    name: str
    user: str
    scope: str
    prefix: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None

    @classmethod
    def values(cls, row: ApiToken) -> dict[str, Any]:
        same = ("id", "name", "scope", "prefix", "created_at", "expires_at", "revoked_at", "last_used_at")
        return {**{name: getattr(row, name) for name in same}, "user": row.user.get_username()}

    @classmethod
    def of(cls, row: ApiToken) -> Token:
        return cls(**cls.values(row))


class NewToken(Token):
    """`text` is shown this once and kept nowhere."""

    text: str


class UserInput(Input):
    username: str
    password: str
    role: str


class UserChange(Input):
    role: str | None = None
    active: bool | None = None


class User(Schema):
    id: int
    name: str
    role: str
    active: bool
    last_login: datetime | None


class Me(Schema):
    """Who is asking, and what they may do."""

    name: str
    role: str


class Transition(Schema):
    """One change of a state or wish. Its id grows with time."""

    id: int
    subject: str
    subject_id: str
    name: str
    deployment: str | None
    node: str | None
    job: str | None
    old: str
    new: str
    reason: str
    note: str
    actor: str
    at: datetime
    evidence: dict[str, Any]

    @staticmethod
    def of(row: TransitionRow) -> Transition:
        same = ("id", "subject", "subject_id", "name", "old", "new", "reason", "note", "actor", "at", "evidence")
        return Transition(
            **{name: getattr(row, name) for name in same},
            deployment=row.deployment.name if row.deployment else None,
            node=row.node.name if row.node else None,
            job=str(row.job_id) if row.job_id else None,
        )
