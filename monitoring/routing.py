"""Addresses of sockets."""

from __future__ import annotations

from django.urls import path

from monitoring.consumers import live

websocket_urlpatterns = [
    path("ws/live/<str:kind>/", live),  # type: ignore[arg-type]  # an ASGI application where Django expects a view
    path("ws/live/<str:kind>/<str:name>/", live),  # type: ignore[arg-type]
]
