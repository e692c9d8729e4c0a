"""What a lab host is asked to be like: logins, shells, noise, faults. Values only, nothing is done here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SHELLS = {
    "bash": "/bin/bash",
    "sh": "/bin/sh",
    "csh": "/bin/csh",
    "tcsh": "/bin/tcsh",
    "fish": "/usr/bin/fish",
}


@dataclass(frozen=True, slots=True)
class Login:
    """A user that may log in with the lab's key.

    `shell` is a short name of `SHELLS` or an absolute path. `noisy` fills the rc files that this shell reads for a
    remote command with output on both streams; `rc` is added to them as it is (in that shell's own language).
    """

    name: str = "root"
    shell: str = "bash"
    noisy: bool = False
    rc: str = ""

    @property
    def shell_path(self) -> str:
        return SHELLS.get(self.shell, self.shell)


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One host. Everything has a default; `name` becomes node1, node2, ... by its place in the lab.

    `machine_id`: 32 hex digits, random if None (give two hosts the same one to imitate cloned disks).
    `state_mb`: size of /var/lib/pilothouse in MiB, None for a folder on the machine's disk.
    `scripts`: executables for /usr/local/bin, name to text. `masked`: paths that cannot be read or run on this host.
    `sshd_options`: lines put in front of the server's configuration, where the first mention of an option wins.
    """

    name: str | None = None
    root: Login = Login()
    logins: tuple[Login, ...] = ()
    banner: str = ""
    ssh_port: int = 22
    machine_id: str | None = None
    state_mb: int | None = None
    shm_mb: int = 2048
    scripts: Mapping[str, str] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    sshd_options: tuple[str, ...] = ()
