"""One host of the lab: running things on it, judging it, doing it harm."""

from __future__ import annotations

import os
import shlex
import shutil
import signal as signals
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import disk, needs
from tests.lab.namespace import LabError, Namespace
from tests.lab.network import Place, drop, drop_nothing
from tests.lab.observed import PS_FIELDS, Listener, Process, parse_ps, parse_ss
from tests.lab.spec import HostSpec

if TYPE_CHECKING:
    from tests.lab.hosts import Lab

UP_S = 20.0


class Host:
    """One machine of the lab. `user` is root; the other logins are in `spec.logins`, and take the same key."""

    user = "root"

    def __init__(self, lab: Lab, place: Place, name: str, spec: HostSpec):
        self.lab = lab
        self.place = place
        self.name = name
        self.spec = spec
        self.folder = lab.folder / name
        self.address = lab.network.address(place)
        self.port = spec.ssh_port
        self.key_path = lab.key_path
        self.jump = lab.hosts[0] if place.hidden else None
        self.namespace: Namespace | None = None

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}:{self.port}>"

    @property
    def running(self) -> Namespace:
        if self.namespace is None:
            raise LabError(f"{self.name} is off")
        return self.namespace

    @property
    def host_key(self) -> str:
        """The public host key as OpenSSH writes it: type, base64."""
        return " ".join((self.folder / "ssh/host_key.pub").read_text().split()[:2])

    @property
    def sshd_log(self) -> str:
        return (self.folder / "ssh/log").read_text(errors="replace")

    def path(self, inside: str) -> Path:
        """Where the machine has a file of one of this host's own folders (/root, /home, /tmp, /var/lib/pilothouse)."""
        for source, target in disk.OWN:
            if inside == target or inside.startswith(target + "/"):
                return self.folder / source / inside[len(target) :].lstrip("/")
        raise ValueError(f"{inside} is not in a folder of {self.name}'s own")

    # Running things

    def exec(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        check: bool = True,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, not by SSH: for judging from outside what SSH and the helper did.

        Raises LabError with its error output when `check` and it fails, subprocess.TimeoutExpired when it is late.
        """
        words = list(argv)
        if user is not None:
            words = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", *words]
        environment = {"PATH": needs.SEARCH_PATH, "HOME": "/root", "LANG": "C.UTF-8", **(env or {})}
        done = subprocess.run(
            self.running.enter(*words),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise LabError(f"{self.name}: {shlex.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
        return done

    def processes(self) -> list[Process]:
        """All that run on the host, its PID 1 and zombies too, without the `ps` that looked."""
        return parse_ps(self.exec(["ps", "-ewwo", PS_FIELDS]).stdout)

    def listening(self) -> list[Listener]:
        """TCP ports listened on, that of the SSH server too."""
        return parse_ss(self.exec(["ss", "-Hltnp"]).stdout)

    def kill(self, pid: int, sig: int | str = "KILL") -> None:
        """Send a signal to a process by its number inside the host."""
        name = sig if isinstance(sig, str) else signals.Signals(sig).name.removeprefix("SIG")
        self.exec(["kill", "-s", name, str(pid)])

    # SSH, by the ordinary client

    def ssh_argv(self, command: str, user: str | None = None) -> list[str]:
        """The ssh command line that runs `command` here: the lab's key and known hosts, nobody's own settings."""
        return [*self._ssh_options(), f"{user or self.user}@{self.address}", command]

    def _ssh_options(self) -> list[str]:
        options = ["-F", "none", "-i", str(self.key_path), "-p", str(self.port)]
        for setting in (
            "BatchMode=yes",
            "ConnectTimeout=10",
            "IdentitiesOnly=yes",
            f"UserKnownHostsFile={self.lab.known_hosts}",
            "GlobalKnownHostsFile=none",
        ):
            options += ["-o", setting]
        if self.jump is not None:
            through = [*self.jump._ssh_options(), "-W", f"{self.address}:{self.port}", f"root@{self.jump.address}"]
            options += ["-o", "ProxyCommand=" + shlex.join(through)]
        return [needs.find("ssh"), *options]

    def ssh(
        self, command: str, *, user: str | None = None, input: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` by SSH; exit code 255 is ssh's own failure."""
        argv = self.ssh_argv(command, user)
        source = subprocess.DEVNULL if input is None else None
        return subprocess.run(
            argv,
            input=input,
            stdin=source,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )

    # Faults

    def cut(self, direction: str | None = None, peer: str | None = None) -> None:
        """Cut the host off. Plain: the cable is out. With `direction` "in" or "out", or with a `peer` address, packets
        are dropped inside the host, silently, one way, or only to and from that peer.
        """
        if direction is None and peer is None:
            self.lab.network.unplug(self.place)
        else:
            drop(self.running.pid, direction, peer)

    def heal(self) -> None:
        """Undo every cut and `slow`."""
        self.lab.network.replug(self.place)
        self.lab.network.slow(self.place, None)
        drop_nothing(self.running.pid)

    def slow(self, rate: str) -> None:
        """Let no more than `rate` (as tc writes it: 256kbit) reach the host. Raises LabUnavailable without tbf."""
        self.lab.network.slow(self.place, rate)

    def rotate_host_key(self) -> str:
        """A new host key, as after a reinstallation; `lab.known_hosts` keeps the old one. Returns the new one."""
        disk.make_key(self.folder / "ssh/host_key", self.name)
        self.restart_sshd()
        return self.host_key

    def stop_sshd(self, sessions: bool = False) -> None:
        """Stop listening; with `sessions` cut every open connection too. What they started lives on."""
        self.running.ask("stop_sshd", sessions=sessions)

    def start_sshd(self) -> None:
        self.running.ask("start_sshd")
        self.wait_for_ssh()

    def restart_sshd(self) -> None:
        self.stop_sshd()
        self.start_sshd()

    def mask(self, path: str) -> None:
        """Make a file of the host unreadable and not executable until its next boot."""
        self.running.ask("mask", path=os.path.realpath(path))

    def install_script(self, name: str, text: str) -> None:
        """Put an executable into the host's own /usr/local/bin (a fake nvidia-smi, say)."""
        disk.write_script(self.folder, name, text)

    def power_off(self) -> None:
        """Everything inside dies at once. The disk stays; `boot` starts it again."""
        if self.namespace is not None:
            self.namespace.kill()
            self.namespace = None
            self.lab.network.unplug_for_good(self.place, foot=self.lab.has_foot(self))

    def boot(self) -> None:
        """Start after `power_off`, with a new boot id, empty /run, /dev/shm and process table."""
        disk.new_boot_id(self.folder)
        shutil.rmtree(self.folder / "shown/var-lib", ignore_errors=True)
        self.lab.start([self])

    def reboot(self) -> None:
        self.power_off()
        self.boot()

    def wait_for_ssh(self) -> None:
        """Until the server greets; asked from inside, since the machine may not reach this host."""
        program = "import socket,sys; s=socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2); assert s.recv(4)"
        deadline = time.monotonic() + UP_S
        while not self._greets(program):
            if time.monotonic() > deadline:
                raise LabError(f"{self.name}: no SSH server after {UP_S:.0f} s: {self.sshd_log[-2000:]}")
            time.sleep(0.02)

    def _greets(self, program: str) -> bool:
        if self.jump is None:
            try:
                with socket.create_connection((self.address, self.port), 1) as connection:
                    return connection.recv(4) == b"SSH-"
            except OSError:
                return False
        return self.exec([needs.HOST_PYTHON, "-I", "-c", program, str(self.port)], check=False).returncode == 0
