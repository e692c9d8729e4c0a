"""The panel's own port: taken before anything else is started, so that a port in use is known, and named, at once."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from controlplane.embedded.errors import CannotStart, PortInUse

LISTEN_STATE = "0A"
# The web process of a killed supervisor is killed with it; its port may be free only some milliseconds later.
PATIENCE_S = 2.0


def listen(bind: str, port: int) -> socket.socket:
    """The listening socket. The supervisor keeps it, so that a restart of the web process refuses no browser."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_server((bind, port), family=family, backlog=512)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                remedy = "Set BIND to an address of this machine and PORT to a port that this user may open."
                raise CannotStart(f"{bind}:{port} cannot be opened: {error.strerror or error}.", remedy) from error
            if time.monotonic() > deadline:
                who = holder(port) or "another program"
                raise PortInUse(f"Port {port} is in use by {who}.", "End it, or set PORT to a free one.") from error
            time.sleep(0.05)


def holder(port: int) -> str | None:
    """`name (pid 123)` of the process that listens on the port, where this user may see it."""
    inodes = {inode for name in ("tcp", "tcp6") for inode in _listening(Path("/proc/net") / name, port)}
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for entry in Path("/proc").iterdir():
        # Processes of others may not be looked into, and some end meanwhile.
        with suppress(OSError):
            if entry.name.isdigit() and any(os.readlink(fd) in wanted for fd in (entry / "fd").iterdir()):
                return f"{(entry / 'comm').read_text().strip()} (pid {entry.name})"
    return None


def _listening(table: Path, port: int) -> list[str]:
    with suppress(OSError):
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
        return [row[9] for row in rows if row[3] == LISTEN_STATE and int(row[1].rpartition(":")[2], 16) == port]
    return []
