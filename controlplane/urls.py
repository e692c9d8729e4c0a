"""All addresses: the panel's pages, the API, and what monitors of the panel itself ask."""

from __future__ import annotations

from channels.security.websocket import WebsocketDenier
from django.urls import include, path, re_path

from controlplane import views
from controlplane.api import api, nowhere
from controlplane.login import LoginView, LogoutView
from monitoring.routing import websocket_urlpatterns as live_sockets

urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("login/", LoginView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/v1/", api.urls),
    re_path(r"^api/", nowhere),
    path("", include("deployments.urls")),
]
websocket_urlpatterns = [*live_sockets, re_path(r"", WebsocketDenier.as_asgi())]
