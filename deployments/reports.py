"""What nodes say, written down. The sole writer of a Node's observed columns and of its accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from deployments.domain import facts as domain_facts
from deployments.domain.errors import InvalidInput, PilothouseError
from deployments.domain.model_facts import read_config
from deployments.domain.states import NodeState, Reason
from deployments.models import Accelerator, LanguageModel, ModelCopy, Node
from deployments.remote.launcher import AuthFailed, HostKeyChanged, HostKeyUnknown, RemoteError
from deployments.transitions import record as record_transition


def record(node: Node, report: dict[str, Any], heard_at: datetime | None = None) -> None:
    """Keep a node's newest report. An older one than is kept already changes nothing."""
    heard_at = heard_at or timezone.now()
    boot_id = report.get("boot_id") or ""
    values = {"report": report, "heard_at": heard_at, "boot_id": boot_id, "error": None}
    newer = Node.objects.filter(pk=node.pk).exclude(heard_at__gt=heard_at)
    if not newer.update(**values):
        return
    for name, value in values.items():
        setattr(node, name, value)
    if node.facts:
        _become(node, NodeState.READY, "it answers")


@dataclass(frozen=True, slots=True)
class Quiet:
    """A report that says nothing new: `report` as JSON, of the boot that is known."""

    node_id: int
    report: str
    boot_id: str
    heard_at: datetime


def record_quiet(quiet: Sequence[Quiet]) -> set[int]:
    """Keep the reports of many nodes that are READY, in one statement.

    Returns:
        Ids of nodes whose report was kept. The others need `record`: something about them is new after all.
    """
    if not quiet:
        return set()
    columns = zip(*((one.node_id, one.report, one.boot_id, one.heard_at) for one in quiet), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_RECORD_QUIET, [*(list(column) for column in columns), NodeState.READY])
        return {pk for (pk,) in cursor.fetchall()}


# Django's bulk_update would write a CASE of every row into the statement, which costs more than all the rest.
_RECORD_QUIET = """
    UPDATE deployments_node AS node SET report = new.report::jsonb, heard_at = new.heard_at
    FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::timestamptz[]) AS new(id, report, boot_id, heard_at)
    WHERE node.id = new.id AND node.boot_id = new.boot_id AND node.heard_at <= new.heard_at
        AND node.error IS NULL AND node.state = %s
    RETURNING node.id
"""


def record_facts(node: Node, raw: dict[str, Any]) -> None:
    """Keep what a probe found: facts, accelerators, and that the node answers."""
    facts = domain_facts.read_facts(raw)
    found = domain_facts.accelerators_of(raw, platform=node.platform or None)
    values: dict[str, Any] = {"facts": facts, "facts_at": timezone.now(), "error": None}
    if not node.platform and found:
        values["platform"] = found[0].platform
    with transaction.atomic():
        Node.objects.filter(pk=node.pk).update(**values)
        seen = []
        for slot in found:
            Accelerator.objects.update_or_create(
                node=node,
                uuid=slot.uuid,
                defaults={
                    "index": slot.index,
                    "name": slot.name,
                    "memory_mib": slot.memory_mib,
                    "platform": slot.platform,
                    "compute_capability": slot.compute_capability or "",
                    "mig": slot.mig,
                    "present": True,
                },
            )
            seen.append(slot.uuid)
        Accelerator.objects.filter(node=node).exclude(uuid__in=seen).update(present=False)
    for name, value in values.items():
        setattr(node, name, value)
    _become(node, NodeState.READY, "probed")


def record_port_in_use(node: Node, port: int) -> None:
    """Keep that a port was found taken, so that others are tried first until a probe says what listens now."""
    with transaction.atomic():
        row = Node.objects.select_for_update().get(pk=node.pk)
        row.facts["listening"] = sorted({*(row.facts.get("listening") or ()), port})
        row.save(update_fields=["facts"])


def record_failure(node: Node, error: PilothouseError, ttl: float) -> None:
    """Keep why a node could not be asked.

    It is UNREACHABLE only once it has been silent for `ttl` seconds; one that refuses us is NOT_READY at once.
    """
    Node.objects.filter(pk=node.pk).update(error=error.as_dict())
    node.error = error.as_dict()
    if isinstance(error, HostKeyChanged | HostKeyUnknown):
        _remember_offer(node, error)
    if isinstance(error, HostKeyChanged | HostKeyUnknown | AuthFailed):
        _become(node, NodeState.NOT_READY, error.message, error.code)
        return
    if node.heard_at is not None and timezone.now() - node.heard_at < timedelta(seconds=ttl):
        return
    silent = isinstance(error, RemoteError) and error.retryable
    _become(node, NodeState.UNREACHABLE if silent else NodeState.NOT_READY, error.message, error.code)


