"""Which pages may open sockets: browsers send cookies along with those of any page, and say whose page it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

HTTP = {"ws": "http", "wss": "https"}


class OwnPages:
    """Lets through what pages of the panel itself open, by an allowed host name, and those of TRUSTED_ORIGINS."""

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if not may_open(scope.get("scheme", "ws"), headers):
            await WebsocketDenier()(scope, receive, send)
            return
        await self._application(scope, receive, send)


def may_open(scheme: str, headers: Mapping[bytes, str]) -> bool:
    """Whether the page that a handshake comes from may open a socket here.

    Args:
        scheme: ws or wss, as the browser reached us.
        headers: Of the handshake; `host` is ours, `origin` the page's.
    """
    host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
    domain, _port = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    return origin in settings.TRUSTED_ORIGINS or origin.lower() == f"{HTTP.get(scheme, '')}://{host}".lower()
