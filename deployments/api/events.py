"""What happened: pages of transitions, and a stream of them."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpResponseBase, StreamingHttpResponse
from ninja import Router

from deployments.api.asking import Asking, Cursor, Limit
from deployments.api.streaming import Follower
from deployments.domain.errors import InvalidInput
from deployments.schemas.access import Transition
from deployments.schemas.shapes import Pages, pages
from deployments.services import deployments, events

router = Router(tags=["events"])


@router.get("/transitions", response=Pages[Transition])
def list_transitions(
    request: Asking,
    deployment: str | None = None,
    node: str | None = None,
    job: str | None = None,
    subject: str | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Any:
    """The newest first: every change of a state or wish, with who, why and the evidence."""
    found = events.transitions(
        request.auth, deployment=deployment, node=node, job=job, subject=subject, cursor=cursor, limit=limit
    )
    return pages(found, Transition.of)


@router.get("/events", response={200: None}, openapi_extra={"responses": {200: {"content": {"text/event-stream": {}}}}})
async def stream_events(request: Asking, deployment: str | None = None) -> HttpResponseBase:
    """Transitions as server-sent events as they happen; `Last-Event-ID` goes on after that one."""
    if deployment is not None:
        await sync_to_async(deployments.get_deployment)(deployment)
    last_id = _last_event_id(request)
    if last_id is None:
        last_id = await sync_to_async(events.newest_id)()
    follower = Follower(request.reauthenticate, request.auth, last_id, deployment)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(follower.stream(_frame), content_type="text/event-stream", headers=headers)


def _last_event_id(request: Asking) -> int | None:
    text = request.headers.get("Last-Event-ID")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput("Last-Event-ID is the id of a transition.", field="Last-Event-ID")
    return int(text)


def _frame(row: Any) -> str:
    data = json.dumps(Transition.of(row).model_dump(mode="json"))
    return f"id: {row.pk}\nevent: transition\ndata: {data}\n\n"
