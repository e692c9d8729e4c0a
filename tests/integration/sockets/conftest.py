"""The real server with real sockets, by a client that can do what browsers do and what they do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def url(transactional_db: None, settings: Any) -> Iterator[str]:
    from tests.browser import live

    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    with live.served() as address:
        yield address
