"""Deployments: the list, one of them, and what may be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from deployments.domain.command import shell
from deployments.domain.log_lines import clean
from deployments.domain.plugins import Problem
from deployments.domain.specs import ProcessEvidence
from deployments.domain.states import PROCESS_FINAL, ProcessState, Reason, Wish
from deployments.forms.wishes import ScaleForm
from deployments.models import Deployment, Node, Process, Replica
from deployments.services import deployments, fleet, history
from deployments.services.access import Actor, Role, require

from .page import Question, ask, done, page, show

# So much of the log is shown beside a process that is starting.
TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process with what its node last said about it and the names of its accelerators."""

    process: Process
    seen: ProcessEvidence | None
    accelerators: Sequence[str]
    command: str
    log_tail: Sequence[str] = ()

    @property
    def over(self) -> bool:
        return self.process.state in PROCESS_FINAL

    @property
    def measured(self) -> bool:
        """Whether it has figures of its own: an engine that answers requests, while it is not over."""
        return not self.over and bool(self.process.spec.get("probe"))


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    replica: Replica
    processes: Sequence[ProcessRow]


@page
def index(request: HttpRequest, actor: Actor) -> HttpResponse:
    context = {"deployments": deployments.list_deployments(), "place": "deployments"}
    return show(request, actor, "deployments/index.html", context, parts=("live",))


