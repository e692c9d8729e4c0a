"""What is known of nodes now, from the cache that the observers fill."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from django.core.cache import cache

from monitoring.domain.figures import NodeFigures, decode


def latest(node_ids: Iterable[int]) -> dict[int, NodeFigures]:
    """Figures by node id; what is not there or cannot be read is left out."""
    try:
        found = cache.get_many([f"figures:{node}" for node in node_ids])
        return {int(key.partition(":")[2]): decode(data) for key, data in found.items()}
    except (OSError, msgspec.MsgspecError):
        return {}
