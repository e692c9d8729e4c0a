"""What happened: transitions and generations, the newest first."""

from __future__ import annotations

from deployments.models import Deployment, Generation, Node, Transition


def of_deployment(deployment: Deployment, limit: int = 60) -> list[Transition]:
    """What happened to a deployment, its replicas and processes."""
    return list(Transition.objects.filter(deployment=deployment).select_related("node").order_by("-pk")[:limit])


def of_node(node: Node, limit: int = 30) -> list[Transition]:
    """What happened to a node itself, without the processes on it."""
    return list(Transition.objects.filter(node=node, subject="node").order_by("-pk")[:limit])


def generations(deployment: Deployment, limit: int = 20) -> list[Generation]:
    """What was wished, by whom."""
    return list(deployment.generations.order_by("-number")[:limit])
