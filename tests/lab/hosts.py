"""Hosts out of namespaces, and the lab that holds them.

    with Lab(2) as lab:
        one, two = lab.hosts
        one.ssh("hostname").stdout

The machine that runs the lab reaches each host at `host.address`:`host.port`; the hosts reach it at
`lab.machine_address`. A hidden host is reached through `host.jump` only.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import signal as signals
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.lab import disk, folder, needs
from tests.lab.namespace import LabError, Namespace
from tests.lab.network import MAX_HIDDEN, MAX_VISIBLE, Network, Place, drop, drop_nothing
from tests.lab.spec import HostSpec

UP_S = 20.0


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the host's own `ps`."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    state: str
    user: str
    name: str
    command: str


@dataclass(frozen=True, slots=True)
class Listener:
    """One TCP port that is listened on, from the host's own `ss`; `pid` is None for a process that `ss` cannot name."""

    address: str
    port: int
    pid: int | None
    name: str | None


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
    def _running(self) -> Namespace:
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
            self._running.enter(*words),
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
        """All that run on the host, its PID 1 and kernel-made zombies too, without the `ps` that looked."""
        fields = "pid=,ppid=,pgid=,sid=,stat=,user:32=,comm:32=,args="
        lines = self.exec(["ps", "-ewwo", fields]).stdout.splitlines()
        rows = (line.split(None, 7) for line in lines)
        found = [Process(*map(int, row[:4]), *row[4:7], row[7] if len(row) > 7 else "") for row in rows]  # type: ignore[call-arg]
        return [process for process in found if fields not in process.command]

    def listening(self) -> list[Listener]:
        """TCP ports listened on, those of the SSH server too."""
        found = []
        for line in self.exec(["ss", "-Hltnp"]).stdout.splitlines():
            words = line.split()
            address, _, port = words[3].rpartition(":")
            name, pid = _owner(words[5]) if len(words) > 5 else (None, None)
            found.append(Listener(address.strip("[]"), int(port), pid, name))
        return found

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
            drop(self._running.pid, direction, peer)

    def heal(self) -> None:
        """Undo every cut and `slow`."""
        self.lab.network.replug(self.place)
        self.lab.network.slow(self.place, None)
        drop_nothing(self._running.pid)

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
        self._running.ask("stop_sshd", sessions=sessions)

    def start_sshd(self) -> None:
        self._running.ask("start_sshd")
        self._wait_for_ssh()

    def restart_sshd(self) -> None:
        self.stop_sshd()
        self.start_sshd()

    def mask(self, path: str) -> None:
        """Make a file of the host unreadable and not executable until its next boot."""
        self._running.ask("mask", path=os.path.realpath(path))

    def install_script(self, name: str, text: str) -> None:
        """Put an executable into the host's own /usr/local/bin (a fake nvidia-smi, say)."""
        disk.write_script(self.folder, name, text)

    def power_off(self) -> None:
        """Everything inside dies at once. The disk stays; `boot` starts it again."""
        if self.namespace is not None:
            self.namespace.kill()
            self.namespace = None

    def boot(self) -> None:
        """Start after `power_off`, with a new boot id, empty /run, /dev/shm and process table."""
        disk.new_boot_id(self.folder)
        shutil.rmtree(self.folder / "farm/var-lib", ignore_errors=True)
        self.lab.start([self])

    def reboot(self) -> None:
        self.power_off()
        self.boot()

    def _wait_for_ssh(self) -> None:
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


