"""From a Node row to what a launcher needs to reach it, and what the planner needs to know of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from deployments.domain.specs import Accelerator as Slot
from deployments.domain.specs import NodeView
from deployments.domain.states import NodeIntent, NodeState
from deployments.models import AcceleratorClaim, Installation, LanguageModel, ModelCopy, Node, PortClaim
from deployments.remote.launcher import NodeTarget, SshEndpoint


def installation_id() -> str:
    """This panel's id, made at the first call."""
    row = Installation.objects.first() or Installation.objects.create()
    return str(row.pk)


def target_of(node: Node, installation: str | None = None) -> NodeTarget:
    """How to reach a node. Only accepted host keys are given out. For many nodes, look `installation` up once."""
    endpoint = jump = None
    if node.kind == Node.Kind.SSH:
        endpoint = SshEndpoint(node.address, node.port, node.user, _private(node), _keys(node.host_key))
        if node.jump is not None:
            j = node.jump
            jump = SshEndpoint(j.address, j.port, j.user, j.key.private, _keys(j.host_key))
    return NodeTarget(node.pk, node.name, installation or installation_id(), endpoint, jump, node.interpreter or None)


def _private(node: Node) -> str:
    return node.key.private if node.key is not None else ""


def _keys(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())


def node_views(model: LanguageModel | None = None, *, nodes: Iterable[Node] | None = None) -> dict[int, NodeView]:
    """The fleet as the planner sees it, with what is claimed taken off."""
    rows = list(Node.objects.defer("report").prefetch_related("accelerators")) if nodes is None else list(nodes)
    taken: dict[int, set[str]] = defaultdict(set)
    for node_id, uuid in AcceleratorClaim.objects.filter(released_at=None).values_list("node_id", "uuid"):
        taken[node_id].add(uuid)
    ports: dict[int, set[int]] = defaultdict(set)
    for node_id, port in PortClaim.objects.filter(released_at=None).values_list("node_id", "port"):
        ports[node_id].add(port)
    copies = {} if model is None else {c.node_id: c for c in ModelCopy.objects.filter(model=model)}
    return {node.pk: _view(node, taken[node.pk], ports[node.pk], model, copies.get(node.pk)) for node in rows}


def _view(
    node: Node, taken: set[str], ports: set[int], model: LanguageModel | None, copy: ModelCopy | None
) -> NodeView:
    slots = tuple(
        Slot(a.uuid, a.index, a.name, a.memory_mib, a.platform, a.compute_capability or None, a.mig)
        for a in node.accelerators.all()
        if a.present
    )
    environment = node.facts.get("environment") or {}
    return NodeView(
        id=node.pk,
        name=node.name,
        address=cluster_address(node),
        platform=node.platform or (slots[0].platform if slots else "cpu"),
        intent=NodeIntent(node.intent),
        state=NodeState(node.state),
        interface=node.interface or None,
        port_range=(node.port_first, node.port_last),
        used_ports=frozenset(ports),
        heard_ports=frozenset(node.facts.get("listening") or ()),
        accelerators=slots,
        free_accelerators=tuple(slot for slot in slots if slot.uuid not in taken),
        environment=environment.get("path") if (environment.get("executables") or {}).get("vllm") else None,
        engine_version=(environment.get("packages") or {}).get("vllm"),
        model_path=_model_path(model, copy),
        boot_id=node.boot_id or None,
        heard_at=node.heard_at.timestamp() if node.heard_at else None,
        env=node.env,
        cache_dir=node.cache_dir or None,
    )


def _model_path(model: LanguageModel | None, copy: ModelCopy | None) -> str | None:
    """Where the node finds the model: its own copy, else the hub id; None = known to be missing."""
    if model is None:
        return ""
    if copy is not None and copy.present:
        return copy.path
    return None if model.is_local else model.path


def cluster_address(node: Node) -> str:
    """The address engines on the node listen on and peers reach."""
    return node.cluster_address or (node.address if node.kind == Node.Kind.SSH else "127.0.0.1")
