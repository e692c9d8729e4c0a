"""Figures for a page."""

from __future__ import annotations

from collections.abc import Iterable

from redis import RedisError

from monitoring.domain.figures import NodeFigures
from monitoring.sinks.latest import read


def latest(nodes: Iterable[int]) -> dict[int, NodeFigures]:
    """The newest figures by node; those of nodes never heard are missing, and all are while the cache is away."""
    try:
        return read(nodes)
    except (RedisError, OSError):
        return {}
