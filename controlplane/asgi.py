"""The ASGI application: HTTP and, for signed-in browsers of an allowed origin, websockets."""

from __future__ import annotations

import os

from controlplane.env import or_exit

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
with or_exit():
    from controlplane import settings  # noqa: F401

from django.core.asgi import get_asgi_application

http = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402 - needs the apps loaded by the line above
from channels.sessions import CookieMiddleware  # noqa: E402

from controlplane.checks import refuse_if_wrong  # noqa: E402
from controlplane.origins import OwnPages  # noqa: E402
from controlplane.urls import websocket_urlpatterns  # noqa: E402

refuse_if_wrong()
application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": OwnPages(CookieMiddleware(URLRouter(websocket_urlpatterns))),
    }
)
