"""Nodes: the list, one node, adding, changing, equipping."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from deployments.domain.environment import default_packages
from deployments.forms.fields import write_env
from deployments.forms.nodes import ChangeNodeForm, EnvironmentForm, NodeForm, UseEnvironmentForm
from deployments.models import Node
from deployments.services import fleet, history, jobs, joining, keys, nodes
from deployments.services.access import Actor, Role, require

from .page import Question, ask, done, page, show


@page
def index(request: HttpRequest, actor: Actor) -> HttpResponse:
    undecided = sum(row["undecided"] for row in nodes.fingerprints())
    context = {"rows": fleet.fleet(), "undecided": undecided, "place": "nodes"}
    return show(request, actor, "nodes/index.html", context, parts=("live",))


@page
def detail(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    row = fleet.node_row(name)
    node = row.node
    context = {
        "row": row,
        "node": node,
        "facts": node.facts or {},
        "has_gpus": any(slot.accelerator.platform != "cpu" for slot in row.slots),
        "platform": node.platform or (row.slots[0].accelerator.platform if row.slots else ""),
        "clock_offset": clock_offset(node),
        "risks": detach_risks(node.facts.get("detach")),
        "processes": fleet.processes_on(node),
        "jobs": jobs.jobs_of(node),
        "print": next(iter(nodes.fingerprints([node])), None),
        "events": history.of_node(node),
        "place": "nodes",
    }
    return show(request, actor, "nodes/detail.html", context, parts=("live",))


def clock_offset(node: Node) -> float | None:
    """Seconds that the node's clock was ahead of the panel's at the last probe, without the answer's way."""
    clock = node.facts.get("clock")
    said = clock.get("now") if isinstance(clock, dict) else None
    if not isinstance(said, int | float) or node.facts_at is None:
        return None
    return said - node.facts_at.timestamp()


def detach_risks(detach: Any) -> list[str]:
    """What could end a process on the node although nobody asked for it, from what its probe said."""
    if not isinstance(detach, dict):
        return []
    risks = []
    if detach.get("kill_user_processes") and not detach.get("linger"):
        risks.append(_("Logging out ends the user's processes (KillUserProcesses=yes and no lingering)."))
    if detach.get("sshd_cgroup_kills"):
        risks.append(_("Restarting sshd ends what was started through it."))
    if detach.get("in_container"):
        risks.append(_("It is a container: everything ends with it."))
    return risks


@page
def add(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, Role.admin, "add nodes")
    names = [key.name for key in keys.list_keys()]
    initial = {"port": 22, "user": "root", "key_source": "existing" if names else "generate", "key_name": "fleet"}
    form = NodeForm(request.POST or None, initial=initial, keys=names, files=keys.keys_in_folder())
    if request.method == "POST" and (node := form.attempt(lambda data: _add(actor, form, data))):
        return done(
            request, "node", _("%(name)s was added. Its host key is being fetched.") % {"name": node.name}, node.name
        )
    return show(request, actor, "nodes/add.html", {"form": form, "place": "nodes"}, status=_status(form))


def _add(actor: Actor, form: NodeForm, data: dict[str, Any]) -> Node:
    if data["key_source"] == "existing":
        return joining.add_node(actor, form.item())
    new = joining.NewKey(data["key_source"], data["key_name"], data["private_key"], data["key_file"])
    return joining.add_node(actor, form.item(), new)


def _status(form: Any) -> int:
    return 422 if form.is_bound else 200


