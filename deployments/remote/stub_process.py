"""A process on a simulated machine, and what the machine answers about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from .launcher import StartRequest
from .stub_facts import GIB

ENDED_STAY_S = 60.0
LOG_TAIL_BYTES = 16 * 1024


@dataclass(slots=True)
class StubProcess:
    """A process on a stub node.

    Attributes:
        ready_after: Reports that show it still starting; for a job, looks until it ends with code 0. None = never.
        health: HTTP status of its health route; None = nobody listens yet.
        exit: `{"code", "signal", "at"}` once ended.
        lost: It went down with its machine, and nobody saw an exit.
        proof: What the last stop said, once it was proven.
    """

    request: StartRequest
    pid: int
    start_time: int
    started_at: float
    ready_after: int | None
    health: int | None = None
    completed_at: float | None = None
    exit: dict[str, Any] | None = None
    lost: bool = False
    proof: dict[str, Any] | None = None
    stopped_at: float | None = None
    looks: int = 0
    log: bytearray = field(default_factory=bytearray)

    @property
    def alive(self) -> bool:
        return self.exit is None and not self.lost

    @property
    def is_job(self) -> bool:
        return bool(self.request.steps or self.request.builtin)

    def say(self, text: str) -> None:
        """Adds a line to its log."""
        self.log += text.encode() + b"\n"

    def end(self, at: float, code: int | None = 0, signal: int | None = None) -> None:
        if self.alive:
            self.exit = {"code": code, "signal": signal, "at": at}
            self.health = None

    def members(self) -> list[dict[str, Any]]:
        name = PurePosixPath(self.request.argv[0]).name if self.request.argv else self.request.role
        return [{"pid": self.pid, "start_time": self.start_time, "name": name, "rss": GIB}] if self.alive else []

    def tail(self, limit: int) -> str:
        return bytes(self.log[-limit:]).decode("utf-8", "replace")