def _remember_offer(node: Node, error: PilothouseError) -> None:
    """The key that was offered instead of the accepted one, so that a person can compare and accept it."""
    offered, at_jump = error.detail.get("offered_key"), error.detail.get("jump")
    if not offered:
        return
    if at_jump and node.jump is not None:
        type(node.jump).objects.filter(pk=node.jump.pk).update(offered_host_key=offered)
    else:
        Node.objects.filter(pk=node.pk).update(offered_host_key=offered)


def _become(node: Node, state: NodeState, note: str, reason: str = Reason.PROBE_PASSED) -> None:
    if node.state == state:
        if node.state_note != note and state is not NodeState.READY:
            Node.objects.filter(pk=node.pk).update(state_note=note)
        return
    old = node.state
    now = timezone.now()
    with transaction.atomic():
        if not Node.objects.filter(pk=node.pk, state=old).update(state=state, state_note=note, state_at=now):
            return
        node.state, node.state_note, node.state_at = state, note, now
        record_transition("node", node.pk, old, state, reason[:32], note, node_id=node.pk, name=node.name)


def record_files(model_id: int, node: Node, answer: dict[str, Any]) -> ModelCopy | None:
    """Keep what a node says about a model's folder; the first readable `config.json` becomes the model's."""
    model = LanguageModel.objects.filter(pk=model_id).first()
    if model is None:
        return None
    files = answer.get("files") or []
    copy, _ = ModelCopy.objects.update_or_create(
        model=model,
        node=node,
        defaults={
            "path": answer.get("path") or model.path,
            "present": bool(answer.get("exists") and answer.get("config")),
            "files": len(files),
            "total_bytes": sum(int(file.get("size") or 0) for file in files),
            "error": _copy_error(answer, node),
            "checked_at": timezone.now(),
        },
    )
    if answer.get("config"):
        facts = read_config(model.path, answer["config"], answer.get("index_total_size") or _weights(files))
        LanguageModel.objects.filter(pk=model.pk).update(config=answer["config"], facts=facts)
    return copy


def record_missing(model_id: int, node: Node, error: dict[str, Any]) -> None:
    """Keep that a node does not have a model's folder, and why; nothing for a model that was removed meanwhile."""
    if not LanguageModel.objects.filter(pk=model_id).exists():
        return
    ModelCopy.objects.update_or_create(
        model_id=model_id,
        node=node,
        defaults={"present": False, "error": error, "checked_at": timezone.now(), "files": 0, "total_bytes": 0},
    )


def record_fingerprint(model_id: int, node: Node, result: dict[str, Any]) -> None:
    """Keep the fingerprint of a node's copy."""
    ModelCopy.objects.filter(model_id=model_id, node=node).update(fingerprint=result.get("fingerprint") or "")


def _copy_error(answer: dict[str, Any], node: Node) -> dict[str, Any] | None:
    if answer.get("config"):
        return None
    said = answer.get("config_error") or "there is no config.json in it"
    return InvalidInput(
        f"{answer.get('path')} on {node.name} is no model folder: {said}.",
        remedy="Put a complete Hugging Face model folder there, or correct the path.",
        node=node.name,
        code="MODEL_MISSING",
    ).as_dict()


def _weights(files: list[dict[str, Any]]) -> int | None:
    sizes = [int(f.get("size") or 0) for f in files if str(f.get("name", "")).endswith((".safetensors", ".bin", ".pt"))]
    return sum(sizes) or None


def record_offers(node: Node, host: str | None, jump: str | None) -> None:
    """Keep the host keys that a scan was shown. Accepting them is a person's."""
    if host:
        Node.objects.filter(pk=node.pk).update(offered_host_key=host)
    if jump and node.jump is not None:
        type(node.jump).objects.filter(pk=node.jump.pk).update(offered_host_key=jump)


def record_environment(node: Node, path: str) -> None:
    """Use an environment that was installed and found complete."""
    Node.objects.filter(pk=node.pk).update(environment=path)
    node.environment = path
