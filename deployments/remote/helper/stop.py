"""Stopping a process and proving it: a signal, a grace time, SIGKILL until nobody is left, a look at what it held."""

import contextlib
import os
import signal
import time

from . import accelerators, paths, procfs, sockets
from .errors import HelperError
from .members import Scanner
from .record import Record

_POLL_S = 0.1
# Members without their main do not know how to stop in an orderly way: they get this long at most.
_ORPHAN_GRACE_S = 2.0
# Ports close and drivers give memory back a little after the last process is gone.
_SETTLE_S = 5.0
_EXIT_S = 1.0


def stop(session, call):
    """The verb. Returns the proof, or what is missing for one; may be repeated.

    Raises:
        HelperError: INVALID_ID, BAD_REQUEST.
    """
    began = time.monotonic()
    record = Record(session.folder, call.args.get("process"))
    number = procfs.signal_number(call.args.get("signal") or "TERM")
    if number is None:
        raise HelperError("BAD_REQUEST", "There is no signal %r." % call.args.get("signal"))
    if not _mark(session.folder, record):
        return _result(record, began, known=False)
    stopping = Stopping(record)
    grace, kill = (_seconds(call.args, name, 10.0) for name in ("grace_s", "kill_s"))
    stopping.run(number, grace, kill)
    result = _result(record, began, stopping)
    paths.write_json(record.file("stop-proof.json"), dict(result, at=time.time()))
    if result["proven"]:
        # Nobody needs them any more.
        with contextlib.suppress(OSError):
            os.unlink(record.file("secrets.json"))
    return result


def _seconds(args, name, default):
    value = args.get(name)
    return default if value is None else max(0.0, float(value))


def _mark(folder, record):
    """Writes the stop record, so that no later start succeeds. False when there is nothing that was ever started."""
    if os.path.exists(folder.tombstone(record.process)):
        return False
    with contextlib.suppress(FileExistsError):
        os.mkdir(record.path, 0o700)
    with paths.locked(record.lock):
        if record.stopped() is None:
            _mark_once(record)
        return record.main() is not None


def _mark_once(record):
    """A crashed helper may have left a supervisor that is about to start main: it comes first or sees the mark."""
    deadline = time.monotonic() + _SETTLE_S
    fd = None
    while record.main() is None and fd is None and time.monotonic() < deadline:
        fd = paths.try_lock(record.supervisor_lock)
        if fd is None:
            time.sleep(0.02)
    try:
        paths.write_json(record.file("stopped.json"), {"at": time.time()}, durable=True)
    finally:
        if fd is not None:
            os.close(fd)


class Stopping:
    """One stop of one process, and what it saw."""

    def __init__(self, record):
        self.record = record
        self.scanner = Scanner()
        self.first = []
        self.signals = []
        self.pids = {pid for pid, _ in record.seen()}
        self.left_ports = []
        self.left_accelerators = []

    def members(self):
        found = self.scanner.refresh().members(self.record)
        self.pids.update(entry.pid for entry in found)
        if found:
            with contextlib.suppress(OSError):
                self.record.note((entry.pid, entry.start_time) for entry in found)
        return found

    def run(self, number, grace_s, kill_s):
        self.first = [{"pid": entry.pid, "name": procfs.title(entry)} for entry in self.members()]
        if self.first:
            self._ask(number, grace_s)
        deadline = time.monotonic() + kill_s
        self._kill(deadline)
        self._settle(max(deadline, time.monotonic() + 1.0))

    def _ask(self, number, grace_s):
        members = self.members()
        if self.record.main_runs():
            group = self.record.main()["pid"]
            self._note(number, [entry.pid for entry in members if entry.group == group])
            procfs.send_group(group, number)
        else:
            grace_s = min(grace_s, _ORPHAN_GRACE_S)
            self._send(members, number)
        deadline = time.monotonic() + grace_s
        while members and time.monotonic() < deadline:
            time.sleep(min(_POLL_S, grace_s))
            members = self.members()

    def _kill(self, deadline):
        """Kills and looks again until a look finds nobody: what was forked while being killed is found then."""
        while True:
            members = self.members()
            if not members:
                return
            self._send(members, signal.SIGKILL)
            if time.monotonic() >= deadline:
                return
            time.sleep(_POLL_S)

    def _send(self, members, number):
        self._note(number, [entry.pid for entry in members])
        for entry in members:
            procfs.send(entry.pid, entry.start_time, number)

    def _note(self, number, pids):
        name = signal.Signals(number).name[3:]
        said = {pid for sent in self.signals if sent["signal"] == name for pid in sent["to"]}
        fresh = [pid for pid in pids if pid not in said]
        if fresh:
            self.signals.append({"signal": name, "at": time.time(), "to": fresh})

    def _settle(self, deadline):
        """Waits until ports are closed and accelerator memory is back, or the time is over."""
        if not self.record.of_this_boot():
            return
        request = self.record.request()
        deadline = min(deadline, time.monotonic() + _SETTLE_S)
        while True:
            self.left_ports = self._open_ports(request.get("ports") or [])
            self.left_accelerators = self._held(request.get("accelerators") or [])
            if not (self.left_ports or self.left_accelerators) or time.monotonic() >= deadline:
                return
            time.sleep(_POLL_S)

    def _open_ports(self, ports):
        """Ports that a member, or somebody we may not see, still listens on; another process's port is not ours."""
        owners = sockets.owners(ports)
        return sorted(port for port, pids in owners.items() if not pids or pids & self.pids)

    def _held(self, uuids):
        baseline = paths.read_json(self.record.file("baseline.json"))
        return accelerators.held(uuids, baseline, self.pids)


def _result(record, began, stopping=None, known=True):
    members = stopping.members() if stopping else []
    left = {
        "members": [{"pid": entry.pid, "name": procfs.title(entry)} for entry in members],
        "ports": stopping.left_ports if stopping else [],
        # null: nothing on this node could tell.
        "accelerators": stopping.left_accelerators if stopping else [],
    }
    return {
        "proven": not (left["members"] or left["ports"] or left["accelerators"]),
        "known": known,
        "members": stopping.first if stopping else [],
        "signals": stopping.signals if stopping else [],
        "left": left,
        "exit": _exit(record) if known and not members else record.exit(),
        "took_s": round(time.monotonic() - began, 3),
    }


def _exit(record):
    """The exit, waited for a moment: main is gone, its supervisor may still be writing."""
    deadline = time.monotonic() + _EXIT_S
    while record.exit() is None and record.supervisor() is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    return record.exit()


def forget(session, call):
    """The verb: removes a process's folder and leaves a tombstone.

    Raises:
        HelperError: STILL_RUNNING while a member lives.
    """
    record = Record(session.folder, call.args.get("process"))
    members = Scanner().refresh().members(record)
    if members:
        pids = [entry.pid for entry in members]
        message = "Process %s still has %d members." % (record.process, len(pids))
        raise HelperError("STILL_RUNNING", message, "Stop it first.", {"pids": pids})
    tombstone = session.folder.tombstone(record.process)
    paths.write_json(tombstone, {"at": time.time()}, durable=True)
    if record.exists():
        _remove(session.folder, record)
    return {"forgotten": record.process}


def _remove(folder, record):
    with paths.locked(record.lock):
        # Under its own name it could be taken for a half-made start while it is being emptied.
        gone = os.path.join(folder.base, "gone-" + record.process)
        os.rename(record.path, gone)
    for name in os.listdir(gone):
        os.unlink(os.path.join(gone, name))
    os.rmdir(gone)
