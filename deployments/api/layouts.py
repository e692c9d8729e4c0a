"""Layouts: how one copy of a model is split."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status

from deployments.api.asking import Asking
from deployments.schemas.models import Layout, LayoutInput, LayoutKind
from deployments.services import layouts

router = Router(tags=["layouts"])


@router.get("", response=list[Layout])
def list_layouts(request: Asking) -> Any:
    """All layouts, by name."""
    return [Layout.of(row) for row in layouts.list_layouts()]


@router.get("/kinds", response=list[LayoutKind])
def list_kinds(request: Asking) -> Any:
    """Every kind of layout there is."""
    return [LayoutKind.of(kind) for kind in layouts.kinds()]


@router.post("", response={201: Layout})
def add_layout(request: Asking, body: LayoutInput) -> Any:
    """A new layout; layouts never change."""
    return Status(201, Layout.of(layouts.add_layout(request.auth, **body.dict())))


@router.get("/{name}", response=Layout)
def get_layout(request: Asking, name: str) -> Any:
    """One layout."""
    return Layout.of(layouts.get_layout(name))


@router.delete("/{name}", response={204: None})
def remove_layout(request: Asking, name: str) -> Any:
    """Forget a layout that no deployment uses."""
    layouts.remove_layout(request.auth, name)
    return Status(204, None)
