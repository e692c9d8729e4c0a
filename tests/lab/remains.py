"""What is left of engines on a host, by the host's own ps and ss."""

from __future__ import annotations

import time

from tests.lab.host import Host

PORTS = range(20000, 21000)  # what a node gives to engines unless told otherwise
SUPERVISOR, SUPERVISOR_S = "pilothouse-supervisor:", 10.0


def engine_remains(host: Host) -> list[str]:
    """Engines' processes and ports that are there now, and supervisors that do not go soon after their engines.

    The connections' own helpers are no remains: they end with the connection.
    """
    found = _running(host, "vllm") + [
        f"port {listener.port}" for listener in host.listening() if listener.port in PORTS
    ]
    deadline = time.monotonic() + SUPERVISOR_S
    while not found and (supervisors := _running(host, SUPERVISOR)):
        if time.monotonic() > deadline:
            return supervisors
        time.sleep(0.1)
    return found


def _running(host: Host, word: str) -> list[str]:
    return [f"{p.pid} {p.command}" for p in host.processes() if word in p.command.lower() and p.state[0] != "Z"]
