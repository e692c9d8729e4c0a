"""A panel with lab hosts as its nodes, as the benchmarks need them: set up through the API, started for real."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import payload
from tests.lab.host import Host
from tests.lab.panel import Panel

MODEL, LAYOUT = "bench", "whole-node"


class Fleet:
    """Starts the payload on nodes of a panel."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.hosts: list[Host] = []
        self._runs = 0

    def add(self, hosts: Sequence[Host]) -> None:
        """Register further hosts; returns when all are READY and known to have the model."""
        self.panel.add_hosts(hosts, payload.ENVIRONMENT)
        names = [host.name for host in hosts]
        if self.hosts:
            self.panel.wait_job(self.panel.api("POST", f"/models/{MODEL}/find", {"nodes": names})["id"])
        else:
            self.panel.add_model(MODEL, payload.MODEL, names)
            # One process that takes every slot of its node, so that a deployment spreads one to each.
            slots = len(self.panel.node(names[0])["accelerators"])
            self.panel.add_layout(LAYOUT, "tensor" if slots > 1 else "single", tensor_parallel_size=slots)
        self.hosts += hosts

    def start(self, hosts: Sequence[Host]) -> float:
        """One PUT that wishes as many replicas as hosts; the seconds from it to the last host's program."""
        self._runs += 1
        payload.forget(hosts)
        wish = {"model": MODEL, "layout": LAYOUT, "replicas": len(hosts), "nodes": [host.name for host in hosts]}
        began = time.time()
        self.panel.deploy(self.name, **wish)
        return payload.wait(hosts) - began

    def stop(self) -> None:
        """Stop what the last `start` has started, with proof."""
        self.panel.stop_deployment(self.name, timeout=120)
        self.panel.api("DELETE", f"/deployments/{self.name}")

    @property
    def name(self) -> str:
        return f"bench-{self._runs}"

    def cut_worker(self, hosts: Sequence[Host]) -> None:
        """End the worker's SSH sessions from the hosts' side, so that its next launch logs in afresh.

        The observer's sessions stay: whose they are is told by the ports that the worker's process holds.
        """
        ends = _own_ends(self.panel.pid_of("worker"))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda host: _cut(host, {port for address, port in ends if address == host.address}), hosts))


def _own_ends(pid: int) -> set[tuple[str, int]]:
    """(peer's address, own port) of a process's TCP connections; a port alone may serve several peers."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {(_address(row[2]), int(row[1].rpartition(":")[2], 16)) for row in rows if row[9] in inodes}


def _address(hexadecimal: str) -> str:
    """`0100007F:1F90` as 127.0.0.1."""
    return socket.inet_ntoa(bytes.fromhex(hexadecimal.partition(":")[0])[::-1])


def _cut(host: Host, ports: set[int]) -> None:
    rows = host.exec(["ss", "-Htnp", "state", "established"]).stdout.splitlines()
    for row in rows:
        words = row.split()
        if int(words[3].rpartition(":")[2]) in ports and "sshd" in row:
            for part in row.split("pid=")[1:]:
                host.kill(int(part.split(",")[0]))
