"""Long work."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Schema

from deployments.models import Job as JobRow
from deployments.models import JobStep
from deployments.schemas.shapes import Input


class JobInput(Input):
    """`args` depend on the kind: `install_environment` takes path, packages and maybe python, find_links."""

    kind: str
    nodes: list[str]
    args: dict[str, Any] = {}


class Step(Schema):
    """A job's work on one node."""

    node: str
    state: str
    note: str
    progress: int
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    log_size: int
    started_at: datetime | None
    finished_at: datetime | None

    @staticmethod
    def of(row: JobStep) -> Step:
        same = ("state", "note", "progress", "result", "error", "started_at", "finished_at")
        return Step(node=row.node.name, log_size=row.log_offset, **{name: getattr(row, name) for name in same})


class Job(Schema):
    id: UUID
    kind: str
    title: str
    args: dict[str, Any]
    actor: str
    state: str
    note: str
    progress: int
    retry_of: UUID | None
    cancel_requested_by: str
    created_at: datetime
    finished_at: datetime | None
    steps: list[Step]

    @classmethod
    def values(cls, row: JobRow) -> dict[str, Any]:
        same = (
            "id", "kind", "title", "args", "actor", "state", "note", "progress", "cancel_requested_by", "created_at",
            "finished_at",
        )  # fmt: skip
        steps = [Step.of(step) for step in row.steps.all()]
        return {**{name: getattr(row, name) for name in same}, "retry_of": row.retry_of_id, "steps": steps}

    @classmethod
    def of(cls, row: JobRow) -> Job:
        return cls(**cls.values(row))


class JobDetail(Job):
    """`reached` says whether a waited-for state was reached; null when nothing was waited for."""

    reached: bool | None = None


class JobLog(Schema):
    """The tail of a step's log, as far as it is kept."""

    node: str
    data: str
