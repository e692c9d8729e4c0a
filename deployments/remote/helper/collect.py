"""The black box of one process: what an operator wants to see after it ended."""

import re
import time

from . import logs, procfs, programs, sockets
from .errors import HelperError
from .members import Scanner
from .record import Record

_TAIL = 64 * 1024
_KERNEL = re.compile(r"NVRM|Xid|oom-kill|oom_reaper|Out of memory|Killed process|invoked oom-killer")
_KERNEL_LINES = 100
_KERNEL_S = 3.0


def collect(session, call):
    """The verb.

    Raises:
        HelperError: UNKNOWN_PROCESS.
    """
    record = Record(session.folder, call.args.get("process"))
    if not record.exists():
        raise HelperError("UNKNOWN_PROCESS", "This node knows no process %s." % record.process)
    request = record.request()
    return {
        "log_tail": logs.tail(record, _TAIL),
        "exit": record.exit(),
        "members": _members(record),
        "request": request or None,
        "kernel": kernel_lines(),
        "ports": _ports(request.get("ports") or []),
        "at": time.time(),
    }


def _members(record):
    """Live members, and those seen last with `alive` false."""
    live = Scanner().refresh().members(record)
    found = [
        {"pid": entry.pid, "start_time": entry.start_time, "name": procfs.title(entry), "rss": entry.rss, "alive": True}
        for entry in live
    ]
    gone = record.seen() - {(entry.pid, entry.start_time) for entry in live}
    return found + [{"pid": pid, "start_time": start, "name": None, "rss": None, "alive": False} for pid, start in gone]


def _ports(ports):
    owners = sockets.owners(ports)
    return [{"port": port, "open": port in owners, "pids": sorted(owners.get(port, ()))} for port in ports]


def kernel_lines():
    """The kernel's last words about GPUs and memory, or None where they may not be read."""
    path = programs.which("dmesg")
    done = programs.run([path], _KERNEL_S) if path else None
    if done is None or done.rc != 0:
        return None
    return [line for line in done.out.splitlines() if _KERNEL.search(line)][-_KERNEL_LINES:]
