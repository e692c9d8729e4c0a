"""What is left of engines on a host, by the host's own ps and ss."""

from __future__ import annotations

from tests.lab.host import Host

PORTS = range(20000, 21000)  # what a node gives to engines unless told otherwise


def engine_remains(host: Host) -> list[str]:
    """Processes of engines and their supervisors that are not the host's own, and ports that only engines use."""
    found = [f"{p.pid} {p.command}" for p in host.processes() if "vllm" in p.command.lower() and p.state[0] != "Z"]
    found += [f"port {listener.port}" for listener in host.listening() if listener.port in PORTS]
    return found
