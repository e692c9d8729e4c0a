from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deployments.remote.node_launcher import NodeLauncher
from tests.integration.remote.sshd import SSHD, Sshd
from tests.lab.fixtures import give_up


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Starts servers that end with the test."""
    if not SSHD.exists():
        give_up(f"{SSHD} is missing: install openssh-server")
    servers: list[Sshd] = []

    def make(*settings: str, start: bool = True, **options) -> Sshd:
        server = Sshd(tmp_path / f"sshd{len(servers)}", *settings, **options)
        servers.append(server)
        return server.start() if start else server

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def sshd(make_sshd: Callable[..., Sshd]) -> Sshd:
    return make_sshd()


@pytest.fixture
def node_launcher() -> Iterator[NodeLauncher]:
    launcher = NodeLauncher()
    yield launcher
    launcher.close()


@pytest.fixture
def ask(node_launcher: NodeLauncher) -> Callable[..., dict]:
    """Asks the helper something it always knows: who it is."""

    def ask(target, timeout: float = 20.0) -> dict:
        args = {"installation": target.installation, "schema": 1}
        return node_launcher._connections.call(target, "hello", args, timeout)

    return ask
