"""A host's own files, written before it starts: identity, users, homes, SSH server, rc files that make noise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

from tests.lab import needs
from tests.lab.spec import HostSpec, Login

FIRST_UID = 5001
# What the host has for itself: path below its folder, and where it appears.
OWN = (
    ("etc/hostname", "/etc/hostname"),
    ("etc/hosts", "/etc/hosts"),
    ("etc/machine-id", "/etc/machine-id"),
    ("etc/passwd", "/etc/passwd"),
    ("etc/group", "/etc/group"),
    ("etc/shadow", "/etc/shadow"),
    ("root", "/root"),
    ("home", "/home"),
    ("tmp", "/tmp"),
    ("var-tmp", "/var/tmp"),
    ("var-log", "/var/log"),
    ("state", "/var/lib/pilothouse"),
)
FOLDERS = {
    "etc": 0o755,
    "ssh": 0o755,
    "home": 0o755,
    "root": 0o700,
    "state": 0o755,
    "var-log": 0o755,
    "shown/bin": 0o755,
}
SSHD_CONFIG = """\
Port {port}
AddressFamily inet
HostKey /run/lab/ssh/host_key
PidFile none
AuthorizedKeysFile /run/lab/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
UseDNS no
PrintMotd no
LogLevel VERBOSE
MaxStartups 100:30:200
MaxSessions 100
Subsystem sftp internal-sftp
"""
NOISE = {
    "bash": (
        ".bashrc",
        "echo 'Welcome to the cluster. Quota: 3 % used.'\nprintf 'no newline at the end'\necho 'stty: not a tty' >&2\n",
    ),
    "sh": (".profile", "echo 'Welcome to the cluster. Quota: 3 % used.'\n"),
    "csh": (".cshrc", "echo 'Welcome to the cluster. Quota: 3 % used.'\necho -n 'no newline at the end'\n"),
    "fish": (".config/fish/config.fish", "echo 'Welcome to the cluster. Quota: 3 % used.'\necho 'fish: no tty' >&2\n"),
}
NOISE["tcsh"] = NOISE["csh"]


def make_key(path: Path, comment: str) -> str:
    """Create an ed25519 pair at `path` and `path`.pub (replacing an old one); returns the public line."""
    for old in (path, path.with_name(path.name + ".pub")):
        old.unlink(missing_ok=True)
    argv = [needs.find("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path.with_name(path.name + ".pub").read_text().strip()


def prepare(folder: Path, name: str, spec: HostSpec, public_key: str) -> None:
    """Write everything of one host below `folder` but the hosts file and `host.json`, which need the whole lab."""
    for relative, mode in FOLDERS.items():
        (folder / relative).mkdir(mode=mode, parents=True, exist_ok=True)
    for relative in ("tmp", "var-tmp"):
        (folder / relative).mkdir()
        (folder / relative).chmod(0o1777)
    (folder / "etc/hostname").write_text(name + "\n")
    (folder / "etc/hosts").write_text("")
    (folder / "etc/machine-id").write_text((spec.machine_id or uuid.uuid4().hex) + "\n")
    new_boot_id(folder)
    _write_users(folder, spec)
    _write_homes(folder, spec)
    _write_ssh(folder, name, spec, public_key)
    for script, text in spec.scripts.items():
        write_script(folder, script, text)


def new_boot_id(folder: Path) -> None:
    (folder / "etc/boot-id").write_text(str(uuid.uuid4()) + "\n")


def write_script(folder: Path, name: str, text: str) -> None:
    """Put an executable into the host's /usr/local/bin, over what the machine has there under this name."""
    path = folder / "shown/bin" / name
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def write_config(folder: Path, name: str, spec: HostSpec, binds: list[str]) -> None:
    """What PID 1 reads: the mounts, the masks, the name."""
    tmpfs = [("/dev/shm", f"mode=1777,size={spec.shm_mb}m")]
    if spec.state_mb is not None:
        tmpfs.append(("/var/lib/pilothouse", f"mode=755,size={spec.state_mb}m"))
    config = {
        "name": name,
        "sshd": needs.find("sshd"),
        "own": OWN,
        "tmpfs": tmpfs,
        "binds": binds,
        "masked": list(spec.masked),
    }
    (folder / "host.json").write_text(json.dumps(config))


def _write_users(folder: Path, spec: HostSpec) -> None:
    passwd = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")]
    passwd.insert(0, f"root:x:0:0:root:/root:{spec.root.shell_path}")
    group = Path("/etc/group").read_text().splitlines()
    # An account is open to keys although it has no password: with UsePAM off a locked one ("!") is refused.
    shadow = ["root:*:19000:0:99999:7:::"]
    for uid, login in enumerate(spec.logins, FIRST_UID):
        passwd.append(f"{login.name}:x:{uid}:{uid}::/home/{login.name}:{login.shell_path}")
        group.append(f"{login.name}:x:{uid}:")
        shadow.append(f"{login.name}:*:19000:0:99999:7:::")
    for name, lines, mode in (("passwd", passwd, 0o644), ("group", group, 0o644), ("shadow", shadow, 0o600)):
        path = folder / "etc" / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(mode)


def _write_homes(folder: Path, spec: HostSpec) -> None:
    _write_rc(folder / "root", spec.root)
    for uid, login in enumerate(spec.logins, FIRST_UID):
        home = folder / "home" / login.name
        home.mkdir(mode=0o700, exist_ok=True)
        _write_rc(home, login)
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, uid)


def _write_rc(home: Path, login: Login) -> None:
    if login.shell not in NOISE:
        return
    name, noise = NOISE[login.shell]
    text = (noise if login.noisy else "") + login.rc
    if text:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)


def _write_ssh(folder: Path, name: str, spec: HostSpec, public_key: str) -> None:
    make_key(folder / "ssh/host_key", name)
    (folder / "ssh/authorized_keys").write_text(public_key + "\n")
    options = list(spec.sshd_options)
    if spec.banner:
        (folder / "ssh/banner").write_text(spec.banner)
        options.append("Banner /run/lab/ssh/banner")
    text = "".join(option + "\n" for option in options) + SSHD_CONFIG.format(port=spec.ssh_port)
    (folder / "ssh/sshd_config").write_text(text)


def share_homes(first: Path, other: Path) -> None:
    """Let `other` have the very same /root and /home as `first`, as hosts with an NFS home have."""
    for name in ("root", "home"):
        shutil.rmtree(other / name)
        (other / name).symlink_to(first / name)