@page
def change(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    require(actor, Role.admin, "change nodes")
    node = nodes.get_node(name)
    initial = {field: getattr(node, field) for field in ChangeNodeForm.USE} | {
        "env": write_env(node.env),
        "address": node.address,
        "port": node.port,
        "user": node.user,
        "key": node.key.name if node.key else "",
    }
    if node.jump is not None:
        jump = node.jump
        initial |= {
            "jump_address": jump.address,
            "jump_port": jump.port,
            "jump_user": jump.user,
            "jump_key": jump.key.name,
        }
    names = [key.name for key in keys.list_keys()]
    form = ChangeNodeForm(request.POST or None, initial=initial, keys=names, local=node.kind == Node.Kind.LOCAL)
    if request.method == "POST" and form.attempt(lambda data: nodes.change_node(actor, name, form.changes())):
        return done(request, "node", _("%(name)s was changed.") % {"name": name}, name)
    return show(
        request, actor, "nodes/change.html", {"form": form, "node": node, "place": "nodes"}, status=_status(form)
    )


@page
def intent(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    node = nodes.get_node(name)
    wanted = "CORDONED" if node.intent == "ACTIVE" else "ACTIVE"
    words = {"name": name}
    if wanted == "CORDONED":
        title, button = _("Cordon %(name)s?") % words, _("Cordon %(name)s") % words
        lines = [_("Nothing new will be placed on it. What runs there goes on.")]
    else:
        title, button = _("Make %(name)s active again?") % words, _("Activate %(name)s") % words
        lines = [_("New replicas may be placed on it again.")]

    def act() -> HttpResponse:
        nodes.set_intent(actor, name, wanted)
        return done(request, "node", _("%(name)s was changed.") % words, name)

    question = Question(title, button, f"/nodes/{name}/", lines, danger=False)
    return ask(request, actor, Role.operator, question, act)


@page
def remove(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    words = {"name": nodes.get_node(name).name}

    def act() -> HttpResponse:
        nodes.remove_node(actor, name)
        return done(request, "nodes", _("%(name)s was removed.") % words)

    question = Question(
        _("Remove %(name)s?") % words,
        _("Remove %(name)s") % words,
        f"/nodes/{name}/",
        [_("Its facts, host keys and the history of its processes are forgotten. Nothing is changed on the machine.")],
        typed=name,
    )
    return ask(request, actor, Role.admin, question, act)


@page
def probe(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Probe the named nodes, or all; scan those whose key nobody has accepted yet."""
    chosen = [nodes.get_node(name) for name in request.POST.getlist("node")] or nodes.list_nodes()
    if request.method == "POST":
        jobs.start_job(actor, kind="probe", nodes=chosen)
    if len(chosen) == 1:
        return done(request, "node", _("%(name)s is being probed.") % {"name": chosen[0].name}, chosen[0].name)
    return done(request, "nodes", _("All nodes are being probed."))


@page
def environment(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Install an engine environment on a node (and others of its gang), or use one that is there."""
    require(actor, Role.admin, "equip nodes")
    node = nodes.get_node(name)
    platform = node.platform or "cuda"
    facts = node.facts or {}
    initial = {
        "path": node.environment or "/opt/vllm",
        "packages": "\n".join(default_packages(platform)),
        "nodes": [name],
    }
    everybody = [row.name for row in nodes.list_nodes()]
    use = UseEnvironmentForm(
        request.POST if "use" in request.POST else None, initial={"environment": node.environment}, auto_id="use_%s"
    )
    install = EnvironmentForm(request.POST if "install" in request.POST else None, initial=initial, nodes=everybody)
    if use.is_bound and use.attempt(lambda data: nodes.change_node(actor, name, {"environment": data["environment"]})):
        return done(request, "node", _("%(name)s is being probed.") % {"name": name}, name)
    if install.is_bound and (job := install.attempt(lambda data: _install(actor, data))):
        return done(request, "job", _("The environment is being installed."), job.pk)
    context = {
        "node": node,
        "use": use,
        "install": install,
        "candidates": facts.get("candidates") or [],
        "current": facts.get("environment") or {},
        "place": "nodes",
    }
    return show(
        request, actor, "nodes/environment.html", context, status=422 if use.is_bound or install.is_bound else 200
    )


def _install(actor: Actor, data: dict[str, Any]) -> Any:
    args = {part: data[part] for part in ("path", "packages", "python", "find_links")}
    return jobs.start_job(
        actor, kind="install_environment", nodes=[nodes.get_node(name) for name in data["nodes"]], args=args
    )
