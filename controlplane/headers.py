"""Response headers that browsers enforce: only our own scripts, styles, images and connections."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

# `data:` serves the small SVG images inside style sheets; ws: follows from 'self' in current browsers.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)


@sync_and_async_middleware
def security_headers(get_response: Any) -> Any:
    """Adds the policy to every response that does not carry its own."""
    if iscoroutinefunction(get_response):

        async def asynchronous(request: Any) -> HttpResponseBase:
            return _with_headers(await get_response(request))

        return asynchronous

    def synchronous(request: Any) -> HttpResponseBase:
        return _with_headers(get_response(request))

    return synchronous


def _with_headers(response: HttpResponseBase) -> HttpResponseBase:
    response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
    return response
