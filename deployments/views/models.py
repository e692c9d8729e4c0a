"""Models and layouts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from deployments.forms.wishes import LayoutForm, ModelForm
from deployments.services import jobs, layouts, models, nodes
from deployments.services.access import Actor, Role, require

from .page import Question, ask, done, page, show


@page
def index(request: HttpRequest, actor: Actor) -> HttpResponse:
    return show(
        request, actor, "models/index.html", {"models": models.list_models(), "place": "models"}, parts=("live",)
    )


@page
def detail(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    model = models.get_model(name)
    copies = list(model.copies.select_related("node").order_by("node__name"))
    prints = {copy.fingerprint for copy in copies if copy.present and copy.fingerprint}
    context = {
        "model": model,
        "copies": copies,
        "present": sum(copy.present for copy in copies),
        "hashed": sum(bool(copy.present and copy.fingerprint) for copy in copies),
        "differ": len(prints) > 1,
        "deployments": list(model.deployments.filter(removed_at=None).order_by("name")),
        "jobs": jobs.jobs_about(model),
        "place": "models",
    }
    return show(request, actor, "models/detail.html", context, parts=("live",))


@page
def add(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, Role.operator, "register models")
    form = ModelForm(request.POST or None, nodes=[node.name for node in nodes.list_nodes()])
    if request.method == "POST" and form.attempt(lambda data: models.register_model(actor, **data)):
        name = form.cleaned_data["name"]
        return done(request, "model", _("%(name)s was registered.") % {"name": name}, name)
    return show(
        request, actor, "models/add.html", {"form": form, "place": "models"}, status=422 if form.is_bound else 200
    )


@page
def look(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    job = models.look_for_files(actor, models.get_model(name)) if request.method == "POST" else None
    if job is None:
        return done(request, "model", _("There is nothing to look for."), name)
    return done(request, "model", _("Its files are being looked for."), name)


@page
def fingerprint(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    if request.method != "POST":
        return detail(request, name)
    job = models.fingerprint_files(actor, models.get_model(name))
    return done(request, "job", _("The files are being hashed."), job.pk)


@page
def remove(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    words = {"name": models.get_model(name).name}

    def act() -> HttpResponse:
        models.remove_model(actor, name)
        return done(request, "models", _("%(name)s was removed.") % words)

    lines = [_("It is forgotten here. Its files on the nodes stay.")]
    question = Question(_("Remove %(name)s?") % words, _("Remove %(name)s") % words, f"/models/{name}/", lines)
    return ask(request, actor, Role.operator, question, act)


@page
def layout_index(request: HttpRequest, actor: Actor) -> HttpResponse:
    kinds = {kind.kind: kind for kind in layouts.kinds()}
    context = {"layouts": layouts.list_layouts(), "kinds": kinds, "place": "layouts"}
    return show(request, actor, "layouts/index.html", context)


@page
def layout_add(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, Role.operator, "add layouts")
    kinds = layouts.kinds()
    initial = {"kind": "single", "tensor_parallel_size": 1, "backend": "mp"}
    form = LayoutForm(request.POST or None, initial=initial, kinds=kinds)
    if request.method == "POST" and (layout := form.attempt(lambda data: layouts.add_layout(actor, **data))):
        return done(request, "layouts", _("%(name)s was added.") % {"name": layout.name})
    context = {"form": form, "kinds": kinds, "place": "layouts"}
    return show(request, actor, "layouts/add.html", context, status=422 if form.is_bound else 200)


@page
def layout_remove(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    words = {"name": layouts.get_layout(name).name}

    def act() -> HttpResponse:
        layouts.remove_layout(actor, name)
        return done(request, "layouts", _("%(name)s was removed.") % words)

    question = Question(_("Remove %(name)s?") % words, _("Remove %(name)s") % words, "/layouts/")
    return ask(request, actor, Role.operator, question, act)
