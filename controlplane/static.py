"""Static files: served by WhiteNoise in our own process, under hashed names once they were collected."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedWhenCollected(CompressedManifestStaticFilesStorage):
    """Plain names before the first `collectstatic` (tests, a fresh checkout), hashed and cacheable ones after it."""

    manifest_strict = False

    def url(self, name: str | None, force: bool = False) -> str:
        try:
            if self.hashed_files:
                return super().url(name, force)
        except ValueError:
            # The file does not exist, and a page without its picture is worth more than no page.
            pass
        return StaticFilesStorage.url(self, name)


def collect_if_changed() -> None:
    """`collectstatic`, unless the sources are the ones of the last time."""
    stamp = Path(settings.STATIC_ROOT) / "collected-from"
    now = _sources()
    if stamp.exists() and stamp.read_text(encoding="ascii") == now:
        return
    call_command("collectstatic", interactive=False, clear=True, verbosity=0, skip_checks=True)
    stamp.write_text(now, encoding="ascii")


def _sources() -> str:
    digest = hashlib.sha256()
    for finder in finders.get_finders():
        for name, storage in sorted(finder.list([]), key=lambda found: found[0]):
            found = Path(storage.path(name)).stat()
            digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


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
