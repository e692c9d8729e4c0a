"""Who the processes on a GPU are: the user and a short command line."""

import os
import pwd
import re
import time

from . import procfs
from .paths import read_text

COMMAND_CAP = 200
# A process may give itself another title, or become another program.
_KEPT_S = 30.0
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")
# What follows such an option is nobody else's business, though the machine shows it to all its users.
_SECRET = re.compile(r"(?i)(--[\w-]*(?:key|token|secret|password))([= ])\S+")
_FIRST_NAMESPACE = "pid:[4026531836]"


class Owners:
    """Looks owners up in /proc, each once in a while."""

    def __init__(self):
        self._cache = {}
        self._names = {}
        self._translated = _namespace() != _FIRST_NAMESPACE

    def describe(self, holders):
        """Writes `user` and `command` into {"pid": ...} entries, None where that cannot be seen."""
        now, kept = time.monotonic(), {}
        for holder in holders:
            pid = holder["pid"]
            if pid not in kept:
                kept[pid] = self._entry(pid, now)
            holder["user"], holder["command"] = kept[pid][2:]
        self._cache = kept

    def _entry(self, pid, now):
        """(when to look again, start time, user, command)"""
        found = procfs.stat(pid)
        start = found and found.start_time
        known = self._cache.get(pid)
        if known is not None and known[0] > now and known[1] == start:
            return known
        if found is None or (self._translated and not _uses_gpu(pid)):
            return (now + _KEPT_S, start, None, None)
        return (now + _KEPT_S, start, self._user(pid), shortened(procfs.command(pid) or found.name))

    def _user(self, pid):
        # The owner of the folder is root for processes that may not be dumped; this is the real user.
        match = re.search(r"^Uid:\s*(\d+)", read_text("/proc/%d/status" % pid) or "", re.MULTILINE)
        if match is None:
            return None
        uid = int(match.group(1))
        if uid not in self._names:
            self._names[uid] = _name(uid)
        return self._names[uid]


def shortened(command):
    """A command line for people: no control characters, no secrets, at most 200 characters."""
    text = _SECRET.sub(r"\1\2***", _CONTROL.sub(" ", command)).strip()
    return text if len(text) <= COMMAND_CAP else text[: COMMAND_CAP - 1] + "…"


def _name(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _namespace():
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _uses_gpu(pid):
    """Whether a process has the driver open. In a container a driver may give pids of the host, and the same number is
    somebody else inside."""
    folder = "/proc/%d/fd" % pid
    try:
        return any(_target(folder, name).startswith(("/dev/nvidia", "/dev/dxg")) for name in os.listdir(folder))
    except OSError:
        return False


def _target(folder, name):
    try:
        return os.readlink(os.path.join(folder, name))
    except OSError:
        return ""
