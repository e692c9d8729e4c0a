"""Ordinary OpenSSH servers on loopback, as children of the test."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from deployments.remote.launcher import HostKey, NodeTarget, SshEndpoint
from deployments.remote.ssh_files import generate_key, host_key

SSHD = Path("/usr/sbin/sshd")
INSTALLATION = "0c9f2f0e-6c7e-4a3a-9a51-3d6d0e1f7a10"
READY_DEADLINE_S = 10.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Sshd:
    """One server with a host key of its own. `settings` are further lines of its configuration."""

    def __init__(self, folder: Path, *settings: str, key_type: str = "ssh-ed25519") -> None:
        self.folder = folder
        self.port = free_port()
        self.settings = settings
        self.private_key, self.public_key = generate_key()
        self._server: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        (folder / "authorized_keys").write_text(self.public_key + "\n")
        self.new_host_key(key_type)

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def new_host_key(self, key_type: str = "ssh-ed25519") -> HostKey:
        """Gives the server another host key; it takes effect with the next start."""
        for old in self.folder.glob("host_key*"):
            old.unlink()
        kind = key_type.removeprefix("ssh-").split("-")[0]
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(self.folder / "host_key")], check=True, timeout=30
        )
        self.host_key = host_key((self.folder / "host_key.pub").read_text())
        return self.host_key

    def start(self) -> Sshd:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._configuration().write_text("\n".join(self._lines()) + "\n")
        command = [str(SSHD), "-D", "-E", str(self.folder / "log"), "-f", str(self._configuration())]
        self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_DEADLINE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                if connection.recv(4) == b"SSH-":
                    return self
            time.sleep(0.02)
        raise AssertionError(f"sshd did not start: {(self.folder / 'log').read_text()}")

    def _configuration(self) -> Path:
        return self.folder / "sshd_config"

    def _lines(self) -> list[str]:
        return [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder / 'host_key'}",
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}",
            f"PidFile {self.folder / 'pid'}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            f"SetEnv PILOTHOUSE_STATE_ROOT={self.folder / 'state'}",
            *self.settings,
        ]

    def kill_sessions(self) -> None:
        """Kills the servers of open connections, as a crash would; the listener lives on."""
        for child in self._children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def _children(self) -> list[int]:
        found, look = [], [self.pid]
        while look:
            parent = look.pop()
            for stat in Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError):
                    fields = stat.read_text().rpartition(")")[2].split()
                    if int(fields[1]) == parent and "sshd" in stat.read_text():
                        found.append(int(stat.parent.name))
                        look.append(int(stat.parent.name))
        return found

    def stop(self) -> None:
        if self._server is not None:
            self.kill_sessions()
            self._server.kill()
            self._server.wait()
            self._server = None

    def endpoint(self, **changes) -> SshEndpoint:
        values = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "private_key": self.private_key,
            "host_keys": (self.host_key.public,),
        }
        return SshEndpoint(**{**values, **changes})

    def target(self, *, id: int = 1, jump: SshEndpoint | None = None, interpreter: str | None = None, **changes):
        return NodeTarget(id, "node-a", INSTALLATION, self.endpoint(**changes), jump, interpreter)
