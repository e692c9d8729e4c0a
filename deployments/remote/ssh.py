"""SSH, and the only place that knows asyncssh: logging in with pinned host keys, and every failure in our words.

Nothing of the panel's own account is used: no ~/.ssh/config, no known_hosts, no default keys, no agent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import asyncssh

from deployments.domain.errors import InvalidInput

from .channel import Link
from .launcher import (
    AuthFailed,
    HostKey,
    HostKeyChanged,
    HostKeyUnknown,
    NodeTarget,
    RemoteError,
    ScanResult,
    SshEndpoint,
    TimedOut,
    Unreachable,
)
from .ssh_files import host_key, load_private_key

CONNECT_TIMEOUT_S = 10.0
LOGIN_TIMEOUT_S = 15.0
KEEPALIVE_INTERVAL_S = 10.0
KEEPALIVE_MISSES = 3
CLOSE_TIMEOUT_S = 2.0

# The whole of what a node's login shell is ever told. csh, fish and the rest read it alike.
REMOTE_COMMAND = "/bin/sh"

# Signature algorithms by key type: a pinned RSA key never signs with SHA-1, and no certificate is asked for.
_HOST_KEY_ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}

# Processors do AES by themselves, on both ends; asyncssh's chacha20 costs a stream of reports twice the CPU.
_CIPHERS = (
    "aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com",
    "aes256-ctr", "aes192-ctr", "aes128-ctr",
)  # fmt: skip

asyncssh.set_log_level("WARNING")


class _Client(asyncssh.SSHClient):
    """What happened on one connection attempt, as far as the error to report needs it."""

    def __init__(self, on_connected: Callable[[], None]) -> None:
        self.connected = False
        self.offered: HostKey | None = None
        self._on_connected = on_connected
        self._connection: asyncssh.SSHClientConnection | None = None

    @property
    def ended_without_host_key(self) -> bool:
        """The server hung up while the two were still agreeing on algorithms."""
        if self._connection is None or self.offered or not self._connection.get_extra_info("server_version"):
            return False
        return self._connection.get_server_host_key() is None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connected = True
        self._connection = conn
        self._on_connected()

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Called only for a key that is not among the accepted ones: note it, and refuse it."""
        self.offered = host_key(key.export_public_key().decode())
        return False


