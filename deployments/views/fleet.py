"""The first page: what there is, what it does, and what needs somebody."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from deployments.services import deployments, events, fleet
from deployments.services.access import Actor

from .page import page, show


@page
def overview(request: HttpRequest, actor: Actor) -> HttpResponse:
    rows = fleet.fleet()
    slots = [slot for row in rows for slot in row.slots]
    context = {
        "rows": rows,
        "deployments": deployments.list_deployments(),
        "attention": fleet.attention(),
        "events": [event for event in events.transitions(actor, limit=40).rows if event.subject != "job"][:10],
        "total": len(slots),
        "used": sum(slot.owner is not None for slot in slots),
        "place": "fleet",
    }
    return show(request, actor, "fleet.html", context, parts=("live",))
