"""Integration tests may always use the database server and the broker."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _servers(servers: None) -> None:
    """Started before the first test of this folder."""
