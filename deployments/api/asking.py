"""What every handler shares: who asks, on what condition, and which routes must not be remembered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from django.http import HttpRequest, HttpResponse
from ninja import Query

from deployments.domain.errors import InvalidInput
from deployments.services.access import Actor

Handler = TypeVar("Handler", bound=Callable[..., Any])
Cursor = Annotated[str | None, Query(None, description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(100, description="1 to 500 rows")]
_ETAG = re.compile(r'"?([0-9]{1,9})"?')


class Asking(HttpRequest):
    """A request that was let in: `auth` is who asks, `reauthenticate()` is who that is by now (None = nobody)."""

    auth: Actor
    reauthenticate: Callable[[], Actor | None]


def answers_secret(handler: Handler) -> Handler:
    """Marks a handler whose answer holds a secret: it takes no idempotency key, because the answer is not kept."""
    handler.answers_secret = True  # type: ignore[attr-defined]
    return handler


def if_match(request: HttpRequest) -> int | None:
    """The generation that `If-Match` names; None without it.

    Raises:
        InvalidInput: It names something else.
    """
    text = request.headers.get("If-Match")
    if text is None:
        return None
    found = _ETAG.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(
            "If-Match names no generation.", remedy='Send the ETag of the deployment, such as "3".', field="If-Match"
        )
    return int(found[1])


def create_only(request: HttpRequest) -> bool:
    """Whether `If-None-Match: *` asks that nothing of this name exists.

    Raises:
        InvalidInput: It holds anything else.
    """
    text = request.headers.get("If-None-Match")
    if text is not None and text.strip() != "*":
        raise InvalidInput("If-None-Match can only be *.", field="If-None-Match")
    return text is not None


def set_etag(response: HttpResponse, generation: int) -> None:
    """The generation as the answer's ETag."""
    response.headers["ETag"] = f'"{generation}"'
