"""Browsers that do not read, and a broker that is away."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import gc
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings

from controlplane import web
from deployments.services import layouts
from deployments.services.access import Actor
from monitoring import consumers
from monitoring.consumers import OUTBOX_SIZE, Outbox, first_of
from tests.browser import live

from .client import Page, handshake, push, sign_in, until
from .line import Line

REFRESH = json.dumps({"refresh": True})


def deaf(url: str, path: str, session: str) -> socket.socket:
    """A browser that shakes hands and then reads nothing."""
    host, port = url.removeprefix("http://").split(":")
    browser = socket.socket()
    browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    browser.connect((host, int(port)))
    key = base64.b64encode(b"0123456789abcdef").decode()
    cookie = f"pilothouse_session={session}"
    browser.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {url}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nCookie: {cookie}\r\n\r\n".encode()
    )
    assert browser.recv(12) == b"HTTP/1.1 101"
    return browser


def waiting() -> int:
    """Characters that wait for all browsers together."""
    return sum(box._size for box in gc.get_objects() if type(box) is Outbox)


def test_a_browser_that_does_not_read_is_cut_off_and_disturbs_nobody(
    url: str, viewer: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TAKES_NOTHING_S", 1.0)
    session = sign_in(viewer)
    figures = "<p>" + "x" * 100_000 + "</p>"
    most = 0
    with Page(url, "/ws/live/fleet/", session) as reader, deaf(url, "/ws/live/fleet/", session) as silent:
        until("both are there", lambda: consumers._open.total() == 2)
        for _ in range(120):  # more than the kernel's buffers hold
            push("fleet", figures)
            reader.says(figures)
            most = max(most, waiting())
        until("it is cut off", lambda: consumers._open.total() == 1)
        assert most <= OUTBOX_SIZE
        push("fleet", "<p>after</p>")
        reader.says("<p>after</p>")
        assert silent.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET


async def test_what_a_browser_has_not_taken_is_bounded_and_its_page_is_loaded_anew() -> None:
    box = Outbox()
    for _ in range(30):
        box.put("x" * 100_000)
    box.put("last")
    texts = await box.take()
    assert sum(map(len, texts)) <= OUTBOX_SIZE
    assert texts[-2:] == ["last", REFRESH]
    box.ask_refresh()
    assert await box.take() == [REFRESH]


@pytest.fixture
def line(servers: None) -> Iterator[Line]:
    line = Line(django_settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0])
    yield line
    line.close()


@pytest.fixture
def url_by_line(line: Line, transactional_db: None, settings: Any) -> Iterator[str]:
    """A panel that reaches its broker by the line."""
    layer = settings.CHANNEL_LAYERS["default"]
    settings.CHANNEL_LAYERS = {"default": {**layer, "CONFIG": {**layer["CONFIG"], "hosts": [line.address]}}}
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    with live.served() as address:
        yield address


def test_without_the_broker_a_page_is_told_to_try_later_and_gets_in_when_it_is_back(
    url_by_line: str, line: Line, admin: Actor
) -> None:
    session = sign_in(admin)
    line.cut()
    with contextlib.closing(handshake(url_by_line, "/ws/live/all/", session)) as socket_:
        page = Page.__new__(Page)
        page.socket = socket_
        assert page.closed_with() == 1013
    line.mend()
    with Page(url_by_line, "/ws/live/all/", session) as again:
        layouts.add_layout(admin, name="one", kind="single")
        again.says(REFRESH)


def test_pages_that_are_open_are_sent_away_when_the_broker_goes(
    url_by_line: str, line: Line, admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "CHECK_S", 0.2)
    with Page(url_by_line, "/ws/live/all/", sign_in(admin)) as page:
        line.cut()
        assert page.closed_with() == 1013


async def test_what_misses_its_cancellation_is_cancelled_again() -> None:
    missed = False

    async def ends() -> None:
        await asyncio.sleep(0)

    async def misses() -> None:
        nonlocal missed
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            missed = True
        await asyncio.Event().wait()

    async with asyncio.timeout(30):
        await first_of(ends(), misses())
    assert missed
