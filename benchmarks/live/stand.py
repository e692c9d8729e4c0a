"""A panel in pieces: the embedded servers in a folder of their own, and the parts that a measurement asks for.

Unlike the whole panel it lets a part be left out, so that a part's CPU and what it meets are known.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report import BASE
from controlplane.embedded import children, keys, servers
from controlplane.embedded.children import Program
from controlplane.embedded.parts import parts
from controlplane.embedded.places import Places
from tests.lab.panel import FOREIGN, until

Child = subprocess.Popen[bytes]
START_S = 60.0
# Parts beside the servers, in the order in which they are started.
ALL = ("web", "worker", "beat", "observer")


class Stand:
    """PostgreSQL, Valkey and a prepared database; `start` adds parts. Everything ends with it, or with this process.

    Attributes:
        url: Where the web part serves, once started.
    """

    def __init__(self) -> None:
        self._var = Path(tempfile.mkdtemp(prefix="pilothouse-bench-"))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._servers: list[tuple[Child, Program]] = []
        self._parts: dict[str, tuple[Child, Program]] = {}

    def __enter__(self) -> Stand:
        try:
            self._environment = self._secrets()
            for server in servers.find(Places(self._var, os.getuid()), only=("postgres", "valkey")):
                self._servers.append((servers.start(server), server.program))
            self._run("manage.py", "prepare", "--no-local-node")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for name in list(self._parts):
            self.stop(name)
        for child, program in reversed(self._servers):
            children.stop(child, program)
        self._listening.close()
        shutil.rmtree(self._var, ignore_errors=True)

    def _secrets(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        for name in FOREIGN:
            os.environ.pop(name, None)
        made = {"SECRET_KEY": keys.secret_key(), "FIELD_KEYS": keys.field_key(), "VAR_DIR": str(self._var)}
        return {**own, **made, "PYTHONPATH": str(BASE), "LOG_LEVEL": "WARNING"}

    def start(self, *names: str) -> None:
        """Start parts (of ALL); returns when the web part, if among them, answers."""
        programs = {program.name: program for program in parts(self._listening.fileno())}
        for name in names:
            program = programs[name]
            log = self._var / f"{name}.log"
            program = replace(program, env={**self._environment, **program.env}, log=log)
            self._parts[name] = (children.start(program), program)
        if "web" in names:
            until(self._serves, START_S, lambda: f"the web part does not serve: {self.log('web')}")

    def stop(self, name: str) -> None:
        children.stop(*self._parts.pop(name))

    def pid(self, name: str) -> int:
        """Of a part, or of a server (postgres, valkey)."""
        if name in self._parts:
            return self._parts[name][0].pid
        return next(child.pid for child, program in self._servers if program.name == name)

    def check(self) -> None:
        """Raises RuntimeError when a part has ended by itself."""
        for name, (child, _) in self._parts.items():
            if child.poll() is not None:
                raise RuntimeError(f"{name} ended: {self.log(name)}")

    def log(self, name: str) -> str:
        """The end of what a part has printed."""
        with suppress(OSError):
            return (self._var / f"{name}.log").read_text(errors="replace")[-3000:]
        return ""

    def inside(self, verb: str, data: Any = None) -> Any:
        """What a function of `benchmarks.live.inside` returns for `data`, in a process that has this database."""
        return json.loads(self._run("-m", "benchmarks.live.inside", verb, said=json.dumps(data)))

    def begin_inside(self, verb: str, data: Any = None) -> subprocess.Popen[str]:
        """The same, not waited for: its answer is what it prints."""
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.live.inside", verb],
            cwd=BASE,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None
        child.stdin.write(json.dumps(data))
        child.stdin.close()
        return child

    def _run(self, *words: str, said: str = "") -> str:
        argv = [sys.executable, *words]
        run: dict[str, Any] = {"cwd": BASE, "env": self._environment, "input": said, "text": True, "timeout": 180}
        done = subprocess.run(argv, capture_output=True, check=False, **run)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[-3000:]}")
        return done.stdout

    def _serves(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
        return False
