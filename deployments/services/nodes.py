"""Nodes: adding one or many, accepting their keys, changing and removing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.fields.json import KT
from django.utils import timezone

from deployments.domain.errors import Conflict, InvalidInput, NotFound, Taken
from deployments.domain.states import PROCESS_FINAL, NodeIntent
from deployments.models import Deployment, Job, JobStep, JumpHost, Node, Process, SshKey
from deployments.remote.ssh_files import host_key
from deployments.services import jobs as job_services
from deployments.services import naming
from deployments.services.access import SYSTEM_ACTOR, Actor, Role, require
from deployments.services.keys import get_key
from deployments.services.paging import Page, page
from deployments.transitions import record

LOCAL_NAME = "local"
# Changing one of these means another login: what was accepted or seen no longer holds.
IDENTITY = ("address", "port")


def list_nodes() -> list[Node]:
    """All nodes with their accelerators, by name."""
    return list(Node.objects.select_related("key", "jump").prefetch_related("accelerators").order_by("name"))


def page_of_nodes(cursor: str | None, limit: int) -> Page[Node]:
    """Some nodes with their accelerators, by name."""
    return page(
        Node.objects.select_related("key", "jump__key").prefetch_related("accelerators"), ("name",), cursor, limit
    )


def probe_nodes(actor: Actor, names: Sequence[str] = ()) -> Job:
    """One job that asks nodes for their facts; no name = all of them."""
    require(actor, Role.operator, "probe nodes")
    rows = [get_node(name) for name in names] or list(Node.objects.order_by("name"))
    return job_services.start_job(actor, kind="probe", nodes=rows)


def scan_nodes(actor: Actor, names: Sequence[str] = ()) -> Job:
    """One job that fetches host keys; no name = of all nodes that are reached by SSH."""
    require(actor, Role.admin, "fetch host keys")
    rows = [get_node(name) for name in names] or list(Node.objects.filter(kind=Node.Kind.SSH).order_by("name"))
    return job_services.start_job(actor, kind="scan", nodes=rows)


def get_node(node_name: str) -> Node:
    """The node called `node_name`."""
    row = Node.objects.select_related("key", "jump__key").filter(name=naming.known(node_name)).first()
    if row is None:
        raise NotFound(f"There is no node {node_name!r}.", field="node")
    return row


def get_nodes(names: Sequence[str]) -> list[Node]:
    """The nodes with these names, in this order, by one query.

    Raises:
        NotFound: The first name that there is no node of.
    """
    rows = {row.name: row for row in Node.objects.filter(name__in=[naming.known(name) for name in names])}
    return [rows[name] if name in rows else get_node(name) for name in names]


def ensure_local_node() -> Node:
    """This machine as node `local`, made at the first start and probed."""
    node, created = Node.objects.get_or_create(
        name=LOCAL_NAME, defaults={"kind": Node.Kind.LOCAL, "cluster_address": "127.0.0.1"}
    )
    if created:
        record("node", node.pk, "", "ADDED", "APPLIED", "this machine", node_id=node.pk, name=node.name)
    if not node.facts:
        job_services.start_job(SYSTEM_ACTOR, kind="probe", nodes=[node])
    return node


def probe_heard() -> int:
    """Probe nodes that answer but whose facts are not known, or are those of before a restart; how many were begun.

    A first probe may have failed because the machine was away; one job at a time, and not sooner than a minute later.
    """
    now = timezone.now()
    heard = Node.objects.filter(heard_at__gt=now - timedelta(seconds=30))
    unknown = heard.annotate(probed_boot=KT("facts__boot_id")).exclude(facts_at__isnull=False, probed_boot=F("boot_id"))
    tried = JobStep.objects.filter(job__kind="probe", job__created_at__gt=now - timedelta(seconds=60))
    nodes = list(unknown.exclude(pk__in=tried.values("node")))
    if nodes:
        job_services.start_job(SYSTEM_ACTOR, kind="probe", nodes=nodes)
    return len(nodes)


def add_nodes(
    actor: Actor, items: Sequence[Mapping[str, Any]], *, scan: bool = True, accept_known_keys: bool = False
) -> list[Node]:
    """Add one or many nodes, all or none, and begin to fetch their host keys.

    Each item: name, address, port, user, key (name), jump ({address, port, user, key} or None), the optional
    fields of `change_node`, and `known_key`: a host key (OpenSSH text) that somebody's known_hosts has for it.

    Args:
        accept_known_keys: Take each `known_key` as compared and accepted; else it is only shown as offered.

    Raises:
        InvalidInput, NotFound, Conflict: The first bad item; the detail holds its place in the list.
    """
    require(actor, Role.admin, "add nodes")
    nodes = []
    with transaction.atomic():
        for place, item in enumerate(items):
            try:
                nodes.append(_add(actor, item, accept_known_keys))
            except (InvalidInput, NotFound, Conflict) as error:
                error.detail["item"] = place
                error.node = error.node or str(item.get("name", ""))
                raise
    if scan:
        _begin(actor, nodes)
    return nodes


def check_nodes(actor: Actor, items: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what `add_nodes` would refuse, and keep nothing."""
    with transaction.atomic():
        add_nodes(actor, items, scan=False)
        transaction.set_rollback(True)


