"""Through the real server: listeners that go away leave nothing, and many of them do not use up the database."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from deployments.remote.stub import StubLauncher
from deployments.services import keys
from deployments.services.access import Actor
from tests.browser import live

from .client import token_for

pytestmark = pytest.mark.django_db(transaction=True)
LISTENERS = 24  # more than the pool has connections


@pytest.fixture
def url(stub: StubLauncher, settings: Any) -> Iterator[str]:
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    with live.served() as address:
        yield address


def listen(url: str, token: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    channel = socket.create_connection((host, int(port)), timeout=30)
    request = f"GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    channel.sendall(request.encode())
    read_until(channel, b"retry: 2000")
    return channel


def read_until(channel: socket.socket, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        part = channel.recv(65536)
        assert part, seen
        seen += part
    return seen


def ask(url: str, token: str, path: str) -> Any:
    request = urllib.request.Request(f"{url}/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def connections() -> int:
    """What the database has open for us and is busy with or was not given back."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def test_many_listeners_hear_everything_and_leave_the_database_to_others(url: str, admin: Actor) -> None:
    token = token_for(admin)
    channels = [listen(url, token) for _ in range(LISTENERS)]
    try:
        assert ask(url, token, "/nodes")["items"] == []
        keys.generate_key(admin, name="heard")
        for channel in channels:
            assert b'"name": "heard"' in read_until(channel, b"event: transition")
    finally:
        for channel in channels:
            channel.close()
    assert connections() <= 16 + 1
