"""Models and layouts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema

from deployments.domain.plugins import Layout as LayoutPlugin
from deployments.models import LanguageModel, ModelCopy, ParallelLayout
from deployments.schemas.jobs import Job
from deployments.schemas.shapes import Input


class ModelInput(Input):
    """A model by folder (the same on all nodes) or hub id. `nodes`: where to look for it; empty = everywhere."""

    name: str
    path: str
    nodes: list[str] = []


class Copy(Schema):
    """The files of a model on one node, as last looked at."""

    node: str
    path: str
    present: bool
    files: int
    total_bytes: int
    fingerprint: str
    error: dict[str, Any] | None
    checked_at: datetime | None

    @staticmethod
    def of(row: ModelCopy) -> Copy:
        same = ("path", "present", "files", "total_bytes", "fingerprint", "error", "checked_at")
        return Copy(node=row.node.name, **{name: getattr(row, name) for name in same})


class Model(Schema):
    name: str
    path: str
    facts: dict[str, Any]
    created_at: datetime
    copies: list[Copy]

    @classmethod
    def of(cls, row: LanguageModel) -> Model:
        copies = [Copy.of(copy) for copy in row.copies.all()]
        return cls(name=row.name, path=row.path, facts=row.facts, created_at=row.created_at, copies=copies)


class ModelAnswer(Schema):
    """`job` looks for the files; null when there is nowhere to look."""

    model: Model
    job: Job | None


class LayoutInput(Input):
    name: str
    kind: str
    backend: str = "mp"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1


class Layout(Schema):
    name: str
    kind: str
    backend: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    created_at: datetime

    @staticmethod
    def of(row: ParallelLayout) -> Layout:
        return Layout.from_orm(row)


class LayoutKind(Schema):
    kind: str
    title: str
    summary: str

    @staticmethod
    def of(plugin: LayoutPlugin) -> LayoutKind:
        return LayoutKind(kind=plugin.kind, title=plugin.title, summary=plugin.summary)
