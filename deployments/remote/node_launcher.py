"""The launcher for real nodes: SSH where the target has an endpoint, this machine where it has none."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from deployments.domain.errors import InvalidInput

from . import provisions, wire
from .connections import Connections, Opener
from .frames import MAX_REPORT_BYTES
from .launcher import LogChunk, NodeTarget, ScanResult, Started, StartRequest, StopProof, StopRequest

# Seconds a node has for its answer; verbs that wait by order get that time on top.
PROBE_S = 20.0
REPORT_S = 10.0
START_S = 30.0
COLLECT_S = 20.0
LOGS_S = 10.0
READ_MODEL_S = 30.0
FORGET_S = 20.0
PROVE_S = 20.0
# A report that is this many intervals late, and at least this many seconds, means that the stream is dead.
LATE_INTERVALS = 5
LATE_AT_LEAST_S = 15.0
# Events of an engine's answer that may wait for a slow reader before its node has to wait too, and bytes of one.
CONVERSE_DEPTH = 64
CONVERSE_BYTES = 2 * 1024 * 1024

_openers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Opener] = weakref.WeakKeyDictionary()


class NodeLauncher:
    """`Launcher` for real nodes. Safe to call from many threads."""

    def __init__(self) -> None:
        self._connections = Connections()

    def scan(self, target: NodeTarget) -> ScanResult:
        if target.endpoint is None:
            raise InvalidInput("This machine is not reached by SSH, so it has no host key.", node=target.name)
        return self._connections.scan(target)

    def probe(self, target: NodeTarget, environment: str | None, paths: tuple[str, ...] = ()) -> dict[str, Any]:
        args = {"environment": environment, "paths": list(paths)}
        return wire.check_answer(target.name, "probe", self._ask(target, "probe", args, PROBE_S), wire.Facts)

    def report(self, target: NodeTarget) -> dict[str, Any]:
        return wire.check_report(target.name, self._ask(target, "report", {}, REPORT_S))

    async def watch(
        self,
        target: NodeTarget,
        interval_s: float = 1.0,
        *,
        metrics: tuple[str, ...] = (),
        gpu: bool = False,
        host: bool = True,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Reports over a connection of its own, on the caller's event loop; closing the iterator ends it.

        Raises:
            RemoteError: The connection could not be opened, or ended, or fell silent, or what came is no report.
        """
        args = {"interval_s": interval_s, "metrics": list(metrics), "gpu": gpu, "host": host}
        channel = await _opener().open(target, MAX_REPORT_BYTES)
        try:
            if gpu:
                await provisions.provide(channel)
            silence_s = max(LATE_AT_LEAST_S, LATE_INTERVALS * interval_s)
            async for report in channel.stream("watch", args, silence_s=silence_s):
                yield wire.check_report(target.name, report)
        finally:
            await channel.close()

    async def converse(
        self, target: NodeTarget, process: str, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """An engine's answer over a connection of its own: ending that ends the helper, and with it the request.

        Raises:
            RemoteError: As `watch`; HelperFailed as the protocol says.
        """
        channel = await _opener().open(target, CONVERSE_BYTES)
        try:
            args = {"process": process, "path": path, "body": dict(body)}
            async with aclosing(channel.stream("converse", args, depth=CONVERSE_DEPTH, lossless=True)) as events:
                async for event in events:
                    yield event
        finally:
            await channel.close()

    def start(self, target: NodeTarget, request: StartRequest) -> Started:
        answer = self._ask(target, "start", start_args(request), START_S)
        return wire.read_answer(target.name, "start", answer, Started)

    def stop(self, target: NodeTarget, request: StopRequest) -> StopProof:
        answer = self._ask(target, "stop", asdict(request), request.grace_s + request.kill_s + PROVE_S)
        said = wire.read_answer(target.name, "stop", answer, wire.Stopped)
        evidence = {name: value for name, value in answer.items() if name not in ("proven", "known")}
        return StopProof(said.proven, said.known, evidence)

    def collect(self, target: NodeTarget, process: str) -> dict[str, Any]:
        answer = self._ask(target, "collect", {"process": process}, COLLECT_S)
        return wire.check_answer(target.name, "collect", answer, dict[str, Any])

    def logs(self, target: NodeTarget, process: str, offset: int, limit: int = 65536, wait_s: float = 0.0) -> LogChunk:
        args = {"process": process, "offset": offset, "limit": limit, "wait_s": wait_s}
        answer = self._ask(target, "logs", args, wait_s + LOGS_S)
        return wire.read_answer(target.name, "logs", answer, LogChunk)

    def read_model(self, target: NodeTarget, path: str) -> dict[str, Any]:
        answer = self._ask(target, "read_model", {"path": path}, READ_MODEL_S)
        return wire.check_answer(target.name, "read_model", answer, wire.ModelFolder)

    def forget(self, target: NodeTarget, process: str) -> None:
        self._ask(target, "forget", {"process": process}, FORGET_S)

    def close(self) -> None:
        self._connections.close()

    def _ask(self, target: NodeTarget, verb: str, args: dict[str, Any], timeout: float) -> Any:
        return self._connections.call(target, verb, args, timeout)


def start_args(request: StartRequest) -> dict[str, Any]:
    """A start request as it goes over the wire."""
    return {
        "process": request.process,
        "replica": request.replica,
        "attempt": request.attempt,
        "role": request.role,
        "argv": list(request.argv),
        "env": dict(request.env),
        "secrets": dict(request.secrets),
        "cwd": request.cwd,
        "probe": None if request.probe is None else dict(request.probe),
        "ports": list(request.ports),
        "accelerators": list(request.accelerators),
        "log_cap_bytes": request.log_cap_bytes,
        "steps": [list(step) for step in request.steps],
        "builtin": None if request.builtin is None else dict(request.builtin),
    }


def _opener() -> Opener:
    """The opener of the running loop, so that nodes behind one jump host share it."""
    return _openers.setdefault(asyncio.get_running_loop(), Opener())
