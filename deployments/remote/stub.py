"""A launcher without machines: simulated nodes in memory, for tests through Django's client and for looking around."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from .launcher import (
    HelperFailed,
    HostKey,
    HostKeyChanged,
    HostKeyUnknown,
    LogChunk,
    NodeTarget,
    ScanResult,
    Started,
    StartRequest,
    StopProof,
    StopRequest,
    Unreachable,
)
from .ssh_files import host_key
from .stub_chat import StubChat
from .stub_facts import cpu_host, host_key_blob
from .stub_node import StubNode

__all__ = ["Call", "StubLauncher"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was made: the verb, the target's id, and its argument (None where there is none)."""

    verb: str
    node: int
    args: Any = None


class StubLauncher:
    """`Launcher` over simulated nodes; a node exists from the first time it is named, as a CPU host.

    Args:
        clock: Seconds since the epoch; give one of your own to move time.
        facts: Makes the facts of a node from its name.
        check_host_keys: Refuse targets whose accepted host keys are not the simulated node's, as the real one does.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        facts: Callable[[str], dict[str, Any]] = cpu_host,
        check_host_keys: bool = False,
    ) -> None:
        self.calls: list[Call] = []
        self.chat = StubChat()
        self.check_host_keys = check_host_keys
        self._clock = clock
        self._facts = facts
        self._nodes: dict[int, StubNode] = {}

    def node(self, id: int, facts: dict[str, Any] | None = None) -> StubNode:
        """The simulated node of a target id, made with `facts` when it is new."""
        if id not in self._nodes:
            self._nodes[id] = StubNode(facts or self._facts(f"node-{id}"), self._clock)
        elif facts is not None:
            self._nodes[id].facts = facts
        return self._nodes[id]

    def made(self, verb: str) -> list[Call]:
        """The calls of one verb, in order."""
        return [call for call in self.calls if call.verb == verb]

    def host_key_of(self, address: str) -> HostKey:
        """The host key a simulated machine at this address shows."""
        return host_key(f"ssh-ed25519 {base64.b64encode(host_key_blob(address)).decode()}")

    def scan(self, target: NodeTarget) -> ScanResult:
        self._reach(target, "scan", None, check=False)
        assert target.endpoint is not None
        jump = None if target.jump is None else self.host_key_of(target.jump.address)
        if target.jump is not None and jump is not None and jump.public not in target.jump.host_keys:
            return ScanResult(None, jump)
        return ScanResult(self.host_key_of(target.endpoint.address), jump)

    def probe(self, target: NodeTarget, environment: str | None, paths: tuple[str, ...] = ()) -> dict[str, Any]:
        return self._do(target, "probe", environment, lambda node: node.probe(environment, paths))

    def report(self, target: NodeTarget) -> dict[str, Any]:
        return self._do(target, "report", None, lambda node: node.report())

    async def watch(
        self,
        target: NodeTarget,
        interval_s: float = 1.0,
        *,
        metrics: tuple[str, ...] = (),
        gpu: bool = False,
        host: bool = True,
    ) -> AsyncGenerator[dict[str, Any], None]:
        node = self._reach(target, "watch", interval_s)
        while not node.silent:
            yield node.report(metrics, gpu, host)
            await asyncio.sleep(interval_s)
        raise self._unreachable(target)

    async def converse(
        self, target: NodeTarget, process: str, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        node = self._reach(target, "converse", (process, path, dict(body)))
        known = node.processes.get(process)
        if known is None or not known.alive:
            code = "UNKNOWN_PROCESS" if known is None else "NOT_RUNNING"
            raise HelperFailed(f"Process {process} does not run.", code=code, node=target.name)
        async with aclosing(self.chat.answer(path, body)) as events:
            async for event in events:
                yield event

    def start(self, target: NodeTarget, request: StartRequest) -> Started:
        return Started(**self._do(target, "start", request, lambda node: node.start(request)))

    def stop(self, target: NodeTarget, request: StopRequest) -> StopProof:
        answer = dict(self._do(target, "stop", request, lambda node: node.stop(request.process)))
        return StopProof(answer.pop("proven"), answer.pop("known"), answer)

    def collect(self, target: NodeTarget, process: str) -> dict[str, Any]:
        return self._do(target, "collect", process, lambda node: node.collect(process))

    def logs(self, target: NodeTarget, process: str, offset: int, limit: int = 65536, wait_s: float = 0.0) -> LogChunk:
        return LogChunk(**self._do(target, "logs", process, lambda node: node.logs(process, offset, limit)))

    def read_model(self, target: NodeTarget, path: str) -> dict[str, Any]:
        return self._do(target, "read_model", path, lambda node: node.read_model(path))

    def forget(self, target: NodeTarget, process: str) -> None:
        self._do(target, "forget", process, lambda node: node.forget(process))

    def close(self) -> None:
        """Nothing is open."""

    def _do(self, target: NodeTarget, verb: str, args: Any, work: Callable[[StubNode], Any]) -> Any:
        node = self._reach(target, verb, args)
        try:
            return work(node)
        except HelperFailed as error:
            error.node = error.node or target.name
            raise

    def _reach(self, target: NodeTarget, verb: str, args: Any, check: bool = True) -> StubNode:
        if target.id not in self._nodes:
            self.node(target.id, self._facts(target.name))
        node = self.node(target.id)
        self.calls.append(Call(verb, target.id, args))
        if node.silent:
            raise self._unreachable(target)
        node.raise_failure(verb)
        if check and self.check_host_keys:
            self._check_host_key(target)
        return node

    @staticmethod
    def _unreachable(target: NodeTarget) -> Unreachable:
        return Unreachable(f"{target.name} does not answer.", node=target.name)

    def _check_host_key(self, target: NodeTarget) -> None:
        for endpoint, is_jump in ((target.jump, True), (target.endpoint, False)):
            if endpoint is None:
                continue
            offered = self.host_key_of(endpoint.address)
            if offered.public in endpoint.host_keys:
                continue
            kind = HostKeyChanged if endpoint.host_keys else HostKeyUnknown
            accepted = [host_key(text) for text in endpoint.host_keys]
            raise kind(
                f"{endpoint.address}:{endpoint.port} shows the host key {offered.fingerprint} ({offered.type}).",
                node=target.name,
                detail={
                    "address": f"{endpoint.address}:{endpoint.port}",
                    "jump": is_jump,
                    "accepted": [{"type": key.type, "fingerprint": key.fingerprint} for key in accepted],
                    "offered": {"type": offered.type, "fingerprint": offered.fingerprint},
                    "offered_key": offered.public,
                },
            )
