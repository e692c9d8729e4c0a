from __future__ import annotations

from collections.abc import Iterator

import pytest

from deployments.remote.launcher import NodeTarget, SshEndpoint
from deployments.remote.node_launcher import NodeLauncher
from tests.fleet.apart import FleetApart
from tests.fleet.server import ADDRESS, INSTALLATION

NODES = 24


@pytest.fixture(scope="module")
def fleet() -> Iterator[FleetApart]:
    with FleetApart(NODES, gpus=8) as fleet:
        yield fleet


@pytest.fixture
def real() -> Iterator[NodeLauncher]:
    launcher = NodeLauncher()
    yield launcher
    launcher.close()


@pytest.fixture
def target(fleet: FleetApart):
    """How to reach a node of the fleet by its place."""

    def target(place: int = 0) -> NodeTarget:
        name, told = f"node-{place:03}", fleet.told
        endpoint = SshEndpoint(ADDRESS, told["port"], name, told["private_key"], (told["host_key"],))
        return NodeTarget(place + 1, name, INSTALLATION, endpoint)

    return target
