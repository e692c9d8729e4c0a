"""The SSH server of the simulated fleet: one host key, one accepted key, and a node for each user name."""

from __future__ import annotations

import time
from typing import Any

import asyncssh

from deployments.remote.launcher import NodeTarget, SshEndpoint
from deployments.remote.ssh_files import generate_key, host_key
from deployments.remote.stub_facts import cpu_host, h200_host
from deployments.remote.stub_node import StubNode
from tests.fleet.session import Session
from tests.fleet.verbs import Machine

ADDRESS = "127.0.0.1"
INSTALLATION = "3e9d6d4e-5f0e-4a57-9f0e-6f5c8c5f2a11"


def names(count: int) -> list[str]:
    """node-000, node-001, ..."""
    return [f"node-{place:03}" for place in range(count)]


def facts_of(name: str, gpus: int) -> dict[str, Any]:
    return h200_host(name, gpus) if gpus else cpu_host(name)


class Fleet:
    """`nodes` simulated machines with `gpus` H200 each (0: CPU hosts) behind one port of loopback.

    Attributes:
        machines: By node name.
        port, host_key, private_key: What a panel needs to log in; the keys as OpenSSH text.
    """

    def __init__(self, nodes: int, gpus: int = 8) -> None:
        self.gpus = gpus
        self.machines = {name: Machine(StubNode(facts_of(name, gpus), time.time)) for name in names(nodes)}
        self.private_key, self._public = generate_key()
        private_host_key, public = generate_key()
        self.host_key = host_key(public).public
        self.port = 0
        self._own_key = asyncssh.import_private_key(private_host_key)
        self._listener: asyncssh.SSHAcceptor | None = None
        self._connections: dict[str, set[asyncssh.SSHServerConnection]] = {}

    async def __aenter__(self) -> Fleet:
        self._listener = await asyncssh.listen(
            ADDRESS,
            self.port,
            server_factory=lambda: _Server(self),
            server_host_keys=[self._own_key],
            authorized_client_keys=asyncssh.import_authorized_keys(self._public),
            encoding=None,
            line_editor=False,
            login_timeout=60,
        )
        self.port = self._listener.get_port()
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for name in self.machines:
            self._hang_up(name)
        await self._listener.wait_closed()

    def node(self, name: str) -> StubNode:
        return self.machines[name].node

    def target(self, name: str, id: int | None = None) -> NodeTarget:
        """How a launcher reaches a node; ids count from 1 in the order of the names."""
        number = [*self.machines].index(name) + 1 if id is None else id
        endpoint = SshEndpoint(ADDRESS, self.port, name, self.private_key, (self.host_key,))
        return NodeTarget(number, name, INSTALLATION, endpoint)

    def exit(self, name: str, process: str, code: int | None = 1, signal: int | None = None) -> float:
        """A process ends by itself, and every watch hears of it at once. Returns the moment (epoch seconds)."""
        machine = self.machines[name]
        machine.node.exit(process, code, signal)
        at = time.time()
        machine.ring()
        return at

    def silence(self, name: str, silent: bool = True) -> None:
        """The machine is gone: its connections break and no new one is let in. Or it is back."""
        self.node(name).silent = silent
        if silent:
            self._hang_up(name)

    def joined(self, name: str, connection: asyncssh.SSHServerConnection) -> None:
        self._connections.setdefault(name, set()).add(connection)

    def left(self, name: str, connection: asyncssh.SSHServerConnection) -> None:
        self._connections.get(name, set()).discard(connection)

    def connections(self, name: str) -> int:
        """How many logins of a node are open."""
        return len(self._connections.get(name, ()))

    def _hang_up(self, name: str) -> None:
        for connection in list(self._connections.get(name, ())):
            connection.abort()


class _Server(asyncssh.SSHServer):
    """One connection to the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._name = ""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        if username in self._fleet.machines and self._fleet.node(username).silent:
            self._connection.abort()
        return True

    def auth_completed(self) -> None:
        name = self._connection.get_extra_info("username")
        if name in self._fleet.machines:
            self._name = name
            self._fleet.joined(name, self._connection)

    def session_requested(self) -> Session | bool:
        return Session(self._fleet.machines[self._name]) if self._name else False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fleet.left(self._name, self._connection)
