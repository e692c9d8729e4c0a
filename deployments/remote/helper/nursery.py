"""A copy of this process from before it had threads, which turns copies of itself into supervisors on request.

A supervisor made so costs a node a fork; a new Python with all its imports costs thirty times that, and thirty nodes
may share a machine. Where it cannot be used (a systemd scope is wanted, or it is gone) a new Python is started.
"""

import ctypes
import json
import os
import select
import signal
import sys
import threading
import time

from . import detach, supervise
from .paths import read_text

# What of the login's environment a supervisor sees.
KEPT = ("HOME", "USER", "PATH", "TMPDIR", "XDG_RUNTIME_DIR")
_FDS = 4096


class Nursery:
    """The side of it that asks. Made by the main thread before others exist."""

    def __init__(self):
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._lock = threading.Lock()
        if os.fork() == 0:
            _live(requests, answers)
        os.close(requests)
        os.close(answers)

    def supervise(self, args, errors, deadline_s):
        """Makes a supervisor; its first words, or None when none came. `errors`: the file it complains into."""
        line = json.dumps({"args": args, "errors": errors}).encode("utf-8") + b"\n"
        with self._lock:
            if self._requests is None:
                return None
            try:
                while line:
                    line = line[os.write(self._requests, line) :]
                words = _line(self._answers, time.monotonic() + deadline_s)
            except OSError:
                words = None
            if words is None:
                # Late words would be taken for the next one's: it is of no use any more.
                os.close(self._requests)
                self._requests = None
        return json.loads(words.decode("utf-8")) if words else None


def _line(fd, deadline=None):
    """The next line without its end, or None when the writer is gone or the time is over."""
    data = b""
    while not data.endswith(b"\n"):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        part = os.read(fd, 65536) if select.select([fd], [], [], left)[0] else b""
        if not part:
            return None
        data += part
    return data[:-1]


def _live(requests, answers):
    """Never returns: serves until the helper is gone."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        first, second = sorted((requests, answers))
        os.closerange(3, first)
        os.closerange(first + 1, second)
        os.closerange(second + 1, _FDS)
        for name in set(os.environ) - set(KEPT):
            del os.environ[name]
        while True:
            line = _line(requests)
            if line is None:
                break
            os.write(answers, _bear(json.loads(line.decode("utf-8"))) + b"\n")
    finally:
        os._exit(0)


def _bear(request):
    """Forks one supervisor; its first words as JSON, empty when it died without any."""
    inside, outside = os.pipe()
    if os.fork() == 0:
        _become(request, outside)
    os.close(outside)
    line = _line(inside) or b""
    os.close(inside)
    return line.partition(b"PHSTART ")[2]


def _become(request, outside):
    """Never returns: what a new Python would be by now, then a supervisor."""
    code = 1
    try:
        os.setsid()
        errors = os.open(request["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(errors, 2)
        os.dup2(outside, 1)
        os.closerange(3, _FDS)
        os.chdir("/")
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        detach.move(os.getpid())
        _name("pilothouse-supervisor:" + request["args"]["process"])
        supervise.main("", {"args": request["args"]})
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


def _name(title):
    """Writes a title over this process's command line, as far as it has room."""
    # Fields 48 and 49 of the stat file; the words after the name begin with field 3.
    start, end = (int(word) for word in read_text("/proc/self/stat").rpartition(")")[2].split()[45:47])
    text = title.encode("ascii")[: end - start - 2]
    # The last byte is not zero: so the kernel knows that this is a title, and shows it to its first zero.
    ctypes.memmove(start, text + bytes(end - start - len(text) - 1) + b".", end - start)
