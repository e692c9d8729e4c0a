"""The API's own pages: its description and a page to try it, for those who are signed in or bring a token."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

from controlplane.api_auth import actor_of
from controlplane.api_errors import Unauthenticated, answer
from deployments.domain.errors import PilothouseError


class Docs(DocsBase):
    """Swagger UI from the files that ship with ninja, started by a script of our own."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        settings = {"url": self.get_openapi_url(api, kwargs), "layout": "BaseLayout", "deepLinking": True}
        return render(request, "api_docs.html", {"api": api, "settings": json.dumps(settings)})


def for_people_and_programs(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Lets in who the API lets in; a browser that is not signed in is sent to the login page."""

    @functools.wraps(view)
    def answered(request: HttpRequest, **values: Any) -> HttpResponse:
        try:
            actor_of(request)
        except Unauthenticated as error:
            if "text/html" in request.headers.get("Accept", ""):
                return redirect_to_login(request.get_full_path())
            return answer(error)
        except PilothouseError as error:
            return answer(error)
        return view(request, **values)

    return answered
