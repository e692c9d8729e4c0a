"""The REST API: who is let in, what errors become, and the routers of the apps."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.datastructures import MultiValueDict
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from controlplane import api_errors
from controlplane.api_auth import WAYS_IN
from controlplane.api_docs import Docs, for_people_and_programs
from deployments.api import routers
from deployments.api.repeating import HEADER, SAFE, in_one_transaction, once_per_key
from deployments.domain.errors import InvalidInput, NotFound
from deployments.schemas.shapes import ErrorAnswer


class Storable(Parser):
    """Refuses text that PostgreSQL cannot hold (NUL, half of a surrogate pair) before any handler sees it."""

    def parse_body(self, request: HttpRequest) -> Any:
        body = json.loads(request.body)
        _check(body)
        return body

    def parse_querydict(self, data: MultiValueDict, list_fields: list[str], request: HttpRequest) -> Any:
        found = super().parse_querydict(data, list_fields, request)
        _check(found)
        return found


def _check(value: Any) -> None:
    if isinstance(value, str):
        if "\x00" in value or (not value.isascii() and not _encodes(value)):
            raise InvalidInput("Text may hold neither NUL nor half a surrogate pair.", code="INVALID_TEXT")
    elif isinstance(value, dict):
        for name, item in value.items():
            _check(name)
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Api(NinjaAPI):
    """NinjaAPI whose OpenAPI description says what all operations share."""

    @property
    def urls(self) -> tuple[list[Any], str, str]:
        patterns, app, namespace = super().urls
        # The last is an empty route that only serves to work addresses out.
        return [*(_typed(pattern) for pattern in patterns[:-1]), patterns[-1]], app, namespace

    def get_openapi_schema(self, **words: Any) -> OpenAPISchema:
        schema = super().get_openapi_schema(**words)
        schema["components"]["schemas"]["ErrorAnswer"] = _error_schema(schema)
        for methods in schema["paths"].values():
            for method, operation in methods.items():
                if method.upper() not in SAFE:
                    operation.setdefault("parameters", []).append(_KEY_PARAMETER)
                operation["responses"]["default"] = _ERROR_RESPONSE
        return schema


_KEY_PARAMETER = {
    "in": "header",
    "name": HEADER,
    "schema": {"type": "string", "maxLength": 200},
    "required": False,
    "description": "Repeats with the same key get the first answer again instead of doing it twice.",
}
_ERROR_RESPONSE = {
    "description": "Error",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}},
}


def _error_schema(schema: OpenAPISchema) -> dict[str, Any]:
    found = ErrorAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
    schema["components"]["schemas"].update(found.pop("$defs", {}))
    return found


def nul_is_nowhere(run: Callable[..., Any]) -> Callable[..., Any]:
    """Around an operation: no row has a NUL in its name, so such an address leads nowhere."""

    @functools.wraps(run)
    def answer(request: HttpRequest, **values: Any) -> Any:
        if any("\x00" in value for value in values.values() if isinstance(value, str)):
            values = {
                name: value.replace("\x00", "\ufffd") if isinstance(value, str) else value
                for name, value in values.items()
            }
        return run(request, **values)

    return answer


def _typed(pattern: Any) -> Any:
    """A route of ours that also refuses wrong methods in the API's one shape."""
    view = pattern.callback

    def checked(response: HttpResponseBase) -> HttpResponseBase:
        if response.status_code != 405:
            return response
        refused = api_errors.answer(api_errors.MethodNotAllowed("This address does not take this method."))
        refused["Allow"] = response["Allow"]
        return refused

    @functools.wraps(view)
    def answered(request: HttpRequest, **values: Any) -> HttpResponseBase:
        return checked(view(request, **values))

    @functools.wraps(view)
    async def answered_later(request: HttpRequest, **values: Any) -> HttpResponseBase:
        return checked(await view(request, **values))

    pattern.callback = answered_later if iscoroutinefunction(view) else answered
    return pattern


@csrf_exempt
def nowhere(request: HttpRequest) -> HttpResponse:
    """An address below /api/ that leads nowhere."""
    return api_errors.answer(NotFound("There is nothing at this address.", remedy="Look at /api/v1/docs."))


api = Api(
    title="Pilothouse",
    version="1",
    description="Control panel for distributed LLM inference.",
    auth=WAYS_IN,
    parser=Storable(),
    docs=Docs(),
    docs_url="/docs",
    openapi_url="/openapi.json",
    docs_decorator=for_people_and_programs,
)
api_errors.register(api)
api.add_decorator(once_per_key)
api.add_decorator(in_one_transaction, mode="view")
api.add_decorator(nul_is_nowhere, mode="view")
for prefix, router in routers().items():
    api.add_router(prefix, router)
