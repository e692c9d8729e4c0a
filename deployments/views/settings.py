"""Settings: API tokens, SSH keys, people."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from deployments.forms.access import KeyForm, TokenForm, UserForm
from deployments.models import SshKey
from deployments.services import access, keys, people
from deployments.services.access import Actor, Role, require

from .page import Question, ask, done, page, show


@page
def tokens(request: HttpRequest, actor: Actor) -> HttpResponse:
    scopes = [role.name for role in Role if role <= actor.role]
    form = TokenForm(request.POST or None, initial={"scope": "viewer", "days": 90}, scopes=scopes)
    made = form.attempt(lambda data: access.create_token(actor, **data)) if request.method == "POST" else None
    context: dict[str, Any] = {
        "form": TokenForm(initial={"scope": "viewer", "days": 90}, scopes=scopes) if made else form,
        "made": made,
        "tokens": access.list_tokens(actor),
        "now": timezone.now(),
        "place": "settings",
        "section": "tokens",
    }
    answer = show(request, actor, "settings/tokens.html", context, status=422 if form.is_bound and not made else 200)
    answer["Cache-Control"] = "no-store"
    return answer


@page
def revoke(request: HttpRequest, actor: Actor, token_id: int) -> HttpResponse:
    token = next((row for row in access.list_tokens(actor) if row.pk == token_id), None)
    name = token.name if token else str(token_id)

    def act() -> HttpResponse:
        access.revoke_token(actor, token_id)
        return done(request, "settings", _("%(name)s was revoked.") % {"name": name})

    question = Question(
        _("Revoke the token %(name)s?") % {"name": name},
        _("Revoke %(name)s") % {"name": name},
        "/settings/",
        [_("Programs that use it are refused from now on. It cannot be undone.")],
    )
    return ask(request, actor, Role.viewer, question, act)


@page
def ssh_keys(request: HttpRequest, actor: Actor) -> HttpResponse:
    form = KeyForm(request.POST or None, files=keys.keys_in_folder() if actor.role >= Role.admin else [])
    if request.method == "POST":
        require(actor, Role.admin, "add SSH keys")
        if key := form.attempt(lambda data: _make_key(actor, data)):
            return done(request, "keys", _("%(name)s was added.") % {"name": key.name})
    context = {"form": form, "keys": keys.list_keys(), "place": "settings", "section": "keys"}
    return show(request, actor, "settings/keys.html", context, status=422 if form.is_bound else 200)


def _make_key(actor: Actor, data: dict[str, Any]) -> SshKey:
    if data["source"] == "generate":
        return keys.generate_key(actor, name=data["name"])
    if data["source"] == "paste":
        return keys.add_key(actor, name=data["name"], private=data["private_key"])
    return keys.import_key(actor, name=data["name"], file=data["key_file"])


@page
def remove_key(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    words = {"name": keys.get_key(name).name}

    def act() -> HttpResponse:
        keys.remove_key(actor, name)
        return done(request, "keys", _("%(name)s was removed.") % words)

    lines = [_("The private key is deleted. Its line in authorized_keys on the machines stays; remove it there.")]
    question = Question(
        _("Remove the key %(name)s?") % words, _("Remove %(name)s") % words, "/settings/keys/", lines, typed=name
    )
    return ask(request, actor, Role.admin, question, act)


@page
def users(request: HttpRequest, actor: Actor) -> HttpResponse:
    found = people.list_users(actor)
    form = UserForm(request.POST or None)
    if request.method == "POST" and (user := form.attempt(lambda data: access.create_user(actor, **data))):
        return done(request, "users", _("%(name)s may sign in now.") % {"name": user.get_username()})
    context = {
        "form": form,
        "people": found,
        "roles": [role.name for role in Role],
        "place": "settings",
        "section": "users",
    }
    return show(request, actor, "settings/users.html", context, status=422 if form.is_bound else 200)


@page
def change_user(request: HttpRequest, actor: Actor, user_id: int) -> HttpResponse:
    require(actor, Role.admin, "change users")
    if request.method == "POST":
        active = request.POST.get("active")
        people.change_user(
            actor, user_id, role=request.POST.get("role") or None, active=None if active is None else active == "1"
        )
    return done(request, "users", _("The account was changed."))
