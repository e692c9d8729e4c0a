"""A machine with NVIDIA GPUs, as far as its driver's tool and an NVML can be made up on one without."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .client import Client

TESTS = Path(__file__).parents[2]
GOLDEN = TESTS / "golden" / "gpu"
PYNVML = (TESTS / "fakes" / "fake_pynvml.py").read_text()
IDENTITY = ("uuid", "index", "name", "bus_id", "memory_total", "parent", "mig", "unified")


def machine(name: str) -> dict[str, Any]:
    """What NVML answers on a machine; `{"calls", "handles"}`, see the fake."""
    return json.loads((GOLDEN / "nvml" / f"{name}.json").read_text())


def without_figures(device: dict[str, Any]) -> bool:
    return all(value is None for name, value in device.items() if name not in (*IDENTITY, "lost"))


class Driver:
    """The made-up driver: NVML's answers in a file, nvidia-smi as a script."""

    def __init__(self, folder: Path, connect: Callable[..., Client]) -> None:
        self.folder = folder
        self._connect = connect
        self._answers = folder / "nvml.json"
        self.tool("echo 'No devices were found'; exit 6")

    def tool(self, script: str) -> None:
        self._put("nvidia-smi", f"#!/bin/sh\n{script}\n")

    def answers(self, said: dict[str, Any]) -> None:
        self._put("nvml.json", json.dumps(said))

    def _put(self, name: str, text: str) -> None:
        # At once: it may be read or run at any moment.
        (self.folder / "new").write_text(text)
        (self.folder / "new").chmod(0o755)
        (self.folder / "new").replace(self.folder / name)

    def client(self, pynvml: str | None = PYNVML, **options: Any) -> Client:
        path = f"{self.folder}:{os.environ['PATH']}"
        client = self._connect(env={"PATH": path, "FAKE_NVML": str(self._answers)}, **options)
        assert client.hello["wants"] == ["pynvml"]
        if pynvml is not None:
            assert client.call("provide", modules={"pynvml": pynvml}) == {"kept": ["pynvml"]}
        return client


def readings(client: Client) -> Iterator[dict[str, Any]]:
    """The GPU part of report after report, from the first on that was read."""
    for report in client.events(interval_s=0.2, gpu=True, host=False):
        if report["gpu"]["at"] is not None:
            yield report["gpu"]


def reading(client: Client, problem: str | None = None) -> dict[str, Any]:
    """The first one with that problem."""
    return next(gpu for gpu in readings(client) if gpu["problem"] == problem)
