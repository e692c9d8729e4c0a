"""Deployments: preview, apply, stop, scale, wait."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from ninja import Router, Status

from deployments.api import chat
from deployments.api.asking import Asking, Cursor, Limit, answers_secret, create_only, if_match, set_etag
from deployments.api.waiting import WaitFor, WaitTimeout, states_of, wait_until
from deployments.domain.states import DeploymentState, Wish
from deployments.schemas.deployments import (
    ApiKey,
    Deployment,
    DeploymentDetail,
    PreviewAnswer,
    PreviewInput,
    Process,
    ScaleInput,
    WishInput,
)
from deployments.schemas.shapes import Pages, pages
from deployments.services import deployments

router = Router(tags=["deployments"])
router.add_router("", chat.router)


@router.get("", response=Pages[Deployment])
def list_deployments(request: Asking, cursor: Cursor = None, limit: Limit = 100) -> Any:
    """Deployments by name."""
    return pages(deployments.page_of_deployments(cursor, limit), lambda row: Deployment.of(row, request.auth))


@router.post("/preview", response=PreviewAnswer)
def preview_deployment(request: Asking, body: PreviewInput) -> Any:
    """The exact commands and every problem of a wish, without doing anything."""
    return PreviewAnswer.of(deployments.preview(request.auth, body.wish(body.name)))


@router.get("/{name}", response=DeploymentDetail)
async def get_deployment(
    request: Asking, response: HttpResponse, name: str, wait_for: WaitFor = None, timeout: WaitTimeout = 60.0
) -> Any:
    """One deployment; `wait_for=READY,FAILED` answers once it is in one of these states, or at the timeout."""
    states = states_of(wait_for, DeploymentState)
    answer = await wait_until(request, lambda reached: _detail(request, name, reached), states, timeout)
    set_etag(response, answer.generation)
    return answer


def _detail(request: Asking, name: str, reached: bool | None) -> DeploymentDetail:
    return DeploymentDetail.detail(deployments.get_deployment(name), request.auth, reached)


@router.put("/{name}", response=DeploymentDetail)
def apply_deployment(request: Asking, response: HttpResponse, name: str, body: WishInput) -> Any:
    """Make or change a wish. `If-Match: "<generation>"` refuses to overwrite; `If-None-Match: *` only creates."""
    row = deployments.apply(
        request.auth, body.wish(name), if_generation=if_match(request), create_only=create_only(request)
    )
    set_etag(response, row.generation)
    return _detail(request, name, None)


@router.post("/{name}/stop", response=DeploymentDetail)
def stop_deployment(request: Asking, response: HttpResponse, name: str) -> Any:
    """Stop everything of it; STOPPED means proven gone."""
    return _wish(request, response, name, Wish.STOPPED)


@router.post("/{name}/run", response=DeploymentDetail)
def run_deployment(request: Asking, response: HttpResponse, name: str) -> Any:
    """Wish it running again."""
    return _wish(request, response, name, Wish.RUNNING)


@router.post("/{name}/pause", response=DeploymentDetail)
def pause_deployment(request: Asking, response: HttpResponse, name: str) -> Any:
    """Leave what runs as it is, and start nothing."""
    return _wish(request, response, name, Wish.PAUSED)


def _wish(request: Asking, response: HttpResponse, name: str, wish: Wish) -> DeploymentDetail:
    row = deployments.set_wish(request.auth, name, wish, if_generation=if_match(request))
    set_etag(response, row.generation)
    return _detail(request, name, None)


@router.post("/{name}/scale", response=DeploymentDetail)
def scale_deployment(request: Asking, response: HttpResponse, name: str, body: ScaleInput) -> Any:
    """Set the number of replicas."""
    row = deployments.scale(request.auth, name, body.replicas, if_generation=if_match(request))
    set_etag(response, row.generation)
    return _detail(request, name, None)


@router.post("/{name}/retry", response=DeploymentDetail)
def retry_deployment(request: Asking, response: HttpResponse, name: str) -> Any:
    """Give replicas that failed or wait a new attempt now."""
    set_etag(response, deployments.retry(request.auth, name).generation)
    return _detail(request, name, None)


@router.delete("/{name}", response={204: None})
def remove_deployment(request: Asking, name: str) -> Any:
    """Forget a deployment that is proven stopped."""
    deployments.remove(request.auth, name, if_generation=if_match(request))
    return Status(204, None)


@router.post("/{name}/api-key", response=ApiKey)
@answers_secret
def reveal_api_key(request: Asking, name: str) -> Any:
    """The key that its engines ask for; that it was read is written down."""
    return {"api_key": deployments.reveal_api_key(request.auth, name)}


@router.get("/{name}/processes", response=list[Process])
def list_processes(request: Asking, name: str, current: bool = True) -> Any:
    """Its processes; with `current=false` those of earlier attempts too."""
    rows = deployments.processes_of(deployments.get_deployment(name), current=current)
    return [Process.of(row) for row in rows]