class _Attempt:
    """One attempt to log in to a node or its jump host, and how to word its failure."""

    def __init__(self, endpoint: SshEndpoint, node: str, *, is_jump: bool = False) -> None:
        self.endpoint = endpoint
        self.node = node
        self.is_jump = is_jump
        self.place = f"{endpoint.address}:{endpoint.port}"
        self.accepted = _readable(endpoint.host_keys)
        self.client: _Client | None = None

    async def connect(self, tunnel: asyncssh.SSHClientConnection | None) -> asyncssh.SSHClientConnection:
        loop = asyncio.get_running_loop()
        try:
            key = load_private_key(self.endpoint.private_key)
            async with asyncio.timeout(CONNECT_TIMEOUT_S) as limit:
                client = _Client(lambda: limit.reschedule(loop.time() + LOGIN_TIMEOUT_S))
                self.client = client
                return await asyncssh.connect(**self._options(client, [key], self.accepted, tunnel))
        except Exception as error:
            failure = self.translate(error)
            hung_up = type(failure) is Unreachable and self.client is not None and self.client.ended_without_host_key
            if hung_up and self.accepted:
                failure = await self._other_type(tunnel) or failure
            raise failure from error

    async def _other_type(self, tunnel: asyncssh.SSHClientConnection | None) -> RemoteError | None:
        """HostKeyChanged when the server's keys are all of other types than the accepted ones.

        We ask for accepted types only, so such a server just hangs up; ask what it has, for people to compare.
        """
        try:
            offered = await self.offered_key(tunnel)
        except RemoteError:
            return None
        return None if offered in self.accepted else self._wrong_key(offered)

    async def offered_key(self, tunnel: asyncssh.SSHClientConnection | None) -> HostKey:
        """The key the server offers, of an accepted type if it has one. Ends before any login."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S) as limit:
                client = _Client(lambda: limit.reschedule(loop.time() + LOGIN_TIMEOUT_S))
                self.client = client
                connection = await asyncssh.connect(**self._options(client, None, (), tunnel))
                connection.abort()
        except Exception as error:
            if client.offered is None:
                raise self.translate(error) from error
            return client.offered
        raise Unreachable(f"{self.place} let us in without showing a host key.", node=self.node)

    def _options(
        self,
        client: _Client,
        keys: list[asyncssh.SSHKey] | None,
        accepted: tuple[HostKey, ...],
        tunnel: asyncssh.SSHClientConnection | None,
    ) -> dict[str, Any]:
        trusted = [asyncssh.import_public_key(key.public) for key in accepted]
        return {
            "host": self.endpoint.address,
            "port": self.endpoint.port,
            "username": self.endpoint.user,
            "tunnel": tunnel,
            "config": None,
            "client_factory": lambda: client,
            # A function, since an empty list would make asyncssh read ~/.ssh/known_hosts.
            "known_hosts": lambda *_: (trusted, [], []),
            "server_host_key_algs": self._algorithms(only_accepted=bool(accepted)),
            "encryption_algs": _CIPHERS,
            "x509_trusted_certs": None,
            "client_keys": keys,
            "preferred_auth": "publickey",
            "agent_path": None,
            "agent_forwarding": False,
            "pkcs11_provider": None,
            "gss_host": None,
            "keepalive_interval": KEEPALIVE_INTERVAL_S,
            "keepalive_count_max": KEEPALIVE_MISSES,
            "login_timeout": 0,
        }

    def _algorithms(self, only_accepted: bool) -> list[str]:
        types = [key.type for key in self.accepted]
        wanted = types if only_accepted else [*types, *_HOST_KEY_ALGORITHMS]
        names = [name for kind in wanted for name in _HOST_KEY_ALGORITHMS.get(kind, (kind,))]
        return list(dict.fromkeys(names))

    def translate(self, error: Exception) -> RemoteError:
        """Any exception of this connection as a `RemoteError`."""
        if isinstance(error, RemoteError):
            return error
        if isinstance(error, TimeoutError):
            return self._too_slow()
        if isinstance(error, asyncssh.HostKeyNotVerifiable) and self.client and self.client.offered:
            return self._wrong_key(self.client.offered)
        if isinstance(error, InvalidInput):
            return AuthFailed(self._with_hop(error.message), remedy=error.remedy, node=self.node)
        if isinstance(error, asyncssh.PermissionDenied | asyncssh.IllegalUserName) or _too_many_tries(error):
            return self._denied(str(error))
        return self._unreachable(error)

    def _too_slow(self) -> RemoteError:
        if self.client is None or not self.client.connected:
            message = self._with_hop(f"{self.place} did not answer within {CONNECT_TIMEOUT_S:g} s.")
            return Unreachable(message, node=self.node, detail=self._where())
        message = f"{self.place} took the connection, but did not finish the login within {LOGIN_TIMEOUT_S:g} s."
        return TimedOut(self._with_hop(message), node=self.node, detail=self._where())

    def _wrong_key(self, offered: HostKey) -> RemoteError:
        detail = {
            **self._where(),
            "accepted": [{"type": key.type, "fingerprint": key.fingerprint} for key in self.accepted],
            "offered": {"type": offered.type, "fingerprint": offered.fingerprint},
            "offered_key": offered.public,
        }
        if not self.accepted:
            message = f"The host key of {self.place} has not been accepted yet: {offered.fingerprint} ({offered.type})."
            return HostKeyUnknown(self._with_hop(message), node=self.node, detail=detail)
        pinned = ", ".join(f"{key.fingerprint} ({key.type})" for key in self.accepted)
        message = f"{self.place} shows the host key {offered.fingerprint} ({offered.type}); accepted was {pinned}."
        return HostKeyChanged(self._with_hop(message), node=self.node, detail=detail)

    def _denied(self, said: str) -> AuthFailed:
        public = load_private_key(self.endpoint.private_key)
        message = f"{self.place} did not let {self.endpoint.user} in with key {public.get_fingerprint()}."
        detail = {**self._where(), "said": said, "public_key": public.export_public_key().decode().strip()}
        return AuthFailed(self._with_hop(message), node=self.node, detail=detail)

    def _unreachable(self, error: Exception) -> Unreachable:
        detail = {**self._where(), "said": f"{type(error).__name__}: {error}"}
        if isinstance(error, socket.gaierror | UnicodeError):
            message = f"The name {self.endpoint.address} cannot be resolved."
        elif isinstance(error, asyncssh.ChannelOpenError):
            message = f"{self.place} was not reachable from where we had got to: {error.reason}."
        else:
            message = f"No SSH connection to {self.place}: {str(error) or type(error).__name__}."
        return Unreachable(self._with_hop(message), node=self.node, detail=detail)

    def _where(self) -> dict[str, Any]:
        return {"address": self.place, "jump": self.is_jump}

    def _with_hop(self, message: str) -> str:
        return f"Jump host: {message}" if self.is_jump else message


def _readable(host_keys: tuple[str, ...]) -> tuple[HostKey, ...]:
    """Accepted keys of types we can check; a key we cannot read is as good as none."""
    readable = []
    for text in host_keys:
        try:
            asyncssh.import_public_key(text)
            readable.append(host_key(text))
        except (asyncssh.KeyImportError, InvalidInput):
            continue
    return tuple(readable)


def _too_many_tries(error: Exception) -> bool:
    return isinstance(error, asyncssh.DisconnectError) and "authentication" in error.reason.lower()


class JumpHosts:
    """The open connections to jump hosts of one event loop: nodes behind the same one share it."""

    def __init__(self) -> None:
        self._open: dict[SshEndpoint, asyncio.Task[asyncssh.SSHClientConnection]] = {}

    async def through(self, target: NodeTarget) -> asyncssh.SSHClientConnection | None:
        """The connection to the target's jump host, opened when it is not; None without one."""
        if target.jump is None:
            return None
        task = self._open.get(target.jump)
        if task is None or (task.done() and not _usable(task)):
            task = asyncio.create_task(_Attempt(target.jump, target.name, is_jump=True).connect(None))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._open[target.jump] = task
        try:
            return await asyncio.shield(task)
        except RemoteError as error:
            raise _for_node(error, target.name) from error

    def close(self) -> None:
        for task in self._open.values():
            if not task.done():
                task.cancel()
            elif _usable(task):
                task.result().close()
        self._open.clear()


