"""A process's log, read by offset and followed."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from deployments.domain.log_lines import read_lines
from deployments.domain.states import PROCESS_FINAL
from deployments.models import Process
from deployments.remote.launcher import RemoteError
from deployments.services import deployments
from deployments.services.access import Actor

from .page import page, show

TAIL = 128 * 1024


@page
def log(request: HttpRequest, actor: Actor, process_id: str) -> HttpResponse:
    """The tail, or from the byte `at`; `from` asks for what follows it, `back` for what is before."""
    process = deployments.get_process(process_id)
    context = {"process": process, "deployment": process.deployment, "place": "deployments"}
    return show(
        request, actor, "deployments/log.html", context | _piece(request, actor, process), parts=("more", "before")
    )


def _piece(request: HttpRequest, actor: Actor, process: Process) -> dict[str, Any]:
    over = process.state in PROCESS_FINAL
    start, limit, cut = _where(request)
    try:
        chunk = deployments.read_log(actor, str(process.pk), offset=start, limit=limit)
    except RemoteError as error:
        return {"error": error.as_dict(), "next": start, "over": over, "lines": (), "first": 0}
    piece = read_lines(
        chunk.data,
        chunk.offset,
        chunk.next_offset,
        ended=over and chunk.next_offset >= chunk.size,
        cut=cut and chunk.offset > chunk.base,
    )
    return {
        "lines": piece.lines,
        "next": piece.next_offset,
        "first": piece.lines[0].offset if piece.lines else chunk.offset,
        "base": chunk.base,
        "size": chunk.size,
        "over": over and piece.next_offset >= chunk.size,
        "caught_up": chunk.next_offset >= chunk.size,
        "error": None,
    }


def _where(request: HttpRequest) -> tuple[int, int, bool]:
    """Offset, length, and whether the first line may be cut."""
    if (at := request.GET.get("from", "")).isdigit():
        return int(at), TAIL, False
    if (end := request.GET.get("back", "")).isdigit():
        start = max(0, int(end) - TAIL)
        return start, max(1, int(end) - start), start > 0
    if (at := request.GET.get("at", "")).isdigit():
        return max(0, int(at) - 4096), TAIL, int(at) > 4096
    return -TAIL, TAIL, True
