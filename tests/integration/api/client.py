"""Asking the API as a program does."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponseBase
from django.test import Client

from deployments.services import access
from deployments.services.access import Actor

ROOT = "/api/v1"


def token_for(actor: Actor, scope: str | None = None, days: int = 1) -> str:
    """A fresh token's text; its scope is the actor's role unless another is given."""
    return access.create_token(actor, name="test", scope=scope or actor.role.name, days=days)[1]


class Program:
    """A caller with a bearer token. Every answer is kept as `last`; `ok` wants success and gives the body."""

    def __init__(self, token: str) -> None:
        self.client = Client(raise_request_exception=True)
        self.token = token
        self.last: Any = None

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponseBase:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.last = self.client.generic(
            method,
            path if path.startswith("/api/") else f"{ROOT}{path}",
            content,
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.token}", **named},
        )
        return self.last

    def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = self.send(method, path, body, **headers)
        assert 200 <= answer.status_code < 300, (method, path, answer.status_code, answer.content)
        return answer.json() if answer.content else None

    def refused(self, status: int, method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """The error of an answer that must have this status."""
        answer = self.send(method, path, body, **headers)
        assert answer.status_code == status, (method, path, answer.status_code, answer.content)
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "remedy", "field", "node", "retryable", "detail"}
        return error
