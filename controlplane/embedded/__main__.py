"""`python -m controlplane.embedded`: the whole panel on this machine, until Ctrl-C. What `make run` runs.

Exit codes: 0 stopped in order or already running, 2 a wrong setting or a failed first step, 3 the port is in use,
4 a server could not be started.
"""

from __future__ import annotations

import http.client
import logging.config
import os
import socket
import sys
import time
from typing import Any

from controlplane.embedded import folders, lock, parts, ports, servers
from controlplane.embedded.errors import CannotStart
from controlplane.embedded.supervisor import Stopped, Supervisor
from controlplane.env import or_exit

READY_DEADLINE_S = 60


def main() -> int:
    os.environ["PROCESS"] = "supervisor"
    try:
        with or_exit():
            from controlplane import settings
        logging.config.dictConfig(settings.LOGGING)
        return _run(settings)
    except CannotStart as error:
        print(f"pilothouse: {error}", file=sys.stderr)
        return error.exit_code


def _run(settings: Any) -> int:
    url = _url(settings)
    folders.prepare(settings.PLACES)
    try:
        held = lock.take(settings.PLACES.lock, f"{url} (pid {os.getpid()})")
    except lock.AlreadyRuns as running:
        print(f"Pilothouse already runs: {running}", flush=True)
        return 0
    supervisor = Supervisor()
    supervisor.block_signals()
    try:
        # Open until the end: each web process gets this same socket.
        with ports.listen(settings.BIND, settings.PORT) as listening:
            _bring_up(supervisor, settings, url, listening)
            supervisor.supervise()
    except Stopped:
        print("Pilothouse stops.", flush=True)
    finally:
        supervisor.stop()
        os.close(held)
    return 0


def _bring_up(supervisor: Supervisor, settings: Any, url: str, listening: socket.socket) -> None:
    wanted = {"postgres": settings.EMBEDDED_DATABASE, "valkey": settings.EMBEDDED_BROKER}
    only = tuple(name for name, embedded in wanted.items() if embedded)
    for server in servers.find(settings.PLACES, pg_bin=settings.PG_BIN, drop_root=settings.DROP_ROOT, only=only):
        supervisor.start_server(server)
    supervisor.run_once(parts.prepare())
    for program in parts.parts(listening.fileno()):
        supervisor.start_part(program)
    deadline = time.monotonic() + READY_DEADLINE_S
    supervisor.supervise(lambda: _is_ready(settings) or time.monotonic() > deadline, tick_s=0.1)
    if time.monotonic() > deadline:
        raise CannotStart(f"The panel did not get ready within {READY_DEADLINE_S} s.", "See the lines above.")
    print(f"Pilothouse is ready: {url}   (Ctrl-C stops it)", flush=True)


def _is_ready(settings: Any) -> bool:
    """Asked under a name that is allowed; names that stand for many are of no use here."""
    host = next((name for name in settings.ALLOWED_HOSTS if not name.startswith(("*", "."))), "localhost")
    client = http.client.HTTPConnection(_reachable(settings.BIND), settings.PORT, timeout=2)
    try:
        client.request("GET", "/readyz", headers={"Host": host})
        return client.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        client.close()


def _url(settings: Any) -> str:
    host = _reachable(settings.BIND)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.PORT}/"


def _reachable(bind: str) -> str:
    """All-interfaces addresses cannot be connected to by their own name."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)


if __name__ == "__main__":
    raise SystemExit(main())
