"""`make run` until /readyz says 200: cold (empty VAR_DIR: initdb, migrations, keys, first admin), warm (the second
start in the same folder), and once, where asked for, from a fresh clone that has no .venv yet."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import BASE, Options, Summary, machine, table
from tests.lab.panel import FOREIGN, free_port

DEADLINE_S, CLONE_DEADLINE_S = 120.0, 900.0


def run(options: Options) -> dict[str, Any]:
    values: dict[str, list[float]] = {"cold": [], "warm": []}
    for repetition in range(options.reps + 1):
        with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as folder:
            for name, found in values.items():
                took = _ready(BASE, Path(folder) / "var")
                print(f"{name}: {took:.2f}", file=sys.stderr, flush=True)
                if repetition:
                    found.append(took)
    if options.fresh_clone:
        values["fresh clone"] = [_fresh_clone()]
    summary = {name: Summary.of(found) for name, found in values.items()}
    rows = [[name, found.text(2), found.count] for name, found in summary.items()]
    print(table(["make run to /readyz, s: median (low-high)", "seconds", "runs"], rows))
    return {"unit": "s", "load_after": machine()["load"], "values": values, "summary": summary}


def _fresh_clone() -> float:
    """The committed state in a new folder: .venv, packages (from pip's own cache if it has them), first start."""
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", BASE, clone], check=True)
        try:
            return _ready(clone, clone / "var", CLONE_DEADLINE_S)
        finally:
            # Its servers ran as other users: what they made goes with them.
            shutil.rmtree(clone, ignore_errors=True)


def _ready(checkout: Path, var: Path, deadline_s: float = DEADLINE_S) -> float:
    """Seconds from the command to the first 200; the panel is stopped afterwards."""
    port = free_port()
    began = time.monotonic()
    with _make_run(checkout, var, port) as process:
        while not _answers(port):
            if process.poll() is not None or time.monotonic() - began > deadline_s:
                raise RuntimeError(
                    f"make run did not get ready; it said: {(var.parent / 'output').read_text()[-3000:]}"
                )
            time.sleep(0.02)
        return time.monotonic() - began


@contextlib.contextmanager
def _make_run(checkout: Path, var: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    env |= {"VAR_DIR": str(var), "PORT": str(port)}
    with (var.parent / "output").open("wb") as output:
        process = subprocess.Popen(
            ["make", "run"], cwd=checkout, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(DEADLINE_S)


def _answers(port: int) -> bool:
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer,
    ):
        return answer.status == 200
    return False
