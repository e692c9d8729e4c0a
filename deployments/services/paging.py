"""Pages of long lists. A cursor holds the last row's sort values, so rows that come or go shift nothing."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from deployments.domain.errors import InvalidInput

MAX_LIMIT = 500
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows, and the cursor of the page after them (None = there is none)."""

    rows: list[Row]
    next_cursor: str | None


def page(rows: QuerySet[Row], order: Sequence[str], cursor: str | None, limit: int) -> Page[Row]:
    """The rows after `cursor`, sorted by `order`: field names, `-` for falling; together they tell all rows apart.

    Raises:
        InvalidInput: The cursor was not made here, or the limit is out of range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"A page has 1 to {MAX_LIMIT} rows.", field="limit")
    if cursor:
        try:
            rows = rows.filter(_after(order, _read(cursor, len(order))))
            found = list(rows.order_by(*order)[: limit + 1])
        except (ValidationError, ValueError, TypeError):
            raise _bad_cursor() from None
    else:
        found = list(rows.order_by(*order)[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    return Page(found, _write(found[-1], order) if more else None)


def _after(order: Sequence[str], values: Sequence[Any]) -> Q:
    """Rows behind these sort values: greater in the first field that differs."""
    behind = Q()
    equal = Q()
    for name, value in zip(order, values, strict=True):
        field, falling = name.removeprefix("-"), name.startswith("-")
        behind |= equal & Q(**{f"{field}__{'lt' if falling else 'gt'}": value})
        equal &= Q(**{field: value})
    return behind


def _write(row: Model, order: Sequence[str]) -> str:
    values = [getattr(row, name.removeprefix("-")) for name in order]
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in values]
    return base64.urlsafe_b64encode(json.dumps(plain, default=str).encode()).decode().rstrip("=")


def _read(cursor: str, length: int) -> list[Any]:
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise _bad_cursor() from None
    plain = isinstance(values, list) and len(values) == length and all(type(value) in (str, int) for value in values)
    if not plain or any(isinstance(value, str) and "\x00" in value for value in values):
        raise _bad_cursor()
    return list(values)


def _bad_cursor() -> InvalidInput:
    return InvalidInput("This cursor was not given out here.", remedy="Leave it out to begin anew.", field="cursor")
