"""Integration tests may always use the database server and the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from deployments.remote.stub import StubLauncher
    from deployments.services.access import Actor


@pytest.fixture(scope="session", autouse=True)
def _servers(servers: None) -> None:
    """Started before the first test of this folder."""


@pytest.fixture
def stub() -> Iterator[StubLauncher]:
    """A launcher of simulated nodes, fresh for each test: `stub.node(node.pk)` is the machine of a Node row."""
    from deployments.remote import use_launcher
    from deployments.remote.stub import StubLauncher

    launcher = StubLauncher(check_host_keys=True)
    previous = use_launcher(launcher)
    yield launcher
    use_launcher(previous)


@pytest.fixture
def admin(db: None) -> Actor:
    from .panel import person

    return person("ada", "admin")


@pytest.fixture
def operator(db: None) -> Actor:
    from .panel import person

    return person("otto", "operator")


@pytest.fixture
def viewer(db: None) -> Actor:
    from .panel import person

    return person("vera", "viewer")
