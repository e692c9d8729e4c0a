"""Static files: served by WhiteNoise in our own process, under hashed names once they were collected."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedWhenCollected(CompressedManifestStaticFilesStorage):
    """Plain names before the first `collectstatic` (tests, a fresh checkout), hashed and cacheable ones after it."""

    manifest_strict = False

    def url(self, name: str | None, force: bool = False) -> str:
        if self.hashed_files:
            return super().url(name, force)
        return StaticFilesStorage.url(self, name)


class StaticFiles(WhiteNoiseMiddleware):
    """WhiteNoise for both kinds of request: under ASGI a synchronous middleware would cost each view a thread."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Any = None) -> None:
        super().__init__(get_response)
        self.asynchronous = iscoroutinefunction(get_response)
        if self.asynchronous:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        return self._later(request) if self.asynchronous else super().__call__(request)

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        static_file = self.files.get(request.path_info) if not self.autorefresh else self.find_file(request.path_info)
        return await self.get_response(request) if static_file is None else _whole(static_file, request)


def _whole(static_file: Any, request: HttpRequest) -> HttpResponse:
    """The file in one piece: they are small, and an iterator over a file cannot be awaited."""
    answer = static_file.get_response(request.method, request.META)
    content = b""
    if answer.file is not None:
        with answer.file:
            content = answer.file.read()
    response = HttpResponse(content, status=int(answer.status))
    del response["Content-Type"]
    for key, value in answer.headers:
        response[key] = value
    return response
