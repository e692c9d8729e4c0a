"""Who is asking and what they may do. Every service that changes something takes an Actor first."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from deployments.domain.command import REDACTED
from deployments.domain.errors import InvalidInput, NotFound, NotPermitted, Taken
from deployments.models import ApiToken, Member
from deployments.transitions import record

TOKEN_BYTES = 32
TOKEN_MARK = "ph_"
MAX_TOKEN_DAYS = 366
SECRET_WORDS = {"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "CREDENTIALS"}
# As Django's own rule, but short enough that `user/token` fits where actors are written down.
USERNAME = re.compile(r"[\w.@+-]{1,80}")


class Role(IntEnum):
    """What a person or token may do; each includes the ones before it."""

    viewer = 1
    operator = 2
    admin = 3


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who asks: a user, a token (with its user), or Pilothouse itself."""

    name: str
    role: Role
    user_id: int | None = None
    token_id: int | None = None


SYSTEM_ACTOR = Actor("pilothouse", Role.admin)


def require(actor: Actor, role: Role, what: str) -> None:
    """Refuse an actor whose role is too small.

    Raises:
        NotPermitted: Names what was refused and the role it takes.
    """
    if actor.role < role:
        raise NotPermitted(f"{actor.name} is {actor.role.name} and may not {what}; that takes {role.name}.")


def shown_env(env: Mapping[str, str], actor: Actor) -> dict[str, str]:
    """Environment variables as an actor may see them: only admins, who set them, see what looks like a secret."""
    if actor.role >= Role.admin:
        return dict(env)
    return {name: REDACTED if SECRET_WORDS & set(name.upper().split("_")) else value for name, value in env.items()}


def parse_role(text: str) -> Role:
    """The role called `text`."""
    if text not in Role.__members__:
        raise InvalidInput(f"{text!r} is not a role.", remedy="Choose viewer, operator or admin.", field="scope")
    return Role[text]


def actor_of_user(user: Any) -> Actor | None:
    """The actor behind a signed-in user; None for nobody or a disabled account."""
    if not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return Actor(user.get_username(), Role.admin, user.pk)
    member = Member.objects.filter(user_id=user.pk).first()
    return Actor(user.get_username(), Role[member.role] if member else Role.viewer, user.pk)


def actor_of_token(text: str) -> Actor | None:
    """The actor behind a bearer token; None for an unknown, expired or revoked one, or one of a disabled user.

    A token never does more than its user may do now.
    """
    token = ApiToken.objects.select_related("user").filter(digest=_digest(text)).first()
    now = timezone.now()
    if token is None or token.revoked_at is not None or token.expires_at <= now:
        return None
    person = actor_of_user(token.user)
    if person is None:
        return None
    if token.last_used_at is None or now - token.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    role = min(Role[token.scope], person.role)
    return Actor(f"{person.name}/{token.name}", role, person.user_id, token.pk)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def create_token(actor: Actor, *, name: str, scope: str, days: int) -> tuple[ApiToken, str]:
    """A new token for the actor's user. The text is returned once and kept nowhere.

    Raises:
        NotPermitted: The scope is larger than the actor's role, or a token asks.
        InvalidInput: A bad name, scope or lifetime.
    """
    role = parse_role(scope)
    require(actor, role, f"make a token with scope {scope}")
    if actor.user_id is None or actor.token_id is not None:
        raise NotPermitted("A token cannot make tokens.", remedy="Sign in with a user name and password.")
    if not name.strip() or len(name) > 100:
        raise InvalidInput("A token needs a name of 1 to 100 characters.", field="name")
    if not 1 <= days <= MAX_TOKEN_DAYS:
        raise InvalidInput(f"A token lives 1 to {MAX_TOKEN_DAYS} days.", field="days")
    text = TOKEN_MARK + secrets.token_urlsafe(TOKEN_BYTES)
    token = ApiToken.objects.create(
        name=name.strip(),
        user_id=actor.user_id,
        scope=scope,
        prefix=text[: len(TOKEN_MARK) + 6],
        digest=_digest(text),
        expires_at=timezone.now() + timedelta(days=days),
    )
    record(
        "token", token.pk, "", "CREATED", "APPLIED", f"scope {scope}, {days} days", actor=actor.name, name=token.name
    )
    return token, text


def _own(tokens: QuerySet[ApiToken], actor: Actor) -> QuerySet[ApiToken]:
    if actor.role is Role.admin:
        return tokens
    return tokens.none() if actor.user_id is None else tokens.filter(user_id=actor.user_id)


def list_tokens(actor: Actor) -> list[ApiToken]:
    """The actor's tokens; an admin sees everybody's."""
    rows = ApiToken.objects.select_related("user").order_by("-created_at")
    return list(_own(rows, actor))


def revoke_token(actor: Actor, token_id: int) -> ApiToken:
    """End a token at once. Revoking twice does no harm.

    Raises:
        NotFound: There is none with this id that the actor may see.
    """
    rows = ApiToken.objects.select_related("user").filter(pk=token_id)
    token = _own(rows, actor).first()
    if token is None:
        raise NotFound(f"There is no token {token_id}.")
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        record("token", token.pk, "", "REVOKED", "APPLIED", actor=actor.name, name=token.name)
    return token


def create_user(actor: Actor, *, username: str, password: str, role: str) -> Any:
    """A person who may sign in.

    Raises:
        InvalidInput: The name cannot be one, or the password is too weak.
        Conflict: The name is taken.
    """
    from django.contrib.auth.password_validation import validate_password
    from django.core.exceptions import ValidationError

    require(actor, Role.admin, "add users")
    chosen = parse_role(role)
    users = get_user_model().objects
    if not USERNAME.fullmatch(username):
        raise InvalidInput(
            f"{username!r} cannot be a user name.", remedy="Use 1 to 80 letters, digits and @ . + - _", field="username"
        )
    try:
        validate_password(password)
    except ValidationError as error:
        raise InvalidInput(" ".join(error.messages), field="password") from None
    try:
        with transaction.atomic():
            user = users.create_user(username, password=password)
            Member.objects.create(user=user, role=chosen.name)
    except IntegrityError:
        raise Taken(f"There is a user {username!r} already.", field="username") from None
    record("user", user.pk, "", "CREATED", "APPLIED", f"role {role}", actor=actor.name, name=username)
    return user
