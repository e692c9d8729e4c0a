"""The seam between deciding and doing: what a launcher can do, what it is told, and how it fails.

A launcher's calls block, have a deadline, and do no harm when repeated. What goes wrong is a `RemoteError`; foreign
exceptions (asyncssh, OSError) are translated in `ssh.py` and `local.py` and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from deployments.domain.errors import PilothouseError


class RemoteError(PilothouseError):
    """Something between the panel and a node's answer went wrong.

    `sent` is False when it is certain that the node was not even asked.
    """

    code = "REMOTE_ERROR"
    retryable = True
    sent = True


class Unreachable(RemoteError):
    code = "UNREACHABLE"
    default_remedy = (
        "Check that the machine is on, that its address and SSH port are right, and that a firewall lets you in."
    )


class AuthFailed(RemoteError):
    code = "AUTH_FAILED"
    retryable = False
    default_remedy = (
        "Put the node's public key into ~/.ssh/authorized_keys of that user, or choose another key or user."
    )


class HostKeyUnknown(RemoteError):
    code = "HOST_KEY_UNKNOWN"
    retryable = False
    default_remedy = "Compare the fingerprint with the machine's own and accept it."


class HostKeyChanged(RemoteError):
    code = "HOST_KEY_CHANGED"
    retryable = False
    default_remedy = (
        "If the machine was reinstalled, compare the new fingerprint with its own and accept it; "
        "else somebody may be listening."
    )


class TimedOut(RemoteError):
    code = "TIMED_OUT"
    default_remedy = "The node answers slowly or not at all; look at its load and try again."


class HelperFailed(RemoteError):
    """The node was reached but could not do it; `code` is the helper's own (FENCED, EXEC_FAILED, PATH_MISSING, ...)."""

    code = "HELPER_FAILED"
    retryable = False


@dataclass(frozen=True, slots=True)
class HostKey:
    """One public host key: OpenSSH text (`ssh-ed25519 AAAA...`) and its SHA256 fingerprint."""

    type: str
    public: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class SshEndpoint:
    """Where to log in and as whom. `host_keys` are the accepted ones, as OpenSSH text; empty = none accepted yet."""

    address: str
    port: int
    user: str
    private_key: str = field(repr=False)
    host_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTarget:
    """All a launcher needs to reach a node. `endpoint` is None for this machine."""

    id: int
    name: str
    installation: str
    endpoint: SshEndpoint | None = None
    jump: SshEndpoint | None = None
    interpreter: str | None = None


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The host keys that a host and its jump host offered, without logging in to the host.

    `host` is None while the jump host's key is not an accepted one: then there is no way to the host yet.
    """

    host: HostKey | None
    jump: HostKey | None = None


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One process to start. `secrets` are values: they travel on stdin and are written 0600.

    `replica` and `attempt` fence: a node refuses an attempt lower than one it has seen of that replica.
    `steps` (a list of argv) replaces `argv` for jobs: they run one after another until one fails.
    `builtin` (`{"name": ..., "args": {...}}`) runs a function of the helper instead of a program.
    """

    process: str
    replica: str
    attempt: int
    role: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    probe: Mapping[str, Any] | None = None
    ports: tuple[int, ...] = ()
    accelerators: tuple[str, ...] = ()
    log_cap_bytes: int = 64 * 1024 * 1024
    steps: tuple[tuple[str, ...], ...] = ()
    builtin: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The node's word that the process was started; `already` = it knew the id and did nothing."""

    pid: int
    start_time: int
    boot_id: str
    already: bool = False


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Stop a process and prove it. Stopping an unknown id leaves a tombstone, so that a late start is refused."""

    process: str
    grace_s: float = 10.0
    kill_s: float = 10.0
    signal: str = "TERM"


@dataclass(frozen=True, slots=True)
class StopProof:
    """What the node saw after a stop. `proven` = no member alive, ports closed, accelerator memory back.

    `left` lists what is still there: `{"pid", "name"}` members, open `ports`, `accelerators` not back.
    """

    proven: bool
    known: bool
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a log by byte offset. `base` is the first byte still kept, `size` one past the last."""

    offset: int
    next_offset: int
    base: int
    size: int
    data: str


class Launcher(Protocol):
    """Starts, stops and watches processes on nodes. Every call has a deadline and may be repeated."""

    def scan(self, target: NodeTarget) -> ScanResult: ...

    def probe(self, target: NodeTarget, environment: str | None, paths: tuple[str, ...] = ()) -> dict[str, Any]:
        """Raw facts of the machine, of the engine environment (a folder, or None to look for one), and of `paths`."""

    def report(self, target: NodeTarget) -> dict[str, Any]: ...

    def watch(
        self,
        target: NodeTarget,
        interval_s: float = 1.0,
        *,
        metrics: tuple[str, ...] = (),
        gpu: bool = False,
        host: bool = True,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Reports, one an interval and at once when a process exits, until the connection ends.

        `metrics` names the engine metrics that reports carry, `gpu` and `host` say whether they carry those figures.
        """

    def converse(
        self, target: NodeTarget, process: str, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Asks the engine that `process` is, from its node, and brings its answer as it comes; no event is lost.

        Events: `{"asked": True}` when the node sends the request, `{"status": 200}`, then `{"lines": [...]}` of the
        engine's own (server-sent events where `body` asks for a stream). Closing the iterator ends the request on the
        engine. An answer other than 200 is a HelperFailed ENGINE_ANSWERED with `status` and `body` in its detail.
        """

    def start(self, target: NodeTarget, request: StartRequest) -> Started: ...

    def stop(self, target: NodeTarget, request: StopRequest) -> StopProof: ...

    def collect(self, target: NodeTarget, process: str) -> dict[str, Any]:
        """The black box of one process: log tail, exit, members, redacted spec, kernel messages where readable."""

    def logs(self, target: NodeTarget, process: str, offset: int, limit: int = 65536, wait_s: float = 0.0) -> LogChunk:
        """Log bytes from `offset` (negative = that many before the end); waits up to `wait_s` for new ones."""

    def read_model(self, target: NodeTarget, path: str) -> dict[str, Any]:
        """`config.json` and the file list of a model folder on the node."""

    def forget(self, target: NodeTarget, process: str) -> None:
        """Remove the files of a process that is proven gone."""

    def close(self) -> None: ...
