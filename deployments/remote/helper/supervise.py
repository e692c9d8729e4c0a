"""The supervisor of one process: starts it, adopts its orphans, writes down its end, caps its log. It decides nothing.

It runs in its own session, outlives the connection, and stays while any member lives. Its death harms nobody: the
program writes its log itself, and members are found without it.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time

from . import child, logs, paths, procfs
from .record import Record

_SUBREAPER = 36
_LOOK_S = 1.0
_FORGET_STRANGERS_S = 30.0
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE)


class Brood:
    """The live descendants of this process, cheap to keep: a process seen once to be a stranger stays one."""

    def __init__(self):
        self.live = {}
        self._strangers = set()
        self._forgot = time.monotonic()

    def look(self):
        """Refreshes and returns {pid: start time}."""
        if time.monotonic() - self._forgot > _FORGET_STRANGERS_S:
            # A stranger's number may have passed to a child of ours.
            self._strangers.clear()
            self._forgot = time.monotonic()
        numbers = set(procfs.pids())
        self._strangers &= numbers
        self.live = {pid: start for pid, start in self.live.items() if procfs.find(pid, start)}
        fresh = [procfs.stat(pid) for pid in numbers - self._strangers - set(self.live)]
        self._adopt([entry for entry in fresh if entry is not None and procfs.is_running(entry)])
        return self.live

    def _adopt(self, fresh):
        while True:
            ours = [entry for entry in fresh if self._is_ours(entry)]
            if not ours:
                break
            self.live.update((entry.pid, entry.start_time) for entry in ours)
            fresh = [entry for entry in fresh if entry.pid not in self.live]
        self._strangers.update(entry.pid for entry in fresh)

    def _is_ours(self, entry):
        return entry.ppid == os.getpid() or entry.ppid in self.live or entry.session in self.live


class Supervisor:
    """Runs one request to its end."""

    def __init__(self, record):
        self.record = record
        self.request = record.request()
        self.main_pid = None
        self.exit = None
        self.exit_written = False
        self.brood = Brood()

    def start(self):
        """Forks main. Returns what the helper is told: {"started": ...} or {"failure": ...}."""
        self._sign()
        env = child.environment(self.request, self.record.secrets(), self.record.installation)
        inside, outside = os.pipe()
        self.main_pid = os.fork()
        if self.main_pid == 0:
            child.become(self.record, self.request, env, outside)
        os.close(outside)
        with os.fdopen(inside, "rb") as file:
            failure = file.read()
        main = self.record.main()
        if failure or main is None:
            os.waitpid(self.main_pid, 0)
            return {"failure": json.loads(failure.decode("utf-8")) if failure else {"strerror": "died at once"}}
        return {"started": main}

    def _sign(self):
        me = procfs.stat(os.getpid())
        mine = {"pid": me.pid, "start_time": me.start_time, "boot_id": procfs.boot_id()}
        paths.write_json(self.record.file("supervisor.json"), mine)

    def watch(self):
        """Reaps and records until main has ended and no member is left."""
        wake = self._wakeups()
        cap = int(self.request.get("log_cap_bytes") or 0)
        while True:
            self._reap()
            self._write_exit()
            live = self.brood.look()
            with contextlib.suppress(OSError):
                self.record.note(live.items())
            if cap:
                logs.cap(self.record, cap)
            if self.exit_written and not live:
                return
            select.select([wake], [], [], _LOOK_S)
            with contextlib.suppress(OSError):
                os.read(wake, 4096)

    @staticmethod
    def _wakeups():
        inside, outside = os.pipe()
        os.set_blocking(inside, False)
        os.set_blocking(outside, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(outside)
        return inside

    def _reap(self):
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.main_pid:
                    self.exit = _ended(status)
                    self._write_exit()

    def _write_exit(self):
        if self.exit is not None and not self.exit_written:
            # On a full disk it is tried again at the next look.
            with contextlib.suppress(OSError):
                paths.write_json(self.record.file("exit.json"), self.exit, durable=True)
                self.exit_written = True


def _ended(status):
    if os.WIFSIGNALED(status):
        return {"code": None, "signal": os.WTERMSIG(status), "at": time.time()}
    return {"code": os.WEXITSTATUS(status), "signal": None, "at": time.time()}


def _say(answer):
    # The helper that asked may be gone; the start stands all the same.
    with contextlib.suppress(OSError):
        os.write(1, b"PHSTART " + json.dumps(answer).encode("utf-8") + b"\n")


def _let_go():
    """Closes the last ties to the connection that asked for this start."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    os.chdir("/")


def _claimed(record):
    """None when this supervisor is the one that starts the process; else why it is not."""
    if paths.try_lock(record.supervisor_lock) is None:
        return {"busy": True}
    if record.main() is not None:
        return {"started": record.main(), "already": True}
    if record.stopped() is not None:
        return {"fenced": True}
    return None


def main(nonce, bundle):
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    args = bundle["args"]
    record = Record(paths.StateFolder(args["base"], args["installation"]), args["process"])
    # The lock lives as long as this process: a second start, after a crash at any point, cannot start it twice.
    answer = _claimed(record)
    if answer is not None:
        _say(answer)
        sys.exit(0)
    supervisor = Supervisor(record)
    answer = supervisor.start()
    _say(answer)
    if "failure" in answer:
        sys.exit(0)
    _let_go()
    supervisor.watch()
