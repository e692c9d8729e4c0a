"""The one table from errors to HTTP. Every body is `{"error": ...}` with what `PilothouseError.as_dict` gives."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from deployments.api.repeating import AnsweredBefore
from deployments.domain import errors
from deployments.domain.errors import InvalidInput, NotFound, PilothouseError
from deployments.remote.launcher import RemoteError, TimedOut

log = logging.getLogger(__name__)
MAX_MESSAGE = 2000


class Unauthenticated(PilothouseError):
    """Nobody, or somebody whose token or account has ended."""

    code = "UNAUTHENTICATED"
    default_remedy = "Send a valid token as `Authorization: Bearer <token>`, or sign in."


class ForeignRequest(errors.NotPermitted):
    """A browser sent a signed-in user's cookie for another site's page."""

    code = "FOREIGN_REQUEST"
    default_remedy = "Send X-CSRFToken from the panel's own pages, or use a token."


class BadRequest(PilothouseError):
    """What was sent cannot be read."""

    code = "BAD_REQUEST"
    default_remedy = "Send a JSON body in UTF-8."


class TooLarge(BadRequest):
    code = "TOO_LARGE"
    default_remedy = "Send it in parts."


class MethodNotAllowed(BadRequest):
    code = "METHOD_NOT_ALLOWED"
    default_remedy = "Look the route up in /api/v1/docs."


class Unavailable(PilothouseError):
    """The panel's own database does not answer."""

    code = "UNAVAILABLE"
    retryable = True
    default_remedy = "Try again in a moment; /readyz says which part is down."


class Internal(PilothouseError):
    """A fault of the panel. The log has the rest."""

    code = "INTERNAL"


# By the error's code where that says more than its class, else by the nearest class.
BY_CODE = {
    "MODEL_MISSING": 422,
    "ENGINE_MISSING": 422,
    "PATH_MISSING": 422,
    "NOT_A_FOLDER": 422,
    "PERMISSION": 422,
    "UNKNOWN_PROCESS": 404,
}
BY_CLASS: dict[type[Exception], int] = {
    BadRequest: 400,
    Unauthenticated: 401,
    errors.NotPermitted: 403,
    errors.NotFound: 404,
    MethodNotAllowed: 405,
    errors.Conflict: 409,
    errors.Unplaceable: 409,
    errors.IllegalTransition: 409,
    errors.StaleGeneration: 412,
    TooLarge: 413,
    errors.DomainError: 422,
    Internal: 500,
    PilothouseError: 500,
    RemoteError: 502,
    Unavailable: 503,
    TimedOut: 504,
}


def status_of(error: PilothouseError) -> int:
    """The HTTP status of a typed error."""
    if error.code in BY_CODE:
        return BY_CODE[error.code]
    return next(BY_CLASS[kind] for kind in type(error).__mro__ if kind in BY_CLASS)


def answer(error: PilothouseError) -> HttpResponse:
    """A typed error as a response."""
    body = error.as_dict()
    body["message"] = str(body["message"])[:MAX_MESSAGE]
    status = status_of(error)
    headers = {"WWW-Authenticate": 'Bearer realm="pilothouse"'} if status == 401 else {}
    return JsonResponse({"error": body}, status=status, headers=headers)


def register(api: NinjaAPI) -> None:
    """Make `api` answer every exception by the table."""
    answers: dict[type[Exception], Callable[[HttpRequest, Any], HttpResponse]] = {
        PilothouseError: lambda request, error: answer(error),
        AnsweredBefore: lambda request, before: before.response(),
        AuthenticationError: lambda request, error: answer(_unauthenticated(request)),
        ValidationError: lambda request, error: answer(_invalid(error)),
        HttpError: lambda request, error: answer(_http(error)),
        Http404: lambda request, error: answer(NotFound("There is nothing at this address.")),
        OperationalError: _no_database,
        InterfaceError: _no_database,
        Exception: _unexpected,
    }
    for kind, handler in answers.items():
        api.add_exception_handler(kind, handler)


def _unauthenticated(request: HttpRequest) -> Unauthenticated:
    if "Authorization" in request.headers:
        return Unauthenticated("The token is unknown, has expired or was revoked, or its user is disabled.")
    return Unauthenticated("Nobody is signed in.")


def _invalid(error: ValidationError) -> InvalidInput:
    """The first bad field, as people know it; the detail lists all."""
    problems = [{"field": _field(item["loc"]), "message": str(item["msg"])} for item in error.errors]
    first = problems[0] if problems else {"field": None, "message": "The request is not valid."}
    words = f"{first['field']}: {first['message']}." if first["field"] else f"{first['message']}."
    return InvalidInput(words, field=first["field"], detail={"problems": problems[:100]})


def _field(where: Any) -> str | None:
    """`("body", "body", "jump", "port")` as `jump.port`; query and path names as they are."""
    parts = [str(part) for part in where]
    names = parts[2:] if parts[:1] == ["body"] else parts[1:]
    return ".".join(names)[:200] or None


def _http(error: HttpError) -> PilothouseError:
    """What ninja refuses by itself, above all a body that cannot be parsed."""
    cause = error.__cause__
    if isinstance(cause, PilothouseError):
        return cause
    if isinstance(cause, RequestDataTooBig):
        return TooLarge("The request is too large.")
    if error.status_code == 400:
        return BadRequest("The body is not JSON.", code="INVALID_JSON")
    return BadRequest(error.message)


def _no_database(request: HttpRequest, error: Exception) -> HttpResponse:
    log.warning("%s %s: %s", request.method, request.path, error)
    return answer(Unavailable("The panel's database does not answer."))


def _unexpected(request: HttpRequest, error: Exception) -> HttpResponse:
    if isinstance(error, RequestDataTooBig):
        return answer(TooLarge("The request is too large."))
    mark = secrets.token_hex(4)
    log.error("%s %s failed [%s]", request.method, request.path, mark, exc_info=error)
    remedy = f"Look for {mark} in the panel's log and report what it says."
    return answer(Internal("Something went wrong inside the panel.", remedy=remedy, detail={"mark": mark}))
