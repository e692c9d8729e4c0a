"""Who asks the API: a bearer token, or a signed-in browser from the panel's own pages."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from ninja.security import HttpBearer
from ninja.security.base import AuthBase
from ninja.utils import check_csrf

from controlplane.api_errors import ForeignRequest, Unauthenticated
from deployments.services import access
from deployments.services.access import Actor


class Token(HttpBearer):
    """`Authorization: Bearer <token>`."""

    def authenticate(self, request: Any, token: str) -> Actor | None:
        request.reauthenticate = lambda: access.actor_of_token(token)
        return access.actor_of_token(token)


class Session(AuthBase):
    """The cookie of a signed-in browser; a request that changes something also needs the CSRF token.

    A request that brings a token is never let in by its cookie.
    """

    openapi_type = "apiKey"
    openapi_in = "cookie"
    openapi_name = settings.SESSION_COOKIE_NAME
    csrf = True

    def __call__(self, request: Any) -> Actor | None:
        if "Authorization" in request.headers:
            return None
        actor = access.actor_of_user(request.user)
        if actor is None:
            return None
        if not _own_origin(request) or check_csrf(request) is not None:
            raise ForeignRequest("This request did not come from the panel's own pages.")
        key = request.session.session_key
        request.reauthenticate = lambda: _still_signed_in(key)
        return actor


WAYS_IN = [Token(), Session()]


def actor_of(request: Any) -> Actor:
    """Who sends a request to a view that is no operation of the API.

    Raises:
        Unauthenticated: Nobody.
        ForeignRequest: As for operations.
    """
    for way in WAYS_IN:
        actor = way(request)
        if actor is not None:
            return actor
    raise Unauthenticated("Nobody is signed in.")


def _own_origin(request: HttpRequest) -> bool:
    """Reading is refused to other sites' pages too; a request without Origin came from no such page."""
    origin = request.headers.get("Origin")
    if origin is None or origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    return origin == f"{request.scheme}://{request.get_host()}"


def _still_signed_in(key: str | None) -> Actor | None:
    """The user of a session as it is now: None once it was logged out or the user disabled."""
    if key is None:
        return None
    asking = HttpRequest()
    asking.session = SessionStore(key)
    return access.actor_of_user(get_user(asking))
