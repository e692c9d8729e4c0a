"""The usual ways to start a program on many hosts: asyncssh and ansible, with connections that are fresh or open.

All of them log in with the lab's key, check the lab's host keys, and agree on the same key exchange.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from benchmarks import payload
from benchmarks.report import BASE, BUILD
from tests.lab import needs
from tests.lab.host import Host

# What asyncssh and Debian's sshd agree on; the ssh program alone would take a far dearer one.
KEX = "curve25519-sha256"
COMMAND = f"nohup setsid {payload.PROGRAM} </dev/null >/dev/null 2>&1 &"
VENV = BUILD / "venv"


class Asyncssh:
    """One process, one loop; `open` keeps the connections of an earlier call."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self.loop = asyncio.new_event_loop()
        self.kept: list[asyncssh.SSHClientConnection] = []

    def fresh(self) -> float:
        """Start on all hosts; the seconds from the call to the last host's program."""
        payload.forget(self.hosts)
        began = time.time()
        connections = self.loop.run_until_complete(self._connect_and_start())
        took = payload.wait(self.hosts) - began
        self.loop.run_until_complete(_close(connections))
        return took

    def open(self) -> float:
        """The same over connections that are there already."""
        if not self.kept:
            self.kept = self.loop.run_until_complete(self._connect())
        payload.forget(self.hosts)
        began = time.time()
        self.loop.run_until_complete(_start(self.kept))
        return payload.wait(self.hosts) - began

    async def _connect_and_start(self) -> list[asyncssh.SSHClientConnection]:
        async def one(host: Host) -> asyncssh.SSHClientConnection:
            connection = await self._login(host)
            await connection.run(COMMAND, check=True)
            return connection

        return list(await asyncio.gather(*map(one, self.hosts)))

    async def _connect(self) -> list[asyncssh.SSHClientConnection]:
        return list(await asyncio.gather(*map(self._login, self.hosts)))

    async def _login(self, host: Host) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            host.address,
            host.port,
            username=host.user,
            client_keys=[str(host.key_path)],
            known_hosts=str(host.lab.known_hosts),
            config=None,
            agent_path=None,
            kex_algs=[KEX],
        )

    def close(self) -> None:
        self.loop.run_until_complete(_close(self.kept))
        self.loop.close()


async def _start(connections: Sequence[asyncssh.SSHClientConnection]) -> None:
    await asyncio.gather(*(connection.run(COMMAND, check=True) for connection in connections))


async def _close(connections: Sequence[asyncssh.SSHClientConnection]) -> None:
    for connection in connections:
        connection.close()
    await asyncio.gather(*(connection.wait_closed() for connection in connections))


class Ansible:
    """`ansible all -m shell` with as many forks as hosts and pipelining; `open` keeps its ControlPersist masters."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self.program = _install()
        # Its own short folder: a control socket's path may have 107 bytes.
        self.folder = Path(f"/tmp/pilothouse-bench-{os.getpid()}")
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lines = [f"{host.name} ansible_host={host.address} ansible_port={host.port}" for host in hosts]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        (self.folder / "ansible.cfg").write_text("[ssh_connection]\npipelining = true\n")
        self.runs = 0

    def fresh(self) -> float:
        self.runs += 1
        took = self._run(f"f{self.runs}")
        self._leave(f"f{self.runs}")
        return took

    def open(self) -> float:
        return self._run("open")

    def _run(self, sockets: str) -> float:
        payload.forget(self.hosts)
        argv = [self.program, "all", "-i", self.folder / "hosts", "-m", "shell", "-a", COMMAND]
        began = time.time()
        done = subprocess.run(
            [*argv, "-f", str(len(self.hosts))], env=self._environment(sockets), capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"ansible: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return payload.wait(self.hosts) - began

    def _environment(self, sockets: str) -> dict[str, str]:
        host = self.hosts[0]
        ssh = f"-F none -o KexAlgorithms={KEX} -o ControlMaster=auto -o ControlPersist=600s -o IdentitiesOnly=yes"
        return {
            "PATH": needs.SEARCH_PATH,
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_PYTHON_INTERPRETER": needs.HOST_PYTHON,
            "ANSIBLE_REMOTE_USER": host.user,
            "ANSIBLE_PRIVATE_KEY_FILE": str(host.key_path),
            "ANSIBLE_SSH_ARGS": f"{ssh} -o UserKnownHostsFile={host.lab.known_hosts} -o GlobalKnownHostsFile=none",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / sockets),
            "ANSIBLE_SSH_CONTROL_PATH": "%(directory)s/%%h",
        }

    def _leave(self, sockets: str) -> None:
        """Let the masters that hold these sockets end."""
        for socket in (self.folder / sockets).glob("*"):
            argv = [needs.find("ssh"), "-F", "none", "-O", "exit", "-o", f"ControlPath={socket}", "any"]
            subprocess.run(argv, capture_output=True, check=False)

    def close(self) -> None:
        self._leave("open")
        shutil.rmtree(self.folder, ignore_errors=True)


def _install() -> Path:
    """ansible in a virtual environment of its own, made at the first use."""
    pins = Path(__file__).with_name("requirements.txt")
    stamp = VENV / "installed"
    if not stamp.exists() or stamp.read_text() != pins.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        subprocess.run([VENV / "bin/python", "-m", "pip", "install", *quiet, "-r", pins], check=True, cwd=BASE)
        stamp.write_text(pins.read_text())
    return VENV / "bin/ansible"