class Lab:
    """`count` hosts that this machine reaches, and `hidden` more that only the first of them reaches.

    `spec` serves for all hosts; `specs` gives the first ones their own. `binds` are folders of the machine that the
    hosts see at the same path, read-only, where a folder of their own would cover them. Everything lives in one
    folder and ends with this process, however it ends. Raises LabUnavailable naming what this machine lacks.
    """

    def __init__(
        self,
        count: int = 2,
        *,
        hidden: int = 0,
        spec: HostSpec | None = None,
        specs: Sequence[HostSpec] = (),
        binds: Sequence[str | Path] = (),
        shared_home: bool = False,
    ):
        if not 1 <= count <= MAX_VISIBLE or not 0 <= hidden <= MAX_HIDDEN:
            raise ValueError(f"a lab has 1 to {MAX_VISIBLE} hosts and up to {MAX_HIDDEN} hidden ones")
        every = spec or HostSpec()
        self._specs = [*specs, *[every] * (count + hidden - len(specs))]
        self._places = [Place(n, False) for n in range(1, count + 1)] + [Place(n, True) for n in range(1, hidden + 1)]
        self._binds = [str(Path(path).resolve()) for path in binds]
        self._shared_home = shared_home
        self.hosts: list[Host] = []
        self._up = False

    def __enter__(self) -> Lab:
        return self.up()

    def __exit__(self, *exc: object) -> None:
        self.down()

    def up(self) -> Lab:
        """Make and start everything; on failure nothing is left. Returns itself."""
        needs.require()
        folder.sweep()
        self.folder, octet = folder.claim()
        self._up = True
        atexit.register(self.down)
        try:
            self.network = Network(octet)
            self.key_path = self.folder / "key"
            self.known_hosts = self.folder / "known_hosts"
            self._prepare(disk.make_key(self.key_path, "pilothouse-lab"))
            self.network.up()
            self.start(self.hosts)
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """End all hosts, the network and the folder; a second call does nothing."""
        if not self._up:
            return
        self._up = False
        atexit.unregister(self.down)
        for host in self.hosts:
            host.power_off()
        self.network.down()
        folder.remove(self.folder)

    @property
    def machine_address(self) -> str:
        """Where hosts reach this machine (bind a panel or a registry to it, or to 0.0.0.0)."""
        return self.network.machine_address

    def _prepare(self, public_key: str) -> None:
        for number, (place, spec) in enumerate(zip(self._places, self._specs, strict=True), 1):
            self.hosts.append(Host(self, place, spec.name or f"node{number}", spec))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda host: disk.prepare(host.folder, host.name, host.spec, public_key), self.hosts))
        if self._shared_home:
            for host in self.hosts[1:]:
                disk.share_homes(self.hosts[0].folder, host.folder)
        names = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self.hosts)]
        for host in self.hosts:
            (host.folder / "etc/hosts").write_text("\n".join(names) + "\n")
            disk.write_config(host.folder, host.name, host.spec, self._binds)
            self._permit_binds(host)
        self.known_hosts.write_text("".join(_known_host(host) for host in self.hosts))

    def _permit_binds(self, host: Host) -> None:
        """An ordinary user must get through /root to a folder that is shown below it."""
        if any(path.startswith("/root/") for path in self._binds):
            (host.folder / "root").chmod(0o711)

    def start(self, hosts: Sequence[Host]) -> None:
        """Boot the given hosts side by side and wait until their SSH servers greet."""
        for host in hosts:
            host.namespace = Namespace(host.folder)
        self._record()
        running = [(host, host._running) for host in hosts]
        for _, namespace in running:
            namespace.wait_for("built")
        foot = next((namespace.pid for host, namespace in running if self._has_foot(host)), None)
        self.network.plug([(namespace.pid, host.place) for host, namespace in running], foot)
        for host, namespace in running:
            namespace.tell("network", lines=self.network.inside(host.place, self._has_foot(host)))
            namespace.tell("start_sshd")
        for host, namespace in running:
            namespace.wait_for("network")
            namespace.wait_for("start_sshd")
            host._wait_for_ssh()

    def _has_foot(self, host: Host) -> bool:
        return host is self.hosts[0] and any(place.hidden for place in self._places)

    def _record(self) -> None:
        pids = [host.namespace.outer_pid for host in self.hosts if host.namespace is not None]
        folder.record_processes(self.folder, [self.network.switch_pid, *pids])


def _known_host(host: Host) -> str:
    pattern = host.address if host.port == 22 else f"[{host.address}]:{host.port}"
    return f"{pattern} {host.host_key}\n"


def _owner(users: str) -> tuple[str | None, int | None]:
    """Name and pid out of ss's `users:(("sshd",pid=7,fd=3))`, the first if several."""
    name = users.split('"')[1] if '"' in users else None
    pid = users.partition("pid=")[2].partition(",")[0]
    return name, int(pid) if pid.isdigit() else None