@page
def detail(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    deployment = deployments.get_deployment(name)
    processes = deployments.processes_of(deployment, current=False)
    names = fleet.accelerator_names({process.node_id for process in processes})
    rows = [_row(process, names) for process in processes]
    replicas = [row for row in deployment.replicas.order_by("index", "created_at") if row.state != "STOPPED"]
    shown = [ReplicaRow(row, [r for r in rows if _current(r.process, row)]) for row in replicas]
    current = {row.process.pk for replica in shown for row in replica.processes}
    found = deployments.endpoints(deployment)
    context: dict[str, Any] = {
        "deployment": deployment,
        "replicas": shown,
        "ready": sum(row.replica.state == "READY" for row in shown),
        "problems": _problems(deployment, [r.process for row in shown for r in row.processes]),
        "troubled": any(row.replica.state in ("FAILED", "BACKOFF") for row in shown),
        "earlier": [row for row in rows if row.process.pk not in current][:20],
        "endpoints": [{**end, "curl": deployments.curl_line(deployment, end["url"])} for end in found],
        "engines": [row.process for replica in shown for row in replica.processes if row.measured],
        "blind": _silent([row.process for replica in shown for row in replica.processes]),
        "scale": ScaleForm(initial={"replicas": deployment.replicas_wished}),
        "generations": history.generations(deployment),
        "events": history.of_deployment(deployment),
        "nodes": [node.name for node in deployment.nodes.order_by("name")],
        "place": "deployments",
    }
    return show(request, actor, "deployments/detail.html", context, parts=("live",))


def _problems(deployment: Deployment, processes: list[Process]) -> list[Problem]:
    """All but the silence of nodes, which is said once a node and ages on the page."""
    return [one for one in deployments.problems_of(deployment, processes) if one.code != Reason.NODE_SILENT]


def _silent(processes: Sequence[Process]) -> list[Node]:
    """The nodes of processes that nobody can say anything about now."""
    return list({row.node_id: row.node for row in processes if row.state == "UNKNOWN"}.values())


def _current(process: Process, replica: Replica) -> bool:
    return process.replica_id == replica.pk and process.attempt == replica.attempt


def _row(process: Process, names: dict[tuple[int, str], str]) -> ProcessRow:
    held = [names.get((process.node_id, uuid), uuid) for uuid in process.spec.get("accelerators") or ()]
    spec = process.spec
    command = shell(spec["argv"], spec["env"], spec["secrets"])
    return ProcessRow(process, fleet.evidence_for(process), held, command, _log_tail(process))


def _log_tail(process: Process) -> list[str]:
    """The last lines that its node reported of the log of a process that is starting."""
    if process.state != ProcessState.STARTING:
        return []
    entry = (process.node.report.get("processes") or {}).get(str(process.pk)) or {}
    lines = [clean(line) for line in str(entry.get("log_tail") or "").splitlines()]
    return [line for line in lines if line.strip()][-TAIL_LINES:]


@page
def wish(request: HttpRequest, actor: Actor, name: str, verb: str) -> HttpResponse:
    """Stop, pause or run, after a question that names what it is done to."""
    deployment = deployments.get_deployment(name)
    wanted = {"stop": Wish.STOPPED, "pause": Wish.PAUSED, "run": Wish.RUNNING}[verb]

    def act() -> HttpResponse:
        generation = request.POST.get("if_generation", "")
        deployments.set_wish(actor, name, wanted, if_generation=int(generation) if generation.isdigit() else None)
        return done(request, "deployment", WISHED[verb]() % {"name": name}, name)

    return ask(request, actor, Role.operator, _question(deployment, verb), act)


WISHED = {
    "stop": lambda: _("%(name)s is being stopped."),
    "pause": lambda: _("%(name)s is paused."),
    "run": lambda: _("%(name)s is wished to run."),
}


def _question(deployment: Deployment, verb: str) -> Question:
    words = {"name": deployment.name}
    back = f"/deployments/{deployment.name}/"
    if verb == "run":
        lines = [_("Replicas are placed and started until %(n)d are ready.") % {"n": deployment.replicas_wished}]
        return Question(_("Run %(name)s?") % words, _("Run %(name)s") % words, back, lines, danger=False)
    if verb == "pause":
        lines = [_("What runs goes on, but nothing is started, restarted or replaced until you run it again.")]
        return Question(_("Pause %(name)s?") % words, _("Pause %(name)s") % words, back, lines, danger=False)
    things = living(deployment)
    lines = [
        ngettext(
            "%(n)d process gets TERM, after its grace KILL, and its requests end.",
            "%(n)d processes get TERM, after their grace KILL, and their requests end.",
            len(things),
        )
        % {"n": len(things)}
        if things
        else _("Nothing of it runs now; nothing will be started any more."),
        _("It counts as stopped when no process is left and the accelerators' memory is back. You can run it again."),
    ]
    return Question(_("Stop %(name)s?") % words, _("Stop %(name)s") % words, back, lines, things)


def living(deployment: Deployment) -> list[str]:
    """Each living process in words: what, where, on which accelerators."""
    rows = [row for row in deployments.processes_of(deployment, current=False) if row.state not in PROCESS_FINAL]
    names = fleet.accelerator_names({row.node_id for row in rows})
    return [
        _("%(role)s %(rank)s on %(node)s, pid %(pid)s: %(accelerators)s")
        % {
            "role": _(row.role),
            "rank": row.rank,
            "node": row.node.name,
            "pid": row.pid or "–",
            "accelerators": ", ".join(names.get((row.node_id, u), u) for u in row.spec.get("accelerators") or ())
            or "–",
        }
        for row in rows
    ]


@page
def scale(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    require(actor, Role.operator, "scale deployments")
    deployment = deployments.get_deployment(name)
    form = ScaleForm(request.POST or None, initial={"replicas": deployment.replicas_wished})
    if request.method == "POST" and form.attempt(lambda data: deployments.scale(actor, name, data["replicas"])):
        count = form.cleaned_data["replicas"]
        words = ngettext(
            "%(name)s is wished to have %(n)d replica.", "%(name)s is wished to have %(n)d replicas.", count
        )
        return done(request, "deployment", words % {"name": name, "n": count}, name)
    context = {"form": form, "deployment": deployment, "place": "deployments"}
    return show(request, actor, "deployments/scale.html", context, status=422 if form.is_bound else 200)


@page
def retry(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    deployments.get_deployment(name)
    if request.method == "POST":
        deployments.retry(actor, name)
    return done(request, "deployment", _("%(name)s gets a new attempt now.") % {"name": name}, name)


@page
def remove(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    words = {"name": deployments.get_deployment(name).name}

    def act() -> HttpResponse:
        deployments.remove(actor, name)
        return done(request, "deployments", _("%(name)s was removed.") % words)

    question = Question(
        _("Remove %(name)s?") % words,
        _("Remove %(name)s") % words,
        f"/deployments/{name}/",
        [_("It leaves the list and its name is free again. Only what is proven stopped can be removed.")],
        typed=name,
    )
    return ask(request, actor, Role.operator, question, act)


@page
def force(request: HttpRequest, actor: Actor, process_id: str) -> HttpResponse:
    """Take somebody's word that a process is gone."""
    process = deployments.get_process(process_id)
    name = process.deployment.name
    words = {"role": _(process.role), "rank": process.rank, "node": process.node.name}
    note = _(process.note) if process.note else ""

    def act() -> HttpResponse:
        deployments.force_stopped(actor, process_id)
        return done(request, "deployment", _("The process counts as gone on your word."), name)

    question = Question(
        _("Take %(role)s %(rank)s on %(node)s as gone?") % words,
        _("Take it as gone"),
        f"/deployments/{name}/",
        [
            _("There is no proof that it stopped. Its accelerators and ports are given to others at once."),
            _("If it still runs there, the next process on them will fail or disturb it. Look at the machine first."),
        ],
        [f"{words['role']} {process.rank}, {process.node.name}, pid {process.pid or '–'}: {note}"],
        typed=process.node.name,
    )
    return ask(request, actor, Role.admin, question, act)


@page
def api_key(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Show the key of a deployment's engines once; reading it is written down, so it takes a click."""
    require(actor, Role.operator, "read API keys")
    deployment = deployments.get_deployment(name)
    context: dict[str, Any] = {"deployment": deployment, "place": "deployments"}
    if request.method == "POST":
        context["key"] = deployments.reveal_api_key(actor, name)
        found = deployments.endpoints(deployment)
        context["lines"] = [deployments.curl_line(deployment, end["url"], key=context["key"]) for end in found]
    answer = show(request, actor, "deployments/api_key.html", context)
    answer["Cache-Control"] = "no-store"
    return answer
