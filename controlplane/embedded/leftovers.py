"""Servers that outlived a killed supervisor: found by their working folder, which is their data folder, and ended.

A pid in a file proves nothing (after a reboot it may belong to anybody); a process that works in the data folder does.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from controlplane.embedded.errors import ServerFailed


def working_in(folder: Path) -> dict[int, int]:
    """`{pid: parent pid}` of the live processes whose working folder this is."""
    found = {}
    for entry in Path("/proc").iterdir():
        # Processes of others, and those that end while we look, cannot be asked.
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit() and os.path.samefile(entry / "cwd", folder):
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def end_those_in(folder: Path, ask: signal.Signals, patience_s: float = 15) -> None:
    """They may be going already; else ask the oldest of each family, at last kill all. Returns when none is left."""
    if not folder.is_dir() or _gone(folder, 2):
        return
    left = working_in(folder)
    _send(ask, [pid for pid, parent in left.items() if parent not in left])
    if _gone(folder, patience_s):
        return
    _send(signal.SIGKILL, list(working_in(folder)))
    if not _gone(folder, patience_s):
        raise ServerFailed(f"Processes {sorted(working_in(folder))} in {folder} do not end.", "End them, start again.")


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _gone(folder: Path, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while working_in(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
