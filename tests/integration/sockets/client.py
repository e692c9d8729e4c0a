"""An open page without a browser."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from deployments.services.access import Actor
from deployments.transitions import tell

SOON = 15.0


def until(what: str, look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SOON
    while not (value := look()):
        assert time.monotonic() < deadline, f"not within {SOON:g} s: {what}"
        time.sleep(0.02)
    return value


def sign_in(actor: Actor) -> str:
    """The key of a new session."""
    user = get_user_model().objects.get(pk=actor.user_id)
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return str(session.session_key)


def handshake(url: str, path: str, session: str = "", origin: str | None = "") -> ClientConnection:
    """A socket as a page of the panel opens it; `origin` None sends none, '' is the panel's own."""
    opening = connect(
        url.replace("http", "ws") + path,
        origin=(origin or url) if origin is not None else None,  # type: ignore[arg-type]
        additional_headers={"Cookie": f"{settings.SESSION_COOKIE_NAME}={session}"},
        compression=None,
    )
    return opening.__enter__()  # newer releases connect here, older ones have by now


class Page:
    """A socket that was let in, after its first word."""

    def __init__(self, url: str, path: str, session: str, **options: Any) -> None:
        self.socket = handshake(url, path, session, **options)

    def __enter__(self) -> Page:
        assert "now" in json.loads(self.next())
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def next(self) -> str:
        """What is said next, apart from the time (once it was told the first time)."""
        return str(self.socket.recv(timeout=SOON))

    def says(self, text: str) -> None:
        heard = self.next()
        while '"now"' in heard:
            heard = self.next()
        assert heard == text

    def closed_with(self) -> int | None:
        """The code with which the server ends it."""
        with suppress(ConnectionClosed):
            while True:
                self.socket.recv(timeout=SOON)
        return self.socket.close_code


def push(topic: str, html: str, language: str = "en") -> None:
    """Figures, as an observer sends them."""
    assert get_channel_layer() is not None
    tell(f"live.{topic}.{language}", {"type": "fragments", "html": html})
