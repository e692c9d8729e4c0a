"""Nodes: adding one or many, their host keys, changing, cordoning, probing."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status

from deployments.api.asking import Asking, Cursor, Limit
from deployments.schemas.jobs import Job
from deployments.schemas.nodes import (
    AcceptInput,
    Fingerprints,
    IntentInput,
    Node,
    NodeDetail,
    NodeFields,
    NodeInput,
    NodeNames,
    NodesAnswer,
    NodesInput,
)
from deployments.schemas.shapes import Pages, pages
from deployments.services import node_lists, nodes

router = Router(tags=["nodes"])


@router.get("", response=Pages[Node])
def list_nodes(request: Asking, cursor: Cursor = None, limit: Limit = 100) -> Any:
    """Nodes by name."""
    return pages(nodes.page_of_nodes(cursor, limit), lambda row: Node.of(row, request.auth))


@router.post("", response={201: NodeDetail})
def add_node(request: Asking, body: NodeInput) -> Any:
    """Add a node; its host key is fetched at once, for somebody to compare and accept."""
    nodes.add_nodes(request.auth, [body.said()])
    return Status(201, NodeDetail.of(nodes.get_node(body.name), request.auth))


@router.post("/many", response={201: NodesAnswer, 200: NodesAnswer})
def add_many_nodes(request: Asking, body: NodesInput) -> Any:
    """Add nodes, all or none, from a list or from text; with `dry_run` only say what would be added."""
    items = [item.said() for item in body.nodes]
    notes: list[str] = []
    if body.text:
        read, notes = node_lists.read_nodes(
            request.auth, body.text, body.format, known_hosts=body.known_hosts, defaults=body.defaults.said()
        )
        items += read
    if body.dry_run:
        nodes.check_nodes(request.auth, items)
        return Status(200, {"nodes": [], "items": items, "notes": notes})
    rows = nodes.add_nodes(request.auth, items, accept_known_keys=body.accept_known_keys)
    return Status(201, {"nodes": [Node.of(row, request.auth) for row in rows], "notes": notes})


@router.get("/fingerprints", response=list[Fingerprints])
def list_fingerprints(request: Asking) -> Any:
    """Host keys of all nodes and jump hosts in one table: accepted, offered, and what waits for a decision."""
    return nodes.fingerprints()


@router.post("/fingerprints/accept", response=list[Node])
def accept_fingerprints(request: Asking, body: AcceptInput) -> Any:
    """Accept what somebody has compared; the nodes are probed then."""
    rows = nodes.accept_host_keys(request.auth, [item.dict() for item in body.accept])
    return [Node.of(row, request.auth) for row in rows]


@router.post("/probe", response={202: Job})
def probe_nodes(request: Asking, body: NodeNames) -> Any:
    """Ask many nodes for their facts; one job."""
    return Status(202, Job.of(nodes.probe_nodes(request.auth, body.nodes)))


@router.post("/scan", response={202: Job})
def scan_nodes(request: Asking, body: NodeNames) -> Any:
    """Fetch the host keys of many nodes; one job."""
    return Status(202, Job.of(nodes.scan_nodes(request.auth, body.nodes)))


@router.get("/{name}", response=NodeDetail)
def get_node(request: Asking, name: str) -> Any:
    """One node with its facts."""
    return NodeDetail.of(nodes.get_node(name), request.auth)


@router.patch("/{name}", response=NodeDetail)
def change_node(request: Asking, name: str, body: NodeFields) -> Any:
    """Change how a node is reached or used; another address or port forgets the accepted host key."""
    nodes.change_node(request.auth, name, body.said())
    return NodeDetail.of(nodes.get_node(name), request.auth)


@router.delete("/{name}", response={204: None})
def remove_node(request: Asking, name: str) -> Any:
    """Forget a node on which nothing of ours is left."""
    nodes.remove_node(request.auth, name)
    return Status(204, None)


@router.post("/{name}/intent", response=NodeDetail)
def set_intent(request: Asking, name: str, body: IntentInput) -> Any:
    """CORDONED: nothing new is placed on it. ACTIVE: as usual."""
    return NodeDetail.of(nodes.set_intent(request.auth, name, body.intent), request.auth)


@router.post("/{name}/probe", response={202: Job})
def probe_node(request: Asking, name: str) -> Any:
    """Ask a node for its facts."""
    return Status(202, Job.of(nodes.probe_nodes(request.auth, [name])))


@router.post("/{name}/scan", response={202: Job})
def scan_node(request: Asking, name: str) -> Any:
    """Fetch a node's host key again."""
    return Status(202, Job.of(nodes.scan_nodes(request.auth, [name])))
