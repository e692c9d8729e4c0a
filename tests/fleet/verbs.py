"""What a simulated node answers: the helper's verbs on a `StubNode`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import fields
from typing import Any

from deployments.domain.errors import PilothouseError
from deployments.remote.launcher import HelperFailed, StartRequest
from deployments.remote.stub_chat import StubChat
from deployments.remote.stub_node import StubNode

SHORTEST_S = 0.1
_REQUEST = {field.name for field in fields(StartRequest)}
Event = Callable[[dict[str, Any]], None]


class Machine:
    """One simulated node and the streams that watch it.

    Attributes:
        node: What it is and what runs there.
        chat: What its engines say when they are talked to.
    """

    def __init__(self, node: StubNode) -> None:
        self.node = node
        self.chat = StubChat()
        self._watchers: set[asyncio.Event] = set()

    def ring(self) -> None:
        """Let every watch report at once, as after an exit."""
        for watcher in self._watchers:
            watcher.set()

    async def answer(self, verb: str, args: dict[str, Any], event: Event) -> Any:
        """The result of a verb; `event` sends what comes before it.

        Raises:
            HelperFailed: It is refused.
        """
        if verb == "watch":
            return await self._watch(args, event)
        self.node.raise_failure(verb)
        if verb == "converse":
            return await self._converse(args, event)
        if verb == "logs":
            return await self._logs(**args)
        work = _VERBS.get(verb)
        if work is None:
            raise HelperFailed(f"This node knows no verb {verb!r}.", code="UNKNOWN_VERB")
        result = work(self.node, args)
        if verb == "stop":
            self.ring()
        return result

    async def _watch(self, args: dict[str, Any], event: Event) -> Any:
        interval = max(SHORTEST_S, float(args.get("interval_s") or 1.0))
        wanted = (tuple(args.get("metrics") or ()), bool(args.get("gpu")), bool(args.get("host", True)))
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        self._watchers.add(changed)
        due: asyncio.TimerHandle | None = None
        try:
            while True:
                changed.clear()
                due = loop.call_later(interval, changed.set)
                event(self.node.report(*wanted))
                await changed.wait()
                due.cancel()
        finally:
            self._watchers.discard(changed)
            if due is not None:
                due.cancel()

    async def _converse(self, args: dict[str, Any], event: Event) -> Any:
        process = self.node.processes.get(args["process"])
        if process is None or not process.alive:
            code = "UNKNOWN_PROCESS" if process is None else "NOT_RUNNING"
            raise HelperFailed(f"Process {args['process']} does not run.", code=code)
        async with aclosing(self.chat.answer(args["path"], args["body"])) as events:
            async for each in events:
                event(each)
        return {"bytes": 0, "cancelled": False}

    async def _logs(self, process: str, offset: int, limit: int = 65536, wait_s: float = 0.0) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not (chunk := self.node.logs(process, offset, limit))["data"] and loop.time() < deadline:
            await asyncio.sleep(0.1)
        return chunk


def hello(node: StubNode) -> dict[str, Any]:
    facts = node.facts
    return {
        "schema": 1,
        "python": facts["python"]["version"],
        "executable": facts["python"]["executable"],
        "pid": 2000,
        **{name: facts[name] for name in ("uid", "user", "hostname", "boot_id", "machine_id", "state_dir")},
        "noise_note": None,
        "wants": ["pynvml"] if facts["nvidia_smi"]["found"] else [],
    }


def error_of(failure: Exception) -> dict[str, Any]:
    """A failure as it goes over the wire."""
    if isinstance(failure, PilothouseError):
        names = ("code", "message", "remedy", "detail")
        return {name: getattr(failure, name) for name in names}
    return {"code": "INTERNAL", "message": f"{type(failure).__name__}: {failure}", "remedy": "", "detail": {}}


def _start(node: StubNode, args: dict[str, Any]) -> Any:
    known = {name: value for name, value in args.items() if name in _REQUEST}
    for name in ("argv", "ports", "accelerators"):
        known[name] = tuple(known.get(name) or ())
    known["steps"] = tuple(tuple(step) for step in known.get("steps") or ())
    return node.start(StartRequest(**known))


def _forget(node: StubNode, args: dict[str, Any]) -> Any:
    node.forget(args["process"])
    return {}


_VERBS: dict[str, Callable[[StubNode, dict[str, Any]], Any]] = {
    "hello": lambda node, args: hello(node),
    "provide": lambda node, args: {},
    "probe": lambda node, args: node.probe(args.get("environment"), args.get("paths") or ()),
    "report": lambda node, args: node.report(args.get("metrics") or (), bool(args.get("gpu"))),
    "start": _start,
    "stop": lambda node, args: node.stop(args["process"]),
    "collect": lambda node, args: node.collect(args["process"]),
    "read_model": lambda node, args: node.read_model(args["path"]),
    "forget": _forget,
}
