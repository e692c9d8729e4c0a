"""One supervisor for one VAR_DIR. The kernel frees the lock when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class AlreadyRuns(Exception):
    """Another supervisor holds the lock; the text is what it wrote there: its pid and its URL."""


def take(path: Path, text: str) -> int:
    """The open lock file, to be kept open as long as the lock is wanted."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 1000).decode("utf-8", errors="replace").strip()
        os.close(lock)
        raise AlreadyRuns(holder) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{text}\n".encode(), 0)
    return lock
