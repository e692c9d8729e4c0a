"""Nodes to observe, observers that are ended with their test, and the bell they ring."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async

if TYPE_CHECKING:
    from deployments.models import Node
    from monitoring.observer import Observer

DEADLINE_S = 60.0


async def becomes(what: str, look: Callable[[], Any]) -> Any:
    """The first true value of `look`, which may use the database, tried often."""
    ask = sync_to_async(look)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            while not (value := await ask()):
                await asyncio.sleep(0.05)
            return value
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


def held(observer: Observer) -> set[int]:
    """Ids of the nodes that an observer has, as the database says."""
    from deployments.models import Node

    return set(Node.objects.filter(observer=observer.id).values_list("pk", flat=True))


class Bell:
    """The rings that wait in the broker."""

    def __init__(self) -> None:
        import redis
        from django.conf import settings

        from controlplane.database import redis_client_url

        # A broker that a test has paused is waited for.
        self._broker = redis.from_url(redis_client_url(settings.BROKER_URL), socket_timeout=None)
        self.silence()

    def silence(self) -> None:
        """Forget what was rung so far."""
        self._broker.delete("pilothouse")

    def rings(self) -> list[tuple[str, list[Any]]]:
        """(task, arguments) of every message, the oldest last."""
        found = []
        for message in self._broker.lrange("pilothouse", 0, -1):
            headers = json.loads(message)["headers"]
            found.append((headers["task"], json.loads(headers["argsrepr"].replace("(", "[").replace(",)", "]"))))
        return found


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
async def observe() -> AsyncIterator[Callable[[], tuple[Observer, asyncio.Task[None]]]]:
    """Starts an observer in the background; returns it and its task."""
    from django.db import connections

    from monitoring.observer import Observer

    tasks: list[asyncio.Task[None]] = []

    def start() -> tuple[Observer, asyncio.Task[None]]:
        observer = Observer(interval_s=0.2)
        tasks.append(asyncio.create_task(observer.run()))
        return observer, tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await sync_to_async(connections.close_all)()


@pytest.fixture
def here(transactional_db: None, tmp_path: Path) -> Iterator[Node]:
    """This machine as a node row, not probed yet, through the real helper."""
    from ..local_node import node_row, real_launcher

    with real_launcher(tmp_path):
        yield node_row(tmp_path)


def in_thread(work: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """`work`, which uses the database, for an asynchronous test."""
    return sync_to_async(work)


class Listener:
    """Hears what is sent to groups of the channel layer, as a browser's socket does."""

    def __init__(self) -> None:
        from channels.layers import get_channel_layer

        self._layer = get_channel_layer()
        self._channel = ""

    async def join(self, *groups: str) -> None:
        self._channel = self._channel or await self._layer.new_channel()
        for group in groups:
            await self._layer.group_add(group, self._channel)

    async def hears(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message that is wanted."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message = await self._layer.receive(self._channel)
                if wanted(message):
                    return message


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    yield listener
    await listener._layer.flush()
