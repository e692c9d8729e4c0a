"""Signing in and out, with a limit on guesses per name and address."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import redis
from django.contrib.auth import views
from django.core.cache import BaseCache, caches
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from deployments.transitions import ring_person

FAILURES, WINDOW_S = 10, 300
log = logging.getLogger(__name__)


class LoginView(views.LoginView):
    """Django's login page; after `FAILURES` wrong passwords in `WINDOW_S` seconds it answers 429 for a while."""

    template_name = "login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.counter = _counter(request)
        if _count(self.counter) >= FAILURES:
            return self._too_many()
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: Any) -> HttpResponse:
        _add(self.counter)
        log.warning("login failed for %r from %s", form.data.get("username", ""), self.request.META.get("REMOTE_ADDR"))
        return super().form_invalid(form)

    def form_valid(self, form: Any) -> HttpResponse:
        _forget(self.counter)
        return super().form_valid(form)

    def _too_many(self) -> HttpResponse:
        form = self.get_form()
        form.errors["__all__"] = form.error_class([_("Too many failed logins. Wait five minutes and try again.")])
        context = self.get_context_data(form=form)
        return self.response_class(
            self.request, self.get_template_names(), context, status=429, headers={"Retry-After": str(WINDOW_S)}
        )


class LogoutView(views.LogoutView):
    """POST only, as Django does it. Pages that are still open elsewhere are closed to whoever sits there."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        user_id = request.user.pk
        answer = super().post(request, *args, **kwargs)
        if user_id is not None:
            ring_person(user_id)
        return answer


def _counter(request: HttpRequest) -> str:
    """A cache key for one name at one address, hashed because names may hold any character."""
    who = f"{request.POST.get('username', '').casefold()}\0{request.META.get('REMOTE_ADDR', '')}"
    return f"login:{hashlib.sha256(who.encode()).hexdigest()}"


def _count(key: str) -> int:
    return _with_cache(lambda cache: cache.get(key, 0))


def _add(key: str) -> None:
    def add(cache: BaseCache) -> None:
        if not cache.add(key, 1, WINDOW_S):
            cache.incr(key)

    _with_cache(add)


def _forget(key: str) -> None:
    _with_cache(lambda cache: cache.delete(key))


def _with_cache(do: Any) -> Any:
    """The shared cache, or this process's own while the shared one is down: guesses stay limited either way."""
    try:
        return do(caches["default"])
    except (redis.RedisError, OSError, ValueError):
        return do(caches["local"])
