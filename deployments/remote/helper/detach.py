"""Leaving the login session's cgroup, so that neither logging out nor a restart of sshd ends what was started.

Best effort: where it cannot be done quickly and safely it is not done, and `probe` reports the risk.
"""

import contextlib
import os
import threading

from . import paths
from .later import Later

subprocess = Later("subprocess")

_TRY_S = 3.0
_SCOPE = ["--scope", "--quiet", "--collect"]
_lock = threading.Lock()
_known = []


def lingers(user):
    """Whether the user's own systemd outlives their last login."""
    return os.path.exists("/var/lib/systemd/linger/" + user)


def has_systemd():
    return os.path.isdir("/run/systemd/system")


def prefix():
    """Words to put before a command so that it runs in a scope of its own; [] where there is no safe way."""
    with _lock:
        if not _known:
            _known.append(_find_prefix())
        return list(_known[0])


def _find_prefix():
    if not has_systemd():
        return []
    if os.geteuid() == 0:
        words = ["systemd-run", *_SCOPE]
    elif lingers(paths.user()[0]):
        words = ["systemd-run", "--user", *_SCOPE]
    else:
        # Without lingering the user's manager ends with the last login: the login session is the safer place.
        return []
    return words if _works([*words, "--", "true"]) else []


def _works(argv):
    null = subprocess.DEVNULL
    try:
        return subprocess.call(argv, stdin=null, stdout=null, stderr=null, timeout=_TRY_S) == 0
    except (OSError, subprocess.SubprocessError):
        return False


def move(pid):
    """Without systemd: lets root move a process into a cgroup of its own (cgroup v2 only)."""
    top = "/sys/fs/cgroup"
    if os.geteuid() != 0 or has_systemd() or not os.path.exists(top + "/cgroup.controllers"):
        return
    with contextlib.suppress(OSError):
        if (paths.read_text("/proc/%d/cgroup" % pid) or "").strip() == "0::/":
            return
        os.makedirs(top + "/pilothouse", exist_ok=True)
        with open(top + "/pilothouse/cgroup.procs", "w") as file:
            file.write(str(pid))
