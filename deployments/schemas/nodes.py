"""Nodes, their keys and fingerprints."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema

from deployments.models import Accelerator as AcceleratorRow
from deployments.models import JumpHost as JumpHostRow
from deployments.models import Node as NodeRow
from deployments.models import SshKey as SshKeyRow
from deployments.schemas.shapes import Input, age_s
from deployments.services.access import Actor, shown_env


class JumpInput(Input):
    address: str
    port: int = 22
    user: str = "root"
    key: str | None = None


class NodeFields(Input):
    """What may be said about a node when it is added, and changed later.

    Null leaves a field as it is; `jump: null` = no jump host.
    """

    address: str | None = None
    port: int | None = None
    user: str | None = None
    key: str | None = None
    jump: JumpInput | None = None
    interpreter: str | None = None
    environment: str | None = None
    cluster_address: str | None = None
    interface: str | None = None
    port_first: int | None = None
    port_last: int | None = None
    env: dict[str, str] | None = None
    cache_dir: str | None = None
    platform: str | None = None

    def said(self) -> dict[str, Any]:
        """The fields that were given; a jump host given as null means that there is none."""
        given = self.dict(exclude_unset=True)
        return {name: value for name, value in given.items() if value is not None or name == "jump"}


class NodeInput(NodeFields):
    name: str
    address: str
    known_key: str | None = None


class NodesInput(Input):
    """Many nodes: as `nodes`, or as `text` of the given format with `defaults` for what it does not say."""

    nodes: list[NodeInput] = []
    format: Literal["list", "ssh_config", "known_hosts"] = "list"
    text: str = ""
    known_hosts: str = ""
    defaults: NodeFields = NodeFields()
    accept_known_keys: bool = False
    dry_run: bool = False


class NodeNames(Input):
    """Nodes by name; empty = all."""

    nodes: list[str] = []


class IntentInput(Input):
    intent: str


class Accept(Input):
    """The fingerprints that a person compared with the machine's own."""

    node: str
    fingerprint: str | None = None
    jump_fingerprint: str | None = None


class AcceptInput(Input):
    accept: list[Accept]


class GenerateKeyInput(Input):
    name: str


class PasteKeyInput(Input):
    name: str
    private: str


class ImportKeyInput(Input):
    name: str
    file: str


class Key(Schema):
    """An SSH key; `public` goes into authorized_keys on the nodes. The private part is never given out."""

    name: str
    public: str
    fingerprint: str
    source: str
    created_at: datetime

    @staticmethod
    def of(row: SshKeyRow) -> Key:
        return Key.from_orm(row)


class Jump(Schema):
    address: str
    port: int
    user: str
    key: str

    @staticmethod
    def of(row: JumpHostRow) -> Jump:
        return Jump(address=row.address, port=row.port, user=row.user, key=row.key.name)


class Accelerator(Schema):
    uuid: str
    index: int
    name: str
    memory_mib: int | None
    platform: str
    compute_capability: str
    mig: bool
    present: bool

    @staticmethod
    def of(row: AcceleratorRow) -> Accelerator:
        return Accelerator.from_orm(row)


class Node(Schema):
    """A machine: how it is reached and used (written by people), and what it last said (`state` and on)."""

    name: str
    kind: str
    address: str
    port: int
    user: str
    key: str | None
    jump: Jump | None
    interpreter: str
    environment: str
    cluster_address: str
    interface: str
    port_first: int
    port_last: int
    env: dict[str, str]
    cache_dir: str
    platform: str
    intent: str
    created_at: datetime
    state: str
    state_note: str
    state_at: datetime | None
    heard_at: datetime | None
    heard_age_s: float | None
    error: dict[str, Any] | None
    accelerators: list[Accelerator]

    @staticmethod
    def values(row: NodeRow, actor: Actor) -> dict[str, Any]:
        same = (
            "name", "kind", "address", "port", "user", "interpreter", "environment", "cluster_address", "interface",
            "port_first", "port_last", "cache_dir", "platform", "intent", "created_at", "state", "state_note",
            "state_at", "heard_at", "error",
        )  # fmt: skip
        return {
            **{name: getattr(row, name) for name in same},
            "key": row.key.name if row.key else None,
            "jump": Jump.of(row.jump) if row.jump else None,
            "env": shown_env(row.env, actor),
            "heard_age_s": age_s(row.heard_at),
            "accelerators": [Accelerator.of(slot) for slot in row.accelerators.all()],
        }

    @classmethod
    def of(cls, row: NodeRow, actor: Actor) -> Node:
        return cls(**cls.values(row, actor))


class NodeDetail(Node):
    """A node with all facts of its last probe."""

    boot_id: str
    facts: dict[str, Any]
    facts_at: datetime | None

    @classmethod
    def of(cls, row: NodeRow, actor: Actor) -> NodeDetail:
        return cls(**cls.values(row, actor), boot_id=row.boot_id, facts=row.facts, facts_at=row.facts_at)


class NodesAnswer(Schema):
    """`items` are what a dry run read from the text; `notes` what of it could not be used."""

    nodes: list[Node]
    items: list[dict[str, Any]] = []
    notes: list[str] = []


class Fingerprints(Schema):
    """Host keys of a node and of its jump host as SHA256 fingerprints: accepted ones, and what was last offered."""

    node: str
    address: str
    accepted: str | None
    offered: str | None
    jump: str | None
    jump_accepted: str | None
    jump_offered: str | None
    changed: bool
    undecided: bool
