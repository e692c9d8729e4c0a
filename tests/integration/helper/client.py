"""A small, blocking client of the helper: the real boot line, bundle and frames through a real /bin/sh."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deployments.remote import bundle

DEADLINE_S = 30.0


class Refused(Exception):
    """The helper's typed error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]
        self.message = error["message"]
        self.detail = error["detail"]


class BootFailed(Exception):
    """No PHBOOT came; `said` is all of stdout."""

    def __init__(self, said: bytes) -> None:
        super().__init__(said.decode("utf-8", "replace"))
        self.said = said


class Client:
    """One connection to a helper on this machine."""

    def __init__(
        self,
        root: Path | None,
        installation: str = "one",
        interpreter: str | None = None,
        command: Sequence[str] = ("/bin/sh",),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.installation = installation
        self.nonce = os.urandom(16).hex()
        found = {**os.environ, **({"PILOTHOUSE_STATE_ROOT": str(root)} if root else {}), **(env or {})}
        pipe = subprocess.PIPE
        self.shell = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=found)
        assert self.shell.stdin
        assert self.shell.stdout
        assert self.shell.stderr
        self._in, self._out, self._err = self.shell.stdin, self.shell.stdout, self.shell.stderr
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._number = 0
        self._lock = threading.Lock()
        self.noise = self._boot(interpreter)
        threading.Thread(target=self._read, daemon=True).start()
        self.hello = self.call("hello", installation=installation, schema=1)

    def _boot(self, interpreter: str | None) -> bytes:
        self.write(bundle.boot_line(self.nonce, interpreter).encode())
        noise = b""
        while f"PHBOOT {self.nonce} ".encode() not in noise:
            line = self._out.readline()
            if not line:
                self.close()
                raise BootFailed(noise)
            noise += line
        said = re.search(rb"PHBOOT [0-9a-f]{32} ([^\n]+)\n\Z", noise)
        assert said
        self.write(bundle.bundle(said[1].decode()))
        return noise

    def write(self, data: bytes) -> None:
        self._in.write(data)
        self._in.flush()

    def frame(self, payload: bytes) -> bytes:
        return b"PHF1 %s %08x\n%s\n" % (self.nonce.encode(), len(payload), payload)

    def _read(self) -> None:
        header = b"PHF1 " + self.nonce.encode() + b" "
        while line := self._out.readline():
            assert line.startswith(header), line
            length = int(line[len(header) :], 16)
            message = json.loads(self._out.read(length + 1))
            self._answers[message["id"]].put(message)
        for waiting in self._answers.values():
            waiting.put({"end": True})

    def send(self, verb: str, **args: Any) -> int:
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = queue.Queue()
            self.write(self.frame(json.dumps({"id": number, "verb": verb, "args": args}).encode()))
        return number

    def next(self, number: int) -> dict[str, Any]:
        message = self._answers[number].get(timeout=DEADLINE_S)
        if "end" in message:
            raise EOFError("the helper ended")
        if message.get("ok") is False:
            raise Refused(message["error"])
        return message

    def call(self, verb: str, **args: Any) -> dict[str, Any]:
        return self.next(self.send(verb, **args))["result"]

    def start(self, process: str | None = None, **fields: Any) -> tuple[str, dict[str, Any]]:
        """Starts a process with sensible fields; returns its id and the reply."""
        process = process or str(uuid.uuid4())
        request = {"process": process, "replica": f"replica-{process}", "attempt": 1, "role": "engine", **fields}
        return process, self.call("start", **request)

    def stop(self, process: str, **fields: Any) -> dict[str, Any]:
        return self.call("stop", process=process, **{"grace_s": 5.0, "kill_s": 5.0, "signal": "TERM", **fields})

    def process(self, process: str) -> dict[str, Any]:
        return self.call("report")["processes"][process]

    def log(self, process: str) -> str:
        return self.call("logs", process=process, offset=0, limit=1 << 20)["data"]

    def events(self, **args: Any) -> Iterator[dict[str, Any]]:
        number = self.send("watch", **args)
        try:
            while "event" in (message := self.next(number)):
                yield message["event"]
        finally:
            self.send("cancel", id=number)

    def folder(self, process: str) -> Path:
        return Path(self.hello["state_dir"]) / "p" / process

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._in.close()

    def close(self) -> None:
        self.hang_up()
        self.shell.wait(DEADLINE_S)
        self._err.close()


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition, looked at often, or a failure that says what did not come."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


def running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
