"""The lab's one work folder: its place, its owner, and the sweeping of those whose owner is gone.

A folder's name is the third octet of the lab's network (10.77.N.0/24), so making the folder claims the network too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.lab import needs

NETWORK = "10.77"


def base() -> Path:
    """Where labs live: PILOTHOUSE_LAB_DIR, else a folder in the temporary folder."""
    given = os.environ.get("PILOTHOUSE_LAB_DIR")
    return Path(given) if given else Path(tempfile.gettempdir()) / "pilothouse-lab"


def start_time(pid: int) -> int | None:
    """The kernel's start time of a process in clock ticks since boot, None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def identity(pid: int) -> dict[str, int | None]:
    return {"pid": pid, "start_time": start_time(pid)}


def alive(who: dict[str, int]) -> bool:
    """Whether that very process still runs; a later one with the same number is another."""
    return who.get("start_time") is not None and start_time(who["pid"]) == who["start_time"]


def _lock(root: Path) -> IO[str]:
    """The open, locked lock file. The last lab takes it away, so a waiter looks whether its file still counts."""
    while True:
        root.mkdir(mode=0o711, parents=True, exist_ok=True)
        try:
            lock = open(root / ".lock", "w")  # noqa: SIM115 - the caller closes it
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(root / ".lock")):
                return lock
            lock.close()
        except FileNotFoundError:
            continue


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.geteuid():
        raise needs.LabUnavailable(f"{root} belongs to somebody else; set PILOTHOUSE_LAB_DIR to a folder of your own")
    with _lock(root):
        yield


def claim() -> tuple[Path, int]:
    """A new lab folder owned by this process, and its third octet. Raises LabUnavailable when all are taken."""
    root = base()
    with _locked(root):
        taken = _octets_in_use()
        free = [octet for octet in range(1, 255) if octet not in taken and not (root / str(octet)).exists()]
        if not free:
            raise needs.LabUnavailable(f"no free network below {NETWORK}.0.0/16; see {root}")
        octet = random.choice(free)
        folder = root / str(octet)
        folder.mkdir(mode=0o711)
        (folder / "owner.json").write_text(json.dumps(identity(os.getpid())))
    return folder, octet


def _octets_in_use() -> set[int]:
    shown = subprocess.run([needs.find("ip"), "-o", "-4", "route", "show"], capture_output=True, text=True, check=True)
    words = (word for line in shown.stdout.splitlines() for word in line.split())
    return {int(word.split(".")[2]) for word in words if word.startswith(NETWORK + ".")}


def record_processes(folder: Path, pids: list[int]) -> None:
    """Note the processes that hold the lab's namespaces, for a sweep after an owner that could not clean up."""
    (folder / "processes.json").write_text(json.dumps([identity(pid) for pid in pids]))


def remove(folder: Path) -> None:
    """Take the folder away, and its parent when it was the last."""
    with _locked(folder.parent):
        _discard(folder)
        left = [entry for entry in folder.parent.iterdir() if entry.name != ".lock"]
        if not left:
            shutil.rmtree(folder.parent, ignore_errors=True)


def _discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # a killed process may have been writing until a moment ago
        shutil.rmtree(folder)


def sweep() -> list[str]:
    """Remove every lab whose owner is dead; those of living owners are left alone. Returns the removed folders."""
    root = base()
    if not root.is_dir():
        return []
    removed = []
    with _locked(root):
        for folder in sorted(path for path in root.iterdir() if path.name.isdigit()):
            if not alive(_load(folder / "owner.json", {})):
                _end_leftovers(folder)
                _discard(folder)
                removed.append(str(folder))
        if not [entry for entry in root.iterdir() if entry.name != ".lock"]:
            shutil.rmtree(root, ignore_errors=True)
    return removed


def _end_leftovers(folder: Path) -> None:
    for who in _load(folder / "processes.json", []):
        if alive(who):
            with contextlib.suppress(ProcessLookupError):
                os.kill(who["pid"], signal.SIGKILL)


def _load(path: Path, default):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return default
