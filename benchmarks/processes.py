"""CPU and memory of processes and their descendants, as /proc tells them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """A process and all its descendants that live now."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(_fields(stat)[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], ())
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that these processes and those they have waited for have used."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(int(word) for word in _fields(Path(f"/proc/{pid}/stat"))[11:15])
    return ticks * TICK_S


def pss_mib(pids: Iterable[int]) -> float:
    """Memory with shared pages counted by share."""
    kib = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            kib += next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return kib / 1024


def words(pid: int) -> str:
    """The command line; empty for a process that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _fields(stat: Path) -> list[str]:
    """The words of a stat file after the name: state, parent, ..."""
    return stat.read_text().rpartition(")")[2].split()


def rss_mib(pid: int) -> float:
    """Resident memory of one process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) / 1024, 1)
