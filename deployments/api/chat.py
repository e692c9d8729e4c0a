"""Talking to a deployment, as a stream or in one piece."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from ninja import Router

from deployments.api.asking import Asking
from deployments.schemas.chat import ChatAnswer, ChatRequest
from deployments.services import chat
from deployments.services.chat_events import EventStream, frames

# A part of the router of deployments, under its tag.
router = Router()
_STREAM = {
    "responses": {
        200: {
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'data: {"kind": "text", "text": "Hello"}\n\n',
                }
            }
        }
    }
}


@router.post("/{name}/chat", response=ChatAnswer, openapi_extra=_STREAM)
async def chat_with_deployment(request: Asking, name: str, body: ChatRequest) -> Any:
    """Talk to one of its READY engines, through its node's SSH connection.

    With `stream` the answer is server-sent events whose `data` is JSON: `began`, `text` and `thought` with the words,
    then `done` with the figures, or `error` with an `error` and the figures so far. When the caller goes away, the
    engine stops.
    """
    conversation = await sync_to_async(chat.begin)(request.auth, name, body.wish())
    if body.stream:
        return EventStream(frames(conversation))
    return ChatAnswer.of(await conversation.whole())
