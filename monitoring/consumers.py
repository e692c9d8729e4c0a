"""The socket of an open page: figures as they change, and a word when something happened that concerns it.

Nothing is read from browsers. What one has not taken yet is bounded, and one that takes nothing is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs

from channels.layers import get_channel_layer
from django.conf import settings
from django.db import DatabaseError
from redis import RedisError

from deployments.api.listening import give_back_connection
from deployments.transitions import EVENTS_GROUP, PEOPLE_GROUP
from monitoring.domain.pages import OpenPage, concerns
from monitoring.services.visits import Visitor, open_page, visitor
from monitoring.sinks import watchers
from monitoring.sinks.outage import Outage

log = logging.getLogger(__name__)

# Close codes: the page is to be loaded again, its object is gone, try again later, browsers have nothing to say.
NOT_YOU, GONE, LATER, UNASKED = 4401, 4404, 1013, 1008
# How often person, object and broker are asked for again (s); figures are rendered for whoever asked so recently.
CHECK_S = 10.0
# After so many checks without the database the browser is sent away.
BLIND_CHECKS = 3
SEND_S = 10.0
BROKER_S = 5.0
OUTBOX_SIZE = 1024 * 1024  # characters
SOCKETS_PER_PERSON = 50

AWAY = (RedisError, OSError, TimeoutError)
_open: Counter[int] = Counter()
_no_broker = Outage(log, "open pages are told nothing")
_no_database = Outage(log, "who has pages open cannot be checked")


class Ended(Exception):
    """The socket is over; `code` is what the browser is told, None when there is nobody to tell."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class Outbox:
    """What a browser has still to be sent. When it falls behind, its page is loaded anew instead."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._size = 0
        self._refresh = False
        self._something = asyncio.Event()

    def put(self, text: str) -> None:
        self._size += len(text)
        if self._size > OUTBOX_SIZE:
            self._texts.clear()
            self._size = 0
            self._refresh = True
        else:
            self._texts.append(text)
        self._something.set()

    def ask_refresh(self) -> None:
        self._refresh = True
        self._something.set()

    async def take(self) -> list[str]:
        """Everything there is, at least one text."""
        await self._something.wait()
        self._something.clear()
        texts, self._texts, self._size = self._texts, [], 0
        if self._refresh:
            self._refresh = False
            texts.append(json.dumps({"refresh": True}))
        return texts


class Subscription:
    """An async context: a channel of the broker in some groups. It raises what is in AWAY while there is no broker."""

    def __init__(self, groups: list[str]) -> None:
        self._layer: Any = get_channel_layer()
        self._groups = groups
        self._channel = ""

    async def __aenter__(self) -> Subscription:
        async with asyncio.timeout(BROKER_S):
            # Asked first, because a channel that cannot be opened would stay behind in the layer.
            await self._layer.group_send("nobody", {"type": "knock"})
            self._channel = await self._layer.new_channel()
            try:
                for group in self._groups:
                    await self._layer.group_add(group, self._channel)
            except BaseException:
                await self._leave()
                raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        for group in self._groups:
            with contextlib.suppress(*AWAY):
                async with asyncio.timeout(BROKER_S):
                    await self._layer.group_discard(group, self._channel)

    async def next(self) -> dict[str, Any]:
        return await self._layer.receive(self._channel)

    async def knock(self) -> None:
        """Send a message to ourselves: it comes back if we are still being told things."""
        async with asyncio.timeout(BROKER_S):
            await self._layer.send(self._channel, {"type": "knock"})


async def live(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[..., Awaitable[Any]]
) -> None:
    """The ASGI application behind `/ws/live/<kind>/` and `/ws/live/<kind>/<name>/?language=en`."""
    await _Socket(scope, receive, send).run()


class _Socket:
    def __init__(self, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]) -> None:
        self._receive, self._send = receive, send
        self._session = scope["cookies"].get(settings.SESSION_COOKIE_NAME, "")
        route = scope["url_route"]["kwargs"]
        self._kind, self._name = route["kind"], route.get("name", "")
        self._language = _language(scope["query_string"])
        self._outbox = Outbox()
        self._look = asyncio.Event()
        self._heard_knock = True

    async def run(self) -> None:
        """From the handshake to the end. Only who is signed in gets through the handshake."""
        await self._receive()
        try:
            person = await _ask(visitor, self._session)
        except DatabaseError as error:
            _no_database.failed(error)
            person = None
        if person is None:
            await self._send({"type": "websocket.close"})
            return
        _open[person.user_id] += 1
        try:
            await self._serve(person)
        finally:
            _open[person.user_id] -= 1
            if not _open[person.user_id]:
                del _open[person.user_id]

    async def _serve(self, person: Visitor) -> None:
        accepted = False

        async def accept() -> None:
            nonlocal accepted
            try:
                await self._send({"type": "websocket.accept"})
            except OSError:
                raise Ended(None) from None
            accepted = True

        try:
            await self._join(person, accept)
        except Ended as end:
            code = end.code
        except DatabaseError as error:
            _no_database.failed(error)
            code = LATER
        except AWAY as error:
            _no_broker.failed(error)
            code = LATER
        if code is not None:
            with contextlib.suppress(Ended, OSError):
                async with asyncio.timeout(SEND_S):
                    # Told after the handshake: browsers are not shown why one was refused.
                    if not accepted:
                        await accept()
                    await self._send({"type": "websocket.close", "code": code})

    async def _join(self, person: Visitor, accept: Callable[[], Awaitable[None]]) -> None:
        if _open[person.user_id] > SOCKETS_PER_PERSON:
            raise Ended(LATER)
        page = await _ask(open_page, self._kind, self._name)
        if page is None:
            raise Ended(GONE)
        groups = [EVENTS_GROUP, PEOPLE_GROUP.format(person.user_id)]
        if page.topic is not None:
            groups.append(f"live.{page.topic}.{self._language}")
        async with Subscription(groups) as subscription:
            await self._watch(page)
            await accept()
            await first_of(
                self._hear(), self._listen(subscription, page), self._deliver(), self._check(subscription, page, person)
            )

    async def _hear(self) -> None:
        """Until the browser goes."""
        message = await self._receive()
        raise Ended(UNASKED if message["type"] == "websocket.receive" else None)

    async def _listen(self, subscription: Subscription, page: OpenPage) -> None:
        while True:
            message = await subscription.next()
            match message["type"]:
                case "fragments":
                    self._outbox.put(message["html"])
                case "person":
                    self._look.set()
                case "knock":
                    self._heard_knock = True
                case _ if concerns(page, message):
                    self._outbox.ask_refresh()

    async def _deliver(self) -> None:
        try:
            while True:
                for text in await self._outbox.take():
                    async with asyncio.timeout(SEND_S):
                        await self._send({"type": "websocket.send", "text": text})
        except (TimeoutError, OSError):
            raise Ended(None) from None

    async def _check(self, subscription: Subscription, page: OpenPage, person: Visitor) -> None:
        """Tell the time, and see from time to time whether all is as it was when the page was opened."""
        blind = 0
        while True:
            self._outbox.put(json.dumps({"now": time.time()}))
            if not self._heard_knock:
                raise Ended(LATER)
            self._heard_knock = False
            await subscription.knock()
            await self._watch(page)
            _no_broker.worked()
            self._look.clear()
            try:
                await self._compare(page, person)
                _no_database.worked()
                blind = 0
            except DatabaseError as error:
                _no_database.failed(error)
                blind += 1
                if blind >= BLIND_CHECKS:
                    raise Ended(LATER) from None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S * random.uniform(0.9, 1.1)):
                    await self._look.wait()

    async def _compare(self, page: OpenPage, person: Visitor) -> None:
        if await _ask(visitor, self._session) != person:
            raise Ended(NOT_YOU)
        if await _ask(open_page, self._kind, self._name) != page:
            raise Ended(GONE)

    async def _watch(self, page: OpenPage) -> None:
        """Have the figures rendered for this page a while longer."""
        if page.topic is not None:
            async with asyncio.timeout(BROKER_S):
                await watchers.watch(f"{page.topic}.{self._language}")


def _language(query: bytes) -> str:
    asked = parse_qs(query.decode("latin-1")).get("language", [""])[0]
    return asked if asked in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


async def _ask(question: Callable[..., Any], *args: Any) -> Any:
    """The answer from the database, in a thread that keeps no connection."""

    def answer() -> Any:
        try:
            return question(*args)
        finally:
            give_back_connection()

    return await asyncio.to_thread(answer)


async def first_of(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, then end the others and raise what it raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(tasks)
    for task in done:
        task.result()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel until all have ended: one that just got its answer from the broker may miss the first time."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.1)
    await asyncio.gather(*tasks, return_exceptions=True)
