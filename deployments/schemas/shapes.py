"""Parts that several schemas share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.utils import timezone
from ninja import Schema
from pydantic import ConfigDict

from deployments.services.paging import Page

Item = TypeVar("Item")


class Input(Schema):
    """What a caller sends. A field that does not exist is refused, so that a typo is seen."""

    model_config = ConfigDict(extra="forbid")


class Error(Schema):
    """What went wrong: a stable code, words, what to do next, and whether the same request may work later."""

    code: str
    message: str
    remedy: str
    field: str | None = None
    node: str | None = None
    retryable: bool
    detail: dict[str, Any] = {}


class ErrorAnswer(Schema):
    """The body of every answer with a status of 400 or more."""

    error: Error


class Pages(Schema, Generic[Item]):
    """Some of a long list; `next_cursor` is null on its last page."""

    items: list[Item]
    next_cursor: str | None


class Problem(Schema):
    """Something in the way of a wish. `severity` is error or warning.

    One of a numbered `rule` says which `setting` must change, and `values` of it that satisfy that rule.
    """

    code: str
    message: str
    remedy: str = ""
    field: str | None = None
    node: str | None = None
    severity: str = "error"
    rule: int | None = None
    setting: str | None = None
    values: list[bool | int | float | str] = []


def pages(page: Page[Any], render: Callable[[Any], Any]) -> dict[str, Any]:
    """A page of rows as `Pages`."""
    return {"items": [render(row) for row in page.rows], "next_cursor": page.next_cursor}


def age_s(moment: datetime | None) -> float | None:
    """Seconds since a moment; None when it never was."""
    return None if moment is None else round((timezone.now() - moment).total_seconds(), 3)
