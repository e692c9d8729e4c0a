"""What browsers look at now: topics with their language, such as `node-5.en`, each kept until nobody renews it.

Kept in the cache's server, as a sorted set by expiry, so that every observer renders what is watched and nothing else.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Any, cast

from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

KEY = "pilothouse:live:watched"
# A page that is open renews more often than this (s).
EXPIRY_S = 30.0

_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Redis] = weakref.WeakKeyDictionary()


async def watch(topic_language: str) -> None:
    """Asks for live fragments of `<topic>.<language>` for the next EXPIRY_S seconds.

    Raises:
        redis.RedisError, OSError: The server is away.
    """
    await _client().zadd(KEY, {topic_language: time.time() + EXPIRY_S})


async def watched() -> set[str]:
    """All that is watched now.

    Raises:
        redis.RedisError, OSError: The server is away.
    """
    now = time.time()
    pipeline = _client().pipeline(transaction=False)
    pipeline.zremrangebyscore(KEY, "-inf", now)
    pipeline.zrange(KEY, 0, -1)
    _, members = await pipeline.execute()
    return {member.decode() for member in members}


def _client() -> Redis:
    """The running loop's own client: connections cannot be shared between loops."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        cache = cast(dict[str, Any], settings.CACHES["default"])
        # One try: whoever asks comes again anyway.
        _clients[loop] = Redis.from_url(cache["LOCATION"], retry=Retry(NoBackoff(), 0), **cache["OPTIONS"])
    return _clients[loop]


async def close() -> None:
    """Closes the running loop's connections."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()
