"""Keeps servers and parts running until it is told to stop, then stops them in order.

One thread and no polling: it sleeps until a child ends, a signal comes, or a restart is due.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controlplane.embedded import children, servers
from controlplane.embedded.children import Program
from controlplane.embedded.errors import CannotStart
from controlplane.embedded.servers import Child, Server

ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
FIRST_DELAY_S, LONGEST_DELAY_S, STEADY_S = 0.2, 30.0, 60.0
log = logging.getLogger("pilothouse")


class Stopped(Exception):
    """The operator asked to stop."""


class PartFailed(CannotStart):
    """A program that has to succeed before the panel can run did not; it has said why."""

    exit_code = 2


@dataclass(slots=True)
class Kept:
    """One program that is to run for ever; `start` gives the running child."""

    program: Program
    start: Callable[[], Child]
    child: Child | None = None
    started_at: float = 0.0
    failures: int = 0
    due_at: float = 0.0


class Supervisor:
    """`block_signals` first; then servers, programs that run once, parts; `supervise`; `stop` in every case."""

    def __init__(self) -> None:
        self.servers: list[Kept] = []
        self.parts: list[Kept] = []

    @staticmethod
    def block_signals() -> None:
        """From here on a signal waits until `pause` or `supervise` takes it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *ENDING})

    def start_server(self, server: Server) -> None:
        """Returns when it serves; a failure now is the operator's to mend, later ones are tried again."""

        def start() -> Child:
            server.prepare()
            return servers.start(server, self.pause)

        self._begin(Kept(server.program, start), self.servers)

    def start_part(self, program: Program) -> None:
        self._begin(Kept(program, lambda: children.start(program)), self.parts)

    def run_once(self, program: Program) -> None:
        child = children.start(program)
        try:
            while child.poll() is None:
                self.pause(0.02)
        finally:
            child.kill()
            child.wait()
        if child.returncode:
            raise PartFailed(f"{program.name} failed with exit code {child.returncode}.", "See the lines above.")

    def pause(self, seconds: float) -> None:
        """Sleep; raises `Stopped` when the operator asks to stop meanwhile."""
        if signal.sigtimedwait(ENDING, seconds) is not None:
            raise Stopped

    def supervise(self, until: Callable[[], bool] = lambda: False, tick_s: float | None = None) -> None:
        """Restart what ends. Returns when `until` says so (asked every `tick_s`); `Stopped` when told to stop."""
        while not until():
            self._restart_what_ended()
            if self._wait(tick_s) in ENDING:
                raise Stopped

    def stop(self) -> None:
        """Parts all together, then the servers in the reverse order of their start."""
        running = [(kept.child, kept.program) for kept in self.parts if kept.child is not None]
        for child, program in running:
            children.ask(child, program)
        for child, program in running:
            children.await_end(child, program)
        for kept in reversed(self.servers):
            if kept.child is not None:
                children.stop(kept.child, kept.program)
        self.parts, self.servers = [], []

    def _begin(self, kept: Kept, among: list[Kept]) -> None:
        kept.child, kept.started_at = kept.start(), time.monotonic()
        among.append(kept)

    def _wait(self, tick_s: float | None) -> int | None:
        """The signal that came, or None when a restart or the next tick is due."""
        due = [kept.due_at - time.monotonic() for kept in self._all() if kept.child is None]
        limits = [*due, *([tick_s] if tick_s is not None else [])]
        awaited = {signal.SIGCHLD, *ENDING}
        if not limits:
            return signal.sigwaitinfo(awaited).si_signo
        came = signal.sigtimedwait(awaited, max(0.0, min(limits)))
        return came.si_signo if came else None

    def _restart_what_ended(self) -> None:
        for kept in self._all():
            if kept.child is not None and kept.child.poll() is not None:
                self._note_end(kept, _how(kept.child.returncode))
            if kept.child is None and kept.due_at <= time.monotonic():
                self._start_again(kept)

    def _start_again(self, kept: Kept) -> None:
        try:
            kept.started_at = time.monotonic()
            kept.child = kept.start()
        except (CannotStart, OSError) as error:
            self._note_end(kept, str(error))

    def _note_end(self, kept: Kept, how: str) -> None:
        now = time.monotonic()
        kept.failures = 0 if now - kept.started_at > STEADY_S else kept.failures + 1
        delay = min(FIRST_DELAY_S * 2 ** max(0, kept.failures - 1), LONGEST_DELAY_S)
        kept.child, kept.due_at = None, now + delay
        log.warning("%s ended (%s); it starts again in %.1f s", kept.program.name, how, delay)

    def _all(self) -> Iterable[Kept]:
        return (*self.servers, *self.parts)


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
