"""Deployments, previews and processes."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Schema

from deployments.models import Deployment as DeploymentRow
from deployments.models import Process as ProcessRow
from deployments.models import Replica as ReplicaRow
from deployments.schemas.shapes import Input, Problem, age_s
from deployments.services import deployments, fleet
from deployments.services.access import Actor, shown_env
from deployments.services.deployments import DeploymentInput, Preview, PreviewedProcess


class WishInput(Input):
    """What is wished. `nodes` are names to choose among; empty = any. `args` and `env` go to the engine."""

    model: str
    layout: str
    served_name: str = ""
    replicas: int = 1
    nodes: list[str] = []
    args: list[str] = []
    env: dict[str, str] = {}
    start_deadline: float | None = None
    stop_grace: float | None = None

    def wish(self, name: str) -> DeploymentInput:
        return DeploymentInput(name=name, **self.dict(exclude={"name"}))


class PreviewInput(WishInput):
    name: str


class ScaleInput(Input):
    replicas: int


class Planned(Schema):
    """One process that apply would start."""

    node: str
    role: str
    rank: int
    accelerators: list[str]
    ports: dict[str, int]
    argv: list[str]
    env: dict[str, str]
    command: str

    @staticmethod
    def of(process: PreviewedProcess) -> Planned:
        return Planned(**asdict(process))


class PreviewAnswer(Schema):
    """What apply would do now; `ok` = no problem is an error."""

    ok: bool
    problems: list[Problem]
    processes: list[Planned]

    @staticmethod
    def of(preview: Preview) -> PreviewAnswer:
        return PreviewAnswer(
            ok=preview.ok,
            problems=[Problem(**asdict(problem)) for problem in preview.problems],
            processes=[Planned.of(process) for process in preview.processes],
        )


class Replica(Schema):
    id: UUID
    index: int
    generation: int
    state: str
    reason: str
    note: str
    since: datetime
    attempt: int
    failures: int
    next_attempt_at: datetime | None
    retiring: bool

    @staticmethod
    def of(row: ReplicaRow) -> Replica:
        return Replica.from_orm(row)


class Process(Schema):
    """One thing started on one node. `deadline` is what ends its state; `stop_evidence` proves that it is gone."""

    id: UUID
    deployment: str
    replica: UUID | None
    attempt: int
    role: str
    group: str
    member: int
    rank: int
    node: str
    pid: int | None
    state: str
    reason: str
    note: str
    since: datetime
    age_s: float | None
    deadline: datetime | None
    phase: str
    progress: int | None
    error: dict[str, Any] | None
    stop_evidence: dict[str, Any] | None
    created_at: datetime
    ready_at: datetime | None
    ended_at: datetime | None

    @staticmethod
    def values(row: ProcessRow) -> dict[str, Any]:
        same = (
            "id", "attempt", "role", "group", "member", "rank", "pid", "state", "reason", "note", "since", "deadline",
            "phase", "progress", "error", "stop_evidence", "created_at", "ready_at", "ended_at",
        )  # fmt: skip
        return {
            **{name: getattr(row, name) for name in same},
            "deployment": row.deployment.name,
            "replica": row.replica_id,
            "node": row.node.name,
            "age_s": age_s(row.since),
        }

    @classmethod
    def of(cls, row: ProcessRow) -> Process:
        return cls(**cls.values(row))


class ProcessDetail(Process):
    """`evidence` is what the node's newest report says about it; `black_box` what was kept of a failed one."""

    spec: dict[str, Any]
    evidence: dict[str, Any] | None
    evidence_at: datetime | None
    black_box: dict[str, Any] | None

    @classmethod
    def detail(cls, row: ProcessRow, actor: Actor) -> ProcessDetail:
        evidence = fleet.evidence_for(row)
        return cls(
            **cls.values(row),
            spec={**row.spec, "env": shown_env(row.spec.get("env") or {}, actor)},
            evidence=asdict(evidence) if evidence else None,
            evidence_at=row.node.heard_at,
            black_box=_shown_box(row.black_box, actor),
        )


def _shown_box(box: dict[str, Any] | None, actor: Actor) -> dict[str, Any] | None:
    request = (box or {}).get("request")
    if box is None or not isinstance(request, dict):
        return box
    return {**box, "request": {**request, "env": shown_env(request.get("env") or {}, actor)}}


class Log(Schema):
    """A piece of a log by byte offset. `base` is the first byte still kept, `size` one past the last."""

    offset: int
    next_offset: int
    base: int
    size: int
    data: str


class Endpoint(Schema):
    """Where it answers, and a command that asks for a completion (with the key in $API_KEY)."""

    process: str
    node: str
    url: str
    curl: str


class Deployment(Schema):
    """A wish, and how far it has come. The ETag of an answer is the generation."""

    name: str
    served_name: str
    model: str
    layout: str
    replicas: int
    nodes: list[str]
    args: list[str]
    env: dict[str, str]
    start_deadline: float | None
    stop_grace: float | None
    wish: str
    generation: int
    created_at: datetime
    state: str
    state_note: str
    state_at: datetime
    state_age_s: float | None

    @staticmethod
    def values(row: DeploymentRow, actor: Actor) -> dict[str, Any]:
        same = (
            "name", "served_name", "args", "start_deadline", "stop_grace", "wish", "generation", "created_at", "state",
            "state_at",
        )  # fmt: skip
        notes = [replica.note for replica in row.replicas.all() if replica.state != "STOPPED" and replica.note]
        return {
            **{name: getattr(row, name) for name in same},
            "model": row.model.name,
            "layout": row.layout.name,
            "replicas": row.replicas_wished,
            "nodes": sorted(node.name for node in row.nodes.all()),
            "env": shown_env(row.env, actor),
            "state_note": row.state_note or "; ".join(dict.fromkeys(notes)),
            "state_age_s": age_s(row.state_at),
        }

    @classmethod
    def of(cls, row: DeploymentRow, actor: Actor) -> Deployment:
        return cls(**cls.values(row, actor))


class DeploymentDetail(Deployment):
    """With all that belongs to it now. `reached` is about `wait_for`; null when nothing was waited for."""

    live_replicas: list[Replica]
    processes: list[Process]
    endpoints: list[Endpoint]
    problems: list[Problem]
    reached: bool | None = None

    @classmethod
    def detail(cls, row: DeploymentRow, actor: Actor, reached: bool | None = None) -> DeploymentDetail:
        processes = deployments.processes_of(row)
        return cls(
            **cls.values(row, actor),
            live_replicas=[Replica.of(r) for r in row.replicas.exclude(state="STOPPED").order_by("index")],
            processes=[Process.of(process) for process in processes],
            endpoints=[
                Endpoint(**found, curl=deployments.curl_line(row, found["url"])) for found in deployments.endpoints(row)
            ],
            problems=[Problem(**asdict(problem)) for problem in deployments.problems_of(row, processes)],
            reached=reached,
        )


class ApiKey(Schema):
    """The key that the deployment's engines ask for."""

    api_key: str
