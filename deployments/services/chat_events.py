"""An answer as server-sent events, for browsers and programs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from django.http import StreamingHttpResponse

from deployments.domain.errors import PilothouseError
from deployments.services.chat import Conversation

# Neither a proxy nor a browser may hold words back or keep them.
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(StreamingHttpResponse):
    """Server-sent events whose source is closed with the response: Django itself leaves that to the collector."""

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        super().__init__(events, content_type="text/event-stream", headers=_HEADERS)
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._events):
            async for part in super().__aiter__():
                yield part


def as_it_is(error: PilothouseError) -> dict[str, Any]:
    return error.as_dict()


async def frames(
    conversation: Conversation, shown: Callable[[PilothouseError], dict[str, Any]] = as_it_is
) -> AsyncGenerator[str, None]:
    """`data:` lines of JSON: `began`, then `text` and `thought`, at last `done` or `error`. `shown` words an error."""
    yield _frame("began", **conversation.answer.figures())
    try:
        async with aclosing(conversation.pieces()) as pieces:
            async for piece in pieces:
                if piece.thought:
                    yield _frame("thought", text=piece.thought)
                if piece.text:
                    yield _frame("text", text=piece.text)
    except PilothouseError as error:
        yield _frame("error", error=shown(error), **conversation.answer.figures())
    else:
        yield _frame("done", **conversation.answer.figures())


def _frame(kind: str, **values: Any) -> str:
    return f"data: {json.dumps({'kind': kind, **values})}\n\n"