def _begin(actor: Actor, nodes: Sequence[Node]) -> None:
    """Probe the nodes that may be logged in to; fetch the host keys of the others."""
    ready = [node for node in nodes if node.host_key and (node.jump is None or node.jump.host_key)]
    if ready:
        job_services.start_job(actor, kind="probe", nodes=ready)
    blind = [node for node in nodes if node not in ready]
    if blind:
        job_services.start_job(actor, kind="scan", nodes=blind)


def _add(actor: Actor, item: Mapping[str, Any], accept_known_keys: bool) -> Node:
    name = naming.name(str(item["name"]))
    node = Node(name=name, kind=Node.Kind.SSH)
    _apply(node, {"port": 22, "user": "root", **item})
    if node.key is None:
        raise InvalidInput("A node needs an SSH key.", remedy="Name one of the keys.", field="key")
    try:
        with transaction.atomic():
            node.save()
    except IntegrityError:
        raise Taken(f"There is a node {name!r} already.", remedy="Choose another name.", field="name") from None
    record(
        "node",
        node.pk,
        "",
        "ADDED",
        "APPLIED",
        f"{node.user}@{node.address}",
        actor=actor.name,
        node_id=node.pk,
        name=name,
    )
    if item.get("known_key"):
        node.offered_host_key = host_key(str(item["known_key"])).public
        node.save(update_fields=["offered_host_key"])
        if accept_known_keys:
            _accept(actor, node, node, host_key(node.offered_host_key).fingerprint)
    return node


def change_node(actor: Actor, node_name: str, changes: Mapping[str, Any]) -> Node:
    """Change how a node is reached or used.

    Fields: address, port, user, key, jump, interpreter, environment, cluster_address, interface, port_first,
    port_last, env, cache_dir, platform. Another address or port forgets the accepted host key.
    """
    require(actor, Role.admin, "change nodes")
    node = get_node(node_name)
    before = [getattr(node, field) for field in IDENTITY]
    _apply(node, changes)
    if before != [getattr(node, field) for field in IDENTITY]:
        node.host_key = node.offered_host_key = ""
    settable = {"address", "port", "user", "key", "jump", "interpreter", "environment", "cluster_address", "interface",
                "port_first", "port_last", "env", "cache_dir", "platform", "host_key", "offered_host_key"}  # fmt: skip
    node.save(update_fields=sorted(settable))
    fields = ", ".join(sorted(changes))
    record("node", node.pk, "", "CHANGED", "APPLIED", fields, actor=actor.name, node_id=node.pk, name=node.name)
    if node.kind == Node.Kind.LOCAL or node.host_key:
        job_services.start_job(actor, kind="probe", nodes=[node])
    else:
        job_services.start_job(actor, kind="scan", nodes=[node])
    return node


def _apply(node: Node, values: Mapping[str, Any]) -> None:
    """Check and set the fields that are present in `values`."""
    checks: dict[str, Callable[[Any], Any]] = {
        "address": naming.host,
        "port": naming.port,
        "user": naming.user,
        "interpreter": lambda text: naming.path(text, "interpreter"),
        "environment": lambda text: naming.path(text, "environment"),
        "cluster_address": lambda text: naming.host(text, "cluster_address") if text else "",
        "interface": naming.interface,
        "cache_dir": lambda text: naming.path(text, "cache_dir"),
        "port_first": lambda number: naming.port(number, "port_first"),
        "port_last": lambda number: naming.port(number, "port_last"),
        "env": lambda values: naming.env(values, may_run_code=True),
        "platform": _platform,
        "key": lambda text: get_key(text) if text else None,
        "jump": lambda jump: _jump(jump, node.key) if jump else None,
    }
    for field, check in checks.items():
        # No jump host is a way to be reached; None leaves every other field as it is.
        if values.get(field) is not None or (field == "jump" and "jump" in values):
            setattr(node, field, check(values[field]))
    if node.port_first > node.port_last:
        raise InvalidInput("The port range ends before it begins.", field="port_last")


def _platform(text: str) -> str:
    if text not in ("", "cuda", "cpu"):
        raise InvalidInput(
            f"{text!r} is not a platform.", remedy="Choose cuda or cpu, or leave it empty.", field="platform"
        )
    return text


def _jump(values: Mapping[str, Any], fallback: SshKey | None) -> JumpHost:
    key = get_key(values["key"]) if values.get("key") else fallback
    if key is None:
        raise InvalidInput("The jump host needs an SSH key.", field="jump.key")
    jump, _ = JumpHost.objects.get_or_create(
        address=naming.host(values["address"], "jump.address"),
        port=naming.port(values.get("port") or 22, "jump.port"),
        user=naming.user(values.get("user") or "root", "jump.user"),
        defaults={"key": key},
    )
    if values.get("key") and jump.key_id != key.pk:
        jump.key = key
        jump.save(update_fields=["key"])
    return jump


