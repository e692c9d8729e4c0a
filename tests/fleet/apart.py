"""The simulated fleet as a process of its own, so that its CPU is not the caller's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fleet.server import names

BASE = Path(__file__).resolve().parents[2]


class FleetApart:
    """`python -m tests.fleet --control` as a child that ends with us, however we end.

    Attributes:
        told: What it says of itself: port, host_key, private_key, nodes, gpus.
    """

    def __init__(self, nodes: int, gpus: int = 8) -> None:
        self._argv = [sys.executable, "-m", "tests.fleet", "--control", "--nodes", str(nodes), "--gpus", str(gpus)]
        self.told: dict[str, Any] = {}

    def __enter__(self) -> FleetApart:
        environment = {**os.environ, "PYTHONPATH": str(BASE)}
        self._child = subprocess.Popen(
            self._argv, cwd=BASE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.told = self._hear()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    @property
    def pid(self) -> int:
        return self._child.pid

    def make_busy(self) -> None:
        """An engine on every node."""
        for name in names(self.told["nodes"]):
            self.tell(name, "engine", process=f"busy-{name}")

    def tell(self, node: str, do: str, **args: Any) -> dict[str, Any]:
        """One command (see `tests.fleet.__main__.Control`); its answer. Raises RuntimeError when it is refused."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"node": node, "do": do, **args}) + "\n")
        self._child.stdin.flush()
        answer = self._hear()
        if not answer.pop("ok"):
            raise RuntimeError(answer["error"])
        return answer

    def _hear(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the simulated fleet ended with {self._child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
