"""This machine as a node, with the real helper, its state in a folder of the test, and a fake engine."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from deployments import reports
from deployments.models import LanguageModel, ModelCopy, Node
from deployments.remote import launcher, use_launcher
from deployments.remote.launcher import RemoteError, StopRequest
from deployments.remote.node_launcher import NodeLauncher
from deployments.targets import target_of

FAKE = Path(__file__).parents[1] / "fakes" / "fake_vllm.py"
DEADLINE_S = 60.0
Value = TypeVar("Value")


def wait_for(what: str, look: Callable[[], Value], deadline_s: float = DEADLINE_S) -> Value:
    """The first true value of `look`, tried often, or a failure that says what did not come."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = look()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {deadline_s:g} s: {what}")


def environment(folder: Path) -> Path:
    """A folder that looks like an engine environment: bin/vllm is the fake engine."""
    packages = folder / "lib" / "python3.11" / "site-packages" / "vllm-0.33.0.dist-info"
    packages.mkdir(parents=True)
    (packages / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    (folder / "bin").mkdir()
    program = folder / "bin" / "vllm"
    # A script may not name an interpreter behind a long path in its first line, so sh starts it.
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} "$@"\n')
    program.chmod(0o755)
    return folder


def free_ports(count: int = 10) -> int:
    """The first of `count` ports in a row on which nobody listens."""
    for _ in range(200):
        first = random.randrange(21000, 31000, count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            for port in range(first, first + count):
                sock = opened.enter_context(socket.socket())
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("127.0.0.1", port))
            return first
    raise AssertionError("no row of free ports")


def node_row(folder: Path, name: str = "here", **columns: Any) -> Node:
    """The row of this machine."""
    first = free_ports()
    values = {"environment": str(folder / "env"), "platform": "cpu", "port_first": first, "port_last": first + 9}
    return Node.objects.create(name=name, kind=Node.Kind.LOCAL, **{**values, **columns})


def probe(node: Node) -> None:
    """What the probe job does, and the model's copy."""
    target = target_of(node)
    reports.record_facts(node, launcher().probe(target, node.environment or None))
    reports.record(node, launcher().report(target))
    for row in LanguageModel.objects.all():
        ModelCopy.objects.get_or_create(model=row, node=node, defaults={"path": row.path, "present": True})


@contextlib.contextmanager
def real_launcher(folder: Path) -> Iterator[NodeLauncher]:
    """The launcher of real nodes, whose helpers keep their state below `folder`; everything is ended afterwards."""
    state = folder / "state"
    state.mkdir(mode=0o700)
    before = os.environ.get("PILOTHOUSE_STATE_ROOT")
    os.environ["PILOTHOUSE_STATE_ROOT"] = str(state)
    environment(folder / "env")
    real = NodeLauncher()
    previous = use_launcher(real)
    try:
        yield real
    finally:
        use_launcher(previous)
        _end_everything(real, state)
        real.close()
        if before is None:
            del os.environ["PILOTHOUSE_STATE_ROOT"]
        else:
            os.environ["PILOTHOUSE_STATE_ROOT"] = before
        shutil.rmtree(state, ignore_errors=True)


def _end_everything(real: NodeLauncher, state: Path) -> None:
    """Stops whatever a test left on this machine, by the helper's own stop."""
    from deployments.remote.launcher import NodeTarget

    for number, installation in enumerate({path.parent.parent.name for path in state.glob("*/*/p/*")}):
        target = NodeTarget(-1 - number, "cleanup", installation)
        for path in state.glob(f"*/{installation}/p/*"):
            with contextlib.suppress(RemoteError):
                real.stop(target, StopRequest(path.name, grace_s=0.0, kill_s=5.0))


def runs(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
