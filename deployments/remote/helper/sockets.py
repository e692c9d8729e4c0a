"""Listening TCP ports and, where the kernel lets us see it, who listens."""

import os
import re

from . import procfs

_LISTEN = "0A"


def _listeners():
    """(port, inode) of every listening TCP socket in this network namespace."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTEN:
                yield int(words[1].rpartition(":")[2], 16), words[9]


def listening():
    """All ports somebody listens on, sorted."""
    return sorted({port for port, _ in _listeners()})


def owners(ports):
    """{port: set of pids}; a port with an empty set is open, but its owner is not visible to this user."""
    wanted = set(ports)
    sockets = {inode: port for port, inode in _listeners() if port in wanted}
    found = {port: set() for port in sockets.values()}
    if sockets:
        for pid in procfs.pids():
            for inode in _inodes(pid):
                if inode in sockets:
                    found[sockets[inode]].add(pid)
    return found


def _inodes(pid):
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            match = re.match(r"socket:\[(\d+)\]", os.readlink(folder + "/" + name))
        except OSError:
            continue
        if match:
            yield match.group(1)
