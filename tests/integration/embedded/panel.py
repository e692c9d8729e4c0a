"""A whole embedded panel in a folder of its own, as `make run` starts it, looked at from outside."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from controlplane.embedded.places import Places

BASE = Path(__file__).resolve().parents[3]
ARGV = [sys.executable, "-m", "controlplane.embedded"]
DEADLINE_S = 90
OURS = ("VAR_DIR", "SECRET_KEY", "FIELD_KEYS", "DATABASE_URL", "BROKER_URL", "PROCESS", "DJANGO_SETTINGS_MODULE")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def eventually(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


class Panel:
    """`var` is its VAR_DIR; `settings` are further variables of its environment."""

    def __init__(self, var: Path, **settings: str) -> None:
        self.var, self.port = var, free_port()
        self.places = Places(var, os.getuid())
        self.settings = {"VAR_DIR": str(var), "PORT": str(self.port), "LAUNCHER": "stub", **settings}
        self.process: subprocess.Popen[str] | None = None
        self.output = ""

    def run(self) -> subprocess.CompletedProcess[str]:
        """To its end, for starts that are to be refused."""
        run = {"env": self._environment(), "cwd": BASE, "timeout": DEADLINE_S}
        return subprocess.run(ARGV, capture_output=True, text=True, check=False, **run)

    def start(self) -> Panel:
        """Returns when it says that it is ready; what it printed so far is in `output`."""
        log = self.var.with_name(f"{self.var.name}.out")
        with log.open("w") as file:
            run = {"env": self._environment(), "cwd": BASE, "start_new_session": True}
            self.process = subprocess.Popen(ARGV, stdout=file, stderr=file, text=True, **run)
        eventually("ready", lambda: "is ready" in log.read_text() or self.process.poll() is not None)
        self.output = log.read_text()
        assert self.process.poll() is None, self.output
        return self

    def interrupt(self) -> int:
        """Ctrl-C: the terminal signals the whole foreground group. Returns the exit code."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """For teardown: whatever the test left."""
        if self.process is not None and self.process.poll() is None:
            self.interrupt()

    def is_ready(self) -> bool:
        url = f"http://127.0.0.1:{self.port}/readyz"
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
        return False

    def pid_of(self, part: str) -> int | None:
        """The pid of a part or a server; a server's is that of its first process."""
        assert self.process is not None
        for pid in self.processes():
            with suppress(OSError):
                if _parent(pid) == self.process.pid and part in _name(pid):
                    return pid
        return None

    def processes(self) -> list[int]:
        """All that has to do with this panel: by its environment, its command line, or its working folder."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._owns(entry)]

    def _owns(self, entry: Path) -> bool:
        mark = str(self.var).encode()
        with suppress(OSError):
            if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
            texts = ((entry / name).read_bytes() for name in ("environ", "cmdline"))
            return any(mark in text for text in texts) or mark in os.fsencode(os.readlink(entry / "cwd"))
        return False

    def _environment(self) -> dict[str, str]:
        return {**{name: text for name, text in os.environ.items() if name not in OURS}, **self.settings}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _name(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    programs = {b"controlplane.web": "web", b"worker": "worker", b"beat": "beat", b"observe": "observer"}
    named = [name for word, name in programs.items() if word in words]
    return named[0] if named else os.path.basename(os.readlink(f"/proc/{pid}/exe"))