def _usable(task: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    return not task.cancelled() and task.exception() is None and not task.result().is_closed()


def _for_node(error: RemoteError, node: str) -> RemoteError:
    """The same failure told to another node behind the same jump host."""
    return type(error)(error.message, remedy=error.remedy, node=node, detail=error.detail, code=error.code)


async def open_link(target: NodeTarget, jumps: JumpHosts) -> Link:
    """Logs in to a node and starts `/bin/sh`.

    Raises:
        Unreachable, AuthFailed, HostKeyChanged, HostKeyUnknown, TimedOut: `node` is set; `detail` has
            the address, whether it is the jump host's, and for host keys `accepted`, `offered` and `offered_key`.
    """
    assert target.endpoint is not None
    attempt = _Attempt(target.endpoint, target.name)
    connection = await attempt.connect(await jumps.through(target))
    try:
        async with asyncio.timeout(LOGIN_TIMEOUT_S):
            shell = await connection.create_process(REMOTE_COMMAND, encoding=None, request_pty=False)
    except Exception as error:
        connection.abort()
        raise attempt.translate(error) from error

    async def close() -> None:
        shell.close()
        await _close(connection)

    return Link(shell.stdout, shell.stdin, shell.stderr, close, attempt.translate)


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    connection.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await connection.wait_closed()
    except Exception:
        connection.abort()


async def scan(target: NodeTarget) -> ScanResult:
    """The host keys on offer. The host's is None while its jump host is not accepted, since nobody may log in there.

    Raises:
        Unreachable, TimedOut: Nobody there. AuthFailed: The jump host did not let us in.
    """
    assert target.endpoint is not None
    jumps = JumpHosts()
    try:
        jump_key = None
        if target.jump is not None:
            jump = _Attempt(target.jump, target.name, is_jump=True)
            jump_key = await jump.offered_key(None)
            if jump_key not in jump.accepted:
                return ScanResult(host=None, jump=jump_key)
        attempt = _Attempt(target.endpoint, target.name)
        return ScanResult(await attempt.offered_key(await jumps.through(target)), jump_key)
    finally:
        jumps.close()
