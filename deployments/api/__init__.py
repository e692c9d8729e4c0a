"""The REST API of deployments: short handlers that parse, call one service, and render."""

from __future__ import annotations

from typing import Any

from ninja import Router

from . import access, deployments, events, jobs, keys, layouts, models, nodes, processes


def routers() -> dict[str, Router]:
    """Every router by its prefix."""
    found: dict[str, Any] = {
        "/nodes": nodes,
        "/keys": keys,
        "/models": models,
        "/layouts": layouts,
        "/deployments": deployments,
        "/processes": processes,
        "/jobs": jobs,
        "": events,
        "/access": access,
    }
    return {prefix: module.router for prefix, module in found.items()}
