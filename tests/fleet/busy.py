"""A simulated machine at work: an engine on all of its GPUs."""

from __future__ import annotations

from collections.abc import Callable

from deployments.remote.launcher import StartRequest
from deployments.remote.stub_node import StubNode
from deployments.remote.stub_telemetry import identities
from tests.fleet.server import facts_of

PROBE = {"kind": "openai", "base_url": "http://127.0.0.1:8000", "model": "simulated"}


def engine(process: str, node: StubNode) -> StartRequest:
    """A request for an engine that takes every GPU of the node."""
    uuids = tuple(gpu["uuid"] for gpu in identities(node.facts["nvidia_smi"]["xml"]))
    return StartRequest(process, process, 1, "engine", ("/opt/vllm/bin/vllm", "serve"), probe=PROBE, accelerators=uuids)


def busy_node(name: str, gpus: int, clock: Callable[[], float]) -> StubNode:
    """A node of a fleet with an engine that serves."""
    node = StubNode(facts_of(name, gpus), clock)
    node.start(engine(f"busy-{name}", node))
    node.report()
    return node
