"""What the lab needs of a machine, said by name, so that a skip or a failure can say it too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Command to the Debian package that brings it.
COMMANDS = {
    "ip": "iproute2",
    "ss": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ps": "procps",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "tcsh": "tcsh",
    "fish": "fish",
}
HOST_PYTHON = "/usr/bin/python3"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LabUnavailable(RuntimeError):
    """This machine cannot carry the lab; the text names every missing part."""


def find(command: str) -> str:
    """Absolute path of a command, looked for in the system folders whatever PATH says. Raises LabUnavailable."""
    path = shutil.which(command, path=SEARCH_PATH)
    if path is None:
        raise LabUnavailable(f"no {command} (Debian package {COMMANDS.get(command, command)})")
    return path


def missing() -> list[str]:
    """Every reason why the lab cannot run here; empty when it can."""
    if not sys.platform.startswith("linux"):
        return [f"Linux (this is {sys.platform})"]
    reasons = [] if os.geteuid() == 0 else ["root (namespaces, bridges and mounts are made)"]
    for command, package in COMMANDS.items():
        if shutil.which(command, path=SEARCH_PATH) is None:
            reasons.append(f"{command} (Debian package {package})")
    if not Path(HOST_PYTHON).exists():
        reasons.append(f"{HOST_PYTHON} (Debian package python3)")
    if not reasons and not _namespaces_allowed():
        reasons.append("the right to make namespaces (a container without CAP_SYS_ADMIN cannot)")
    return reasons


def require() -> None:
    """Raises LabUnavailable naming all that is missing."""
    if reasons := missing():
        raise LabUnavailable("the lab needs: " + "; ".join(reasons))


def _namespaces_allowed() -> bool:
    trial = [find("unshare"), "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "true"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0
