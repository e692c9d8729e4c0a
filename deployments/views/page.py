"""What all pages share: who is asking, the frame around them, live parts, errors, questions before dangerous acts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django_htmx.http import HttpResponseClientRedirect, HttpResponseStopPolling

from deployments.domain.errors import Conflict, NotFound, NotPermitted, PilothouseError
from deployments.remote.launcher import RemoteError
from deployments.services.access import Actor, Role, actor_of_user

View = Callable[..., HttpResponse]
# The words of a <time> age by themselves in the browser, and a form's token has another mask each time; neither is a
# reason to send a part again.
_ALWAYS_NEW = re.compile(r"(?<=>)[^<]*(?=</time>)|(?<=name=\"csrfmiddlewaretoken\" value=\")[^\"]*")
STATUS = ((NotFound, 404), (NotPermitted, 403), (Conflict, 409), (RemoteError, 502))


def page(view: View) -> View:
    """A view for signed-in people: `view(request, actor, ...)`. Typed errors that it lets out become an error page."""

    @wraps(view)
    def signed_in(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        actor = actor_of_user(request.user)
        if actor is None:
            answer = redirect_to_login(request.get_full_path() if request.method == "GET" else "/")
            return HttpResponseClientRedirect(answer.url) if _is_htmx(request) else answer
        try:
            return view(request, actor, *args, **kwargs)
        except PilothouseError as error:
            return show_error(request, actor, error)

    return signed_in


def _is_htmx(request: HttpRequest) -> bool:
    return bool(getattr(request, "htmx", False))


def show(
    request: HttpRequest,
    actor: Actor,
    template: str,
    context: Mapping[str, Any],
    *,
    parts: Sequence[str] = (),
    status: int = 200,
    over: bool = False,
) -> HttpResponse:
    """Render a page, or the one of its parts that htmx asks for: a part is named like the id of its element.

    A part that still is what the browser has (it sends the digest back) is answered with 204.

    Args:
        over: Nothing will change any more, so polling may stop.
    """
    everything = {**context, "actor": actor, "may": may(actor)}
    target = request.htmx.target if _is_htmx(request) else None  # type: ignore[attr-defined]
    if target not in parts:
        return HttpResponse(render_to_string(template, everything, request), status=status)
    content = render_to_string(f"{template}#{target}", everything, request)
    answer: HttpResponse
    if digest(content) == request.headers.get("X-Digest"):
        answer = HttpResponse(status=204)
    else:
        answer = HttpResponse(content)
        answer["X-Digest"] = digest(content)
    return HttpResponseStopPolling(content) if over else answer


def digest(content: str) -> str:
    """What a part says, apart from how long ago things were."""
    return hashlib.sha256(_ALWAYS_NEW.sub("", content).encode()).hexdigest()[:16]


def may(actor: Actor) -> dict[str, bool]:
    """For templates: `may.operate`, `may.administer`."""
    return {"operate": actor.role >= Role.operator, "administer": actor.role >= Role.admin}


def show_error(request: HttpRequest, actor: Actor, error: PilothouseError) -> HttpResponse:
    """A page for an error that belongs to no form."""
    return show(request, actor, "error.html", {"error": error.as_dict()}, status=status_of(error))


def status_of(error: PilothouseError) -> int:
    """The HTTP status of a page that shows this error."""
    return next((number for kind, number in STATUS if isinstance(error, kind)), 400)


def done(request: HttpRequest, where: str, said: str, *args: Any) -> HttpResponseRedirect:
    """Back to a page, with a word about what was done."""
    messages.success(request, said)
    return redirect(where, *args)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something dangerous is done.

    Attributes:
        lines: What will happen, one sentence each.
        things: What it will happen to: processes and their accelerators, nodes ...
        typed: Must be typed to go on, where it cannot be undone.
    """

    title: str
    button: str
    back: str
    lines: Sequence[str] = ()
    things: Sequence[str] = ()
    typed: str = ""
    danger: bool = True


def ask(
    request: HttpRequest, actor: Actor, role: Role, question: Question, act: Callable[[], HttpResponse]
) -> HttpResponse:
    """Ask on GET, act on POST. The question is a page, and a dialog where scripts run.

    Raises:
        NotPermitted: Already when asking, so that nobody reads a question that is not theirs.
    """
    if actor.role < role:
        raise NotPermitted(
            _("%(name)s may not do this; it takes %(role)s.") % {"name": actor.name, "role": _(role.name)}
        )
    context: dict[str, Any] = {"question": question, "action": request.path}
    if request.method == "POST":
        if question.typed and request.POST.get("typed", "") != question.typed:
            context["wrong"] = True
            return show(request, actor, "confirm.html", context, status=400)
        try:
            return act()
        except PilothouseError as error:
            context["error"] = error.as_dict()
            return show(request, actor, "confirm.html", context, status=409)
    return show(request, actor, "confirm.html", context, parts=("dialog-body",))
