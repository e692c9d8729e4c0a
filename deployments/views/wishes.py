"""The deployment form with its preview: the commands it shows are the ones that apply would run."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from deployments.domain.command import quote
from deployments.forms.fields import write_env
from deployments.forms.wishes import DeploymentForm
from deployments.models import Deployment
from deployments.services import deployments, fleet, layouts, models, nodes
from deployments.services.access import Actor, Role, require
from deployments.services.deployments import DeploymentInput

from .page import done, page, show


@page
def add(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, Role.operator, "deploy models")
    initial = {"replicas": 1} | {part: request.GET[part] for part in ("model", "layout") if part in request.GET}
    return _edit(request, actor, _form(request, initial), None)


@page
def change(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    require(actor, Role.operator, "deploy models")
    row = deployments.get_deployment(name)
    return _edit(request, actor, _form(request, _as_typed(row), fixed_name=True), row)


def _form(request: HttpRequest, initial: dict[str, Any], *, fixed_name: bool = False) -> DeploymentForm:
    return DeploymentForm(
        request.POST or None,
        initial=initial,
        models=[model.name for model in models.list_models()],
        layouts=[layout.name for layout in layouts.list_layouts()],
        nodes=[node.name for node in nodes.list_nodes()],
        fixed_name=fixed_name,
    )


def _as_typed(row: Deployment) -> dict[str, Any]:
    return {
        "name": row.name,
        "model": row.model.name,
        "layout": row.layout.name,
        "replicas": row.replicas_wished,
        "nodes": [node.name for node in row.nodes.all()],
        "served_name": row.served_name,
        "args": " ".join(quote(word) for word in row.args),
        "env": write_env(row.env),
        "start_deadline": _whole(row.start_deadline),
        "stop_grace": _whole(row.stop_grace),
        "if_generation": row.generation,
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def read_wish(data: dict[str, Any]) -> DeploymentInput:
    """What was typed, as services take it."""
    replicas = data.get("replicas")
    return DeploymentInput(
        name=data.get("name", ""),
        model=data.get("model", ""),
        layout=data.get("layout", ""),
        served_name=data.get("served_name", ""),
        replicas=1 if replicas is None else replicas,
        nodes=data.get("nodes") or (),
        args=data.get("args") or (),
        env=data.get("env") or {},
        start_deadline=data.get("start_deadline"),
        stop_grace=data.get("stop_grace"),
    )


def _edit(request: HttpRequest, actor: Actor, form: DeploymentForm, row: Deployment | None) -> HttpResponse:
    if (
        request.method == "POST"
        and "preview" not in request.POST
        and (saved := form.attempt(lambda data: _apply(actor, data, row)))
    ):
        return done(request, "deployment", _("%(name)s was applied.") % {"name": saved.name}, saved.name)
    context = {
        "form": form,
        "deployment": row,
        "models": form.fields["model"].choices,  # type: ignore[attr-defined]
        "layouts": form.fields["layout"].choices,  # type: ignore[attr-defined]
        "place": "deployments",
    }
    if request.method == "POST":
        context |= preview_of(actor, form)
    status = 422 if request.method == "POST" and "preview" not in request.POST else 200
    return show(request, actor, "deployments/edit.html", context, status=status)


def _apply(actor: Actor, data: dict[str, Any], row: Deployment | None) -> Deployment:
    generation = data.get("if_generation") if row is not None else None
    return deployments.apply(actor, read_wish(data), if_generation=generation, create_only=row is None)


@page
def preview(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The preview alone, while somebody types."""
    if request.method != "POST":
        return redirect("deployment-add")
    form = _form(request, {})
    context = {**preview_of(actor, form), "form": form, "place": "deployments"}
    return show(request, actor, "deployments/edit.html", context, parts=("preview",))


def preview_of(actor: Actor, form: DeploymentForm) -> dict[str, Any]:
    """The preview of what is typed so far; what cannot be read yet is said in its own words."""
    form.is_valid()
    if not form["name"].value():
        # Without a name nothing can be applied, but it can be looked at.
        form.cleaned_data["name"] = "unnamed"
        form.errors.pop("name", None)
    unread = [
        {"field": form.fields[name].label, "message": " ".join(map(str, errors))}
        for name, errors in form.errors.items()
        if name in form.fields
    ]
    if unread:
        return {"unread": unread, "previewed": None}
    found = deployments.preview(actor, read_wish(form.cleaned_data))
    names = fleet.accelerator_names_by_node()
    shown = [
        {"process": process, "accelerators": [names.get((process.node, uuid), uuid) for uuid in process.accelerators]}
        for process in found.processes
    ]
    return {"unread": [], "previewed": found, "processes": shown}