def fingerprints(nodes: Sequence[Node] | None = None) -> list[dict[str, Any]]:
    """One row per node: accepted and offered fingerprints of host and jump host, and whether somebody must decide."""
    return [_fingerprint_row(node) for node in (list_nodes() if nodes is None else nodes) if node.kind == Node.Kind.SSH]


def _fingerprint_row(node: Node) -> dict[str, Any]:
    jump = node.jump
    row: dict[str, Any] = {
        "node": node.name,
        "address": f"{node.address}:{node.port}",
        "accepted": _print(node.host_key),
        "offered": _print(node.offered_host_key),
        "jump": f"{jump.user}@{jump.address}:{jump.port}" if jump else None,
        "jump_accepted": _print(jump.host_key) if jump else None,
        "jump_offered": _print(jump.offered_host_key) if jump else None,
    }
    host_open = bool(node.offered_host_key) and node.offered_host_key != node.host_key
    jump_open = bool(jump and jump.offered_host_key and jump.offered_host_key != jump.host_key)
    row["changed"] = bool((host_open and node.host_key) or (jump_open and jump and jump.host_key))
    row["undecided"] = host_open or jump_open
    return row


def _print(public: str) -> str | None:
    return host_key(public).fingerprint if public else None


def accept_host_keys(actor: Actor, accepts: Sequence[Mapping[str, str | None]]) -> list[Node]:
    """Accept offered host keys: each item names a node and what a person compared, for host, jump host or both.

    Raises:
        Conflict: What is offered now is not what was compared.
    """
    require(actor, Role.admin, "accept host keys")
    nodes = []
    with transaction.atomic():
        for item in accepts:
            node = get_node(str(item["node"]))
            if item.get("jump_fingerprint") and node.jump is not None:
                _accept(actor, node, node.jump, str(item["jump_fingerprint"]))
            if item.get("fingerprint"):
                _accept(actor, node, node, str(item["fingerprint"]))
            nodes.append(node)
    _begin(actor, nodes)
    return nodes


def _accept(actor: Actor, node: Node, row: Node | JumpHost, fingerprint: str) -> None:
    offered = row.offered_host_key or row.host_key
    if not offered or host_key(offered).fingerprint != fingerprint:
        raise Conflict(
            f"{node.name} now offers {_print(offered) or 'nothing yet'}, not {fingerprint}.",
            remedy="Look at the fingerprint again and compare it with the machine's own.",
            node=node.name,
        )
    row.host_key = offered
    row.save(update_fields=["host_key"])
    what = "host key" if isinstance(row, Node) else "jump host key"
    record(
        "node",
        node.pk,
        "",
        "ACCEPTED",
        "APPLIED",
        f"{what} {fingerprint}",
        actor=actor.name,
        node_id=node.pk,
        name=node.name,
    )


def set_intent(actor: Actor, node_name: str, intent: str) -> Node:
    """Cordon a node (nothing new is placed on it) or make it active again."""
    require(actor, Role.operator, "cordon nodes")
    if intent not in (NodeIntent.ACTIVE, NodeIntent.CORDONED):
        raise InvalidInput(f"{intent!r} is not an intent.", remedy="Choose ACTIVE or CORDONED.", field="intent")
    node = get_node(node_name)
    if node.intent != intent:
        old, node.intent = node.intent, intent
        node.save(update_fields=["intent"])
        record("node", node.pk, old, intent, "APPLIED", actor=actor.name, node_id=node.pk, name=node.name)
    return node


def remove_node(actor: Actor, node_name: str) -> None:
    """Forget a node on which nothing of ours is left.

    Raises:
        Conflict: Processes that are not proven gone are still on it, or a deployment may be served nowhere else.
    """
    require(actor, Role.admin, "remove nodes")
    node = get_node(node_name)
    with transaction.atomic():
        # Nobody may place anything on it between the look and the end.
        Node.objects.select_for_update().get(pk=node.pk)
        _check_unused(node)
        Process.objects.filter(node=node).delete()
        node.delete()
    record("node", node_name, "", "REMOVED", "APPLIED", actor=actor.name, name=node_name)


def _check_unused(node: Node) -> None:
    live = Process.objects.filter(node=node).exclude(state__in=[state.value for state in PROCESS_FINAL]).count()
    if live:
        raise Conflict(
            f"{live} of our processes on {node.name} are not proven gone.",
            remedy="Stop their deployments first.",
            node=node.name,
        )
    # Without its last node a choice would mean any node.
    chosen = Deployment.objects.filter(removed_at=None, nodes=node).prefetch_related("nodes")
    names = sorted(row.name for row in chosen if len(row.nodes.all()) == 1)
    if names:
        raise Conflict(
            f"{', '.join(names)} may be served on {node.name} only.",
            remedy="Choose other nodes for them, or remove them first.",
            node=node.name,
        )
