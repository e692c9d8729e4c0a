"""Inside a panel: which samples come to the cache, and when messages are on the channel layer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async

from benchmarks.live.browsers import digest_of

LOOK_S = 0.45
READY = "ready"


async def note(nodes: Sequence[int], groups: Sequence[str], seconds: float) -> dict[str, Any]:
    """See `benchmarks.live.inside.notes`. Prints READY when it has begun."""
    found: dict[tuple[int, float], float] = {}
    sent: dict[str, float] = {}
    layer, channel = await _join(groups)
    listening = asyncio.create_task(_listen(layer, channel, sent))
    print(READY, flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await sync_to_async(_look)(nodes, found)
        await asyncio.sleep(LOOK_S)
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening
    return {"samples": [[node, heard, at] for (node, heard), at in found.items()], "sent": sent}


def _look(nodes: Sequence[int], found: dict[tuple[int, float], float]) -> None:
    from monitoring.services.latest import latest

    for node, figures in latest(nodes).items():
        if figures.gpu is not None and figures.gpu.at is not None:
            found[node, figures.heard_at] = figures.gpu.at


async def _join(groups: Sequence[str]) -> tuple[Any, str]:
    from channels.layers import get_channel_layer

    layer: Any = get_channel_layer()
    channel = await layer.new_channel()
    for group in groups:
        await layer.group_add(group, channel)
    return layer, channel


async def _listen(layer: Any, channel: str, sent: dict[str, float]) -> None:
    while True:
        message = await layer.receive(channel)
        sent.setdefault(digest_of(message["html"]), time.time())
