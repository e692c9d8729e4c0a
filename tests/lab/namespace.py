"""A running host's namespaces and the pipe to its PID 1."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.lab import needs

INIT = Path(__file__).with_name("init.py")
ANSWER_S = 30.0


class LabError(RuntimeError):
    """A part of the lab did not do what it was told; the text says which part and what it said."""


class Namespace:
    """Net, mount, pid, uts and ipc namespaces with `init.py` as PID 1.

    They end when `kill` is called or when this process ends in any way: PID 1 reads a pipe that only we hold open.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        argv = [needs.find("unshare"), "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        self._outer = subprocess.Popen(
            [*argv, needs.HOST_PYTHON, "-I", "-S", str(INIT)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": needs.SEARCH_PATH, "LANG": "C.UTF-8"},
            start_new_session=True,  # a Ctrl-C in the terminal is for the owner, which then ends us in order
        )
        self._unread = b""
        self._init_pid: int | None = None

    @property
    def outer_pid(self) -> int:
        return self._outer.pid

    @property
    def pid(self) -> int:
        """PID 1 of the host as the machine numbers it."""
        if self._init_pid is None:
            self._init_pid = _only_child(self._outer.pid)
        return self._init_pid

    def wait_for(self, answer: str) -> None:
        """Read one answer of PID 1. Raises LabError when it is an error, another one, or none comes."""
        got = self._read(time.monotonic() + ANSWER_S)
        if got.get("done") != answer:
            raise LabError(f"{self.folder}: waited for {answer!r}, got {got}")

    def tell(self, verb: str, **arguments: Any) -> None:
        """Send a command without waiting; `wait_for(verb)` takes its answer."""
        assert self._outer.stdin is not None
        try:
            self._outer.stdin.write(json.dumps({"do": verb, **arguments}).encode() + b"\n")
            self._outer.stdin.flush()
        except BrokenPipeError:
            raise LabError(f"{self.folder}: PID 1 ended") from None

    def ask(self, verb: str, **arguments: Any) -> None:
        self.tell(verb, **arguments)
        self.wait_for(verb)

    def _read(self, deadline: float) -> dict[str, Any]:
        assert self._outer.stdout is not None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._outer.stdout], [], [], max(0.0, deadline - time.monotonic()))
            block = os.read(self._outer.stdout.fileno(), 65536) if ready else b""
            if not block:
                raise LabError(f"{self.folder}: PID 1 {'ended' if ready else 'is silent'}")
            self._unread += block
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def enter(self, *argv: str) -> list[str]:
        """The command that runs `argv` inside, as root, without SSH."""
        return [needs.find("nsenter"), "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "--", *argv]

    @property
    def running(self) -> bool:
        return self._outer.poll() is None

    def kill(self) -> None:
        """End the host like a pulled plug: SIGKILL for all inside, and wait until the kernel has done it."""
        if self.running:
            watch = self._watch_init()
            self._outer.kill()
            self._outer.wait()
            if watch is not None:
                select.select([watch], [], [], ANSWER_S)
                os.close(watch)
        for stream in (self._outer.stdin, self._outer.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _watch_init(self) -> int | None:
        """A descriptor that turns readable when PID 1, and with it everything inside, is gone."""
        try:
            return os.pidfd_open(self.pid)
        except (OSError, LabError):
            return None


def _only_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = children.read_text().split() if children.exists() else _children_by_search(pid)
    if not found:
        raise LabError(f"process {pid} has no child")
    return int(found[0])


def _children_by_search(pid: int) -> list[str]:
    """For kernels without the children file."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(stat.parent.name)
    return found
