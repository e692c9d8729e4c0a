"""Single processes: what they are, what they say, and the last resort."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from ninja import Query, Router

from deployments.api.asking import Asking
from deployments.schemas.deployments import Log, ProcessDetail
from deployments.services import deployments

router = Router(tags=["processes"])
MAX_OFFSET = 2**62
Offset = Annotated[int, Query(-65536, ge=-MAX_OFFSET, le=MAX_OFFSET, description="negative = before the end")]


@router.get("/{process}", response=ProcessDetail)
def get_process(request: Asking, process: str) -> Any:
    """One process with its spec and what its node says about it."""
    return ProcessDetail.detail(deployments.get_process(process), request.auth)


@router.get("/{process}/log", response=Log)
def read_log(
    request: Asking,
    process: str,
    offset: Offset = -65536,
    limit: Annotated[int, Query(65536, ge=1, le=262144)] = 65536,
    wait_s: Annotated[float, Query(0.0, ge=0, le=30, description="wait this long for new bytes")] = 0.0,
) -> Any:
    """A piece of its log by byte offset, read from its node; ask again with `next_offset` to follow it."""
    return asdict(deployments.read_log(request.auth, process, offset=offset, limit=limit, wait_s=wait_s))


@router.post("/{process}/force-stopped", response=ProcessDetail)
def force_stopped(request: Asking, process: str) -> Any:
    """Take somebody's word that a process is gone, where its proof cannot be had."""
    deployments.force_stopped(request.auth, process)
    return ProcessDetail.detail(deployments.get_process(process), request.auth)
