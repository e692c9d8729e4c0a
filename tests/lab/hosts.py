"""The lab: hosts out of namespaces, plugged into one switch.

    with Lab(2) as lab:
        one, two = lab.hosts
        one.ssh("hostname").stdout

The machine that runs the lab reaches each host at `host.address`:`host.port`; the hosts reach it at
`lab.machine_address`. A hidden host is reached through `host.jump` only.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab import disk, folder, needs
from tests.lab.host import Host
from tests.lab.namespace import Namespace
from tests.lab.network import MAX_HIDDEN, MAX_VISIBLE, Network, Place
from tests.lab.spec import HostSpec


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
            if host.namespace is not None:
                host.namespace.kill()
                host.namespace = None
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
        running = [(host, host.running) for host in hosts]
        for _, namespace in running:
            namespace.wait_for("built")
        foot = next((namespace.pid for host, namespace in running if self.has_foot(host)), None)
        self.network.plug([(namespace.pid, host.place) for host, namespace in running], foot)
        for host, namespace in running:
            namespace.tell("network", lines=self.network.inside(host.place, self.has_foot(host)))
            namespace.tell("start_sshd")
        for host, namespace in running:
            namespace.wait_for("network")
            namespace.wait_for("start_sshd")
            host.wait_for_ssh()

    def has_foot(self, host: Host) -> bool:
        return host is self.hosts[0] and any(place.hidden for place in self._places)

    def _record(self) -> None:
        pids = [host.namespace.outer_pid for host in self.hosts if host.namespace is not None]
        folder.record_processes(self.folder, [self.network.switch_pid, *pids])


def _known_host(host: Host) -> str:
    pattern = host.address if host.port == 22 else f"[{host.address}]:{host.port}"
    return f"{pattern} {host.host_key}\n"
