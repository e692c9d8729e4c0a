"""Who has a page open, and what it is about: asked when a socket is opened and again while it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.db.models import QuerySet
from django.utils.crypto import constant_time_compare

from deployments.models import Deployment, Job, Node
from deployments.services import naming
from deployments.services.access import Role, actor_of_user
from monitoring.domain.pages import LISTS, OpenPage

UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person behind a session, with what they may do now."""

    user_id: int
    role: Role


def visitor(session_key: str) -> Visitor | None:
    """Who is signed in by this session; None when it has ended or the account is disabled.

    The session is only read: looking at a page that runs along does not make it last longer.
    """
    if not session_key:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user_model().objects.filter(pk=session.get(SESSION_KEY)).first()
    if user is None or not _was_opened_for(user, session.get(HASH_SESSION_KEY, "")):
        return None
    actor = actor_of_user(user)
    return None if actor is None else Visitor(user.pk, actor.role)


def _was_opened_for(user: Any, session_hash: str) -> bool:
    """False once the password was changed."""
    valid = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return any(constant_time_compare(session_hash, known) for known in valid)


def open_page(kind: str, name: str) -> OpenPage | None:
    """The page of this kind about the object called `name` (a job's id); None when there is none."""
    if not name:
        return OpenPage(kind) if kind in LISTS else None
    known = naming.known(name)
    found: QuerySet[Any]
    match kind:
        case "node":
            found = Node.objects.filter(name=known)
        case "deployment":
            found = Deployment.objects.filter(name=known, removed_at=None)
        case "job" if UUID_TEXT.fullmatch(name):
            found = Job.objects.filter(pk=name)
        case _:
            return None
    key = found.values_list("pk", flat=True).first()
    return None if key is None else OpenPage(kind, key if isinstance(key, int) else str(key))
