"""Requests with an Idempotency-Key: done once, answered again. Two parts around each operation, for `NinjaAPI`."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from deployments.domain.errors import InvalidInput
from deployments.models import IdempotencyRecord
from deployments.services import idempotency

HEADER = "Idempotency-Key"
SAFE = ("GET", "HEAD", "OPTIONS")
KEPT_HEADERS = ("ETag",)
_WITHOUT = f"Send the request without {HEADER}."


class AnsweredBefore(Exception):
    """Not an error: the request was answered before, with `record`."""

    def __init__(self, record: IdempotencyRecord) -> None:
        self.record = record

    def response(self) -> HttpResponse:
        """The first answer again."""
        body = b"" if self.record.body is None else json.dumps(self.record.body).encode()
        headers = {**self.record.headers, "Idempotency-Replayed": "true"}
        return HttpResponse(body, status=self.record.status, content_type="application/json", headers=headers)


def in_one_transaction(run: Callable[..., Any]) -> Callable[..., Any]:
    """Around a whole operation: its changes and the record of its answer are committed together or not at all.

    Asynchronous operations change nothing in the database.
    """
    if iscoroutinefunction(run):
        return run

    @functools.wraps(run)
    def answer(request: HttpRequest, **values: Any) -> Any:
        if request.method in SAFE or HEADER not in request.headers:
            return run(request, **values)
        with transaction.atomic():
            response = run(request, **values)
            asked = getattr(request, "asked_with_key", None)
            if not 200 <= response.status_code < 300:
                transaction.set_rollback(True)
            elif asked is not None and "Idempotency-Replayed" not in response:
                body = json.loads(response.content) if response.content else None
                headers = {name: response[name] for name in KEPT_HEADERS if name in response}
                idempotency.keep(asked, response.status_code, body, headers)
        return response

    return answer


def once_per_key(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Around a handler, once it is known who asks and that the input is well-formed."""

    @functools.wraps(handler)
    def answer(request: Any, *args: Any, **values: Any) -> Any:
        key = request.headers.get(HEADER)
        if request.method in SAFE or key is None:
            return handler(request, *args, **values)
        if getattr(handler, "answers_secret", False):
            raise InvalidInput(
                "The answer of this route holds a secret, which is not kept.",
                remedy=_WITHOUT,
                field=HEADER,
            )
        if iscoroutinefunction(handler):
            raise InvalidInput("The answers of this route are not kept.", remedy=_WITHOUT, field=HEADER)
        asked = idempotency.identify(request.auth, key, request.method, request.get_full_path(), request.body)
        found = idempotency.begin(asked)
        if found is not None:
            raise AnsweredBefore(found)
        request.asked_with_key = asked
        return handler(request, *args, **values)

    return answer
