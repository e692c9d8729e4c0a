"""PostgreSQL and Valkey together, started and waited for: what the supervisor and the tests have in common."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlplane.embedded import children, folders, identity, postgres, valkey
from controlplane.embedded.children import Program
from controlplane.embedded.errors import ServerFailed
from controlplane.embedded.places import Places

Child = subprocess.Popen[bytes]
START_DEADLINE_S = 60


@dataclass(frozen=True, slots=True)
class Server:
    """One server's program, how it gets ready to be started (again), and how it says that it serves."""

    program: Program
    prepare: Callable[[], None]
    is_ready: Callable[[int], bool]


def find(places: Places, *, pg_bin: str = "", drop_root: str = "auto", only: tuple[str, ...] = ()) -> list[Server]:
    """The servers named in `only` (postgres, valkey), prepared; in the order in which they are started."""
    folders.prepare(places)
    who = identity.choose(places, drop_root)
    identity.make_room(places, who)
    servers = []
    if "postgres" in only:
        cluster = postgres.Postgres(places, who, postgres.find_programs(pg_bin))
        cluster.prepare()
        servers.append(Server(cluster.program(), cluster.clear_leftovers, cluster.is_ready))
    if "valkey" in only:
        broker = valkey.Valkey(places, who, valkey.find_server())
        broker.prepare()
        servers.append(Server(broker.program(), broker.prepare, broker.is_ready))
    return servers


def start(server: Server, pause: Callable[[float], None] = time.sleep) -> Child:
    """The running server, once it serves. One that ends instead is a `ServerFailed` with the end of its log."""
    child = children.start(server.program)
    deadline = time.monotonic() + START_DEADLINE_S
    try:
        while not server.is_ready(child.pid):
            if child.poll() is not None or time.monotonic() > deadline:
                said = _end_of(server.program.log)
                raise ServerFailed(f"{server.program.name} did not start: {said}", f"Its log: {server.program.log}")
            pause(0.01)
    except BaseException:
        children.stop(child, server.program)
        raise
    return child


def _end_of(log: Path | None) -> str:
    return log.read_text(encoding="utf-8", errors="replace").strip()[-600:] if log and log.exists() else ""
