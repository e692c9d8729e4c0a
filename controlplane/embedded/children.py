"""Programs of the embedded default and their running children. Only the supervisor's main thread may start one:
the kernel sends the parent-death signal when the *thread* that started the child ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SPAWN = str(Path(__file__).with_name("spawn.py"))
LOG_KEPT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Program:
    """What to run. `death_signal` reaches it when the supervisor is killed, `stop_signal` when it stops in order.

    `log` takes both outputs; without it they go where the supervisor's go. `pass_fds` are handed down as they are.
    """

    name: str
    argv: tuple[str, ...]
    identity: str = "same"
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path("/")
    log: Path | None = None
    death_signal: signal.Signals = signal.SIGKILL
    stop_signal: signal.Signals = signal.SIGTERM
    patience_s: float = 10.0
    pass_fds: tuple[int, ...] = ()


def start(program: Program) -> subprocess.Popen[bytes]:
    """The child, in a session of its own: the terminal's Ctrl-C reaches the supervisor alone."""
    assert threading.current_thread() is threading.main_thread(), "see the module's first lines"
    output = _log_file(program.log) if program.log else None
    try:
        return subprocess.Popen(
            _wrapped(program),
            cwd=program.cwd,
            env={**_inherited(), **program.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,
            pass_fds=program.pass_fds,
        )
    finally:
        if output is not None:
            os.close(output)


def run(program: Program, text: str = "", timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its outputs come back in `stdout`."""
    return subprocess.run(
        _wrapped(program),
        cwd=program.cwd,
        env={**_inherited(), **program.env},
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        timeout=timeout_s,
        text=True,
        check=False,
    )


def stop(child: subprocess.Popen[bytes], program: Program) -> None:
    """Ask, wait `patience_s`, then kill; returns when it is gone and reaped."""
    ask(child, program)
    await_end(child, program)


def await_end(child: subprocess.Popen[bytes], program: Program) -> None:
    """The second half of `stop`, for several that were asked together."""
    try:
        child.wait(program.patience_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def ask(child: subprocess.Popen[bytes], program: Program) -> None:
    if child.poll() is None:
        child.send_signal(program.stop_signal)


def _wrapped(program: Program) -> list[str]:
    words = [str(os.getpid()), str(int(program.death_signal)), program.identity, *program.argv]
    return [sys.executable, "-I", "-S", SPAWN, *words]


def _inherited() -> dict[str, str]:
    """Ours, without what would change where libpq and PostgreSQL look."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG") or name == "PG_BIN"}


def _log_file(path: Path) -> int:
    """The open log; one that grew beyond `LOG_KEPT_BYTES` is set aside as `NAME.1` first."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_KEPT_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
