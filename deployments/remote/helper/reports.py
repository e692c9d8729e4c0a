"""What a node says about itself and its processes, once when asked or again and again."""

import contextlib
import os
import threading
import time

from . import SCHEMA, logs, procfs
from .members import Scanner
from .paths import read_text
from .probes import OpenAiProbe, Prober
from .record import LOG_TAIL, Record

_SETTLED_S = 60.0
_LOOK_S = 0.1
_SHORTEST_S = 0.2
_STEP_NS = 100 * 1000 * 1000
_ENDS = ("exit.json", "stopped.json", "stop-proof.json")


class Reporter:
    """Builds reports for one installation; keeps the process table and the probes between them."""

    def __init__(self, folder, gpus=None):
        self._folder = folder
        self._gpus = gpus
        self._scanner = Scanner()
        self._records = {}
        self._probers = {}
        self._ended = set()
        self._states = {}
        self._lock = threading.Lock()
        self._watchers = []

    def build(self, gpu_s=None):
        """One report, as the protocol describes it; with GPU figures if the seconds until the next one are given."""
        with self._lock:
            self._scanner.refresh()
            names = self._folder.processes()
            self._drop(names)
            described = {name: self._process(name) for name in names if name not in self._ended}
            described = {name: value for name, value in described.items() if value is not None}
            return {
                "schema": SCHEMA,
                "at": time.time(),
                "boot_id": procfs.boot_id(),
                "uptime_s": procfs.uptime(),
                "hostname": os.uname().nodename,
                "host": _host(),
                "gpu": self._gpus.newest(described, gpu_s) if self._gpus and gpu_s else None,
                "processes": described,
                "strays": self._strays(names),
                "ended": sorted(self._ended),
            }

    @contextlib.contextmanager
    def changes(self):
        """An event that is set whenever a probe's result changes."""
        event = threading.Event()
        self._watchers.append(event)
        try:
            yield event
        finally:
            self._watchers.remove(event)

    def set(self):
        """A probe's result changed: wakes all watchers."""
        for event in list(self._watchers):
            event.set()

    def states(self):
        """What tells a watcher that a process began or ended, cheap enough to be looked at ten times a second.

        Everything is told by files that come or go, which their folder's time shows; but main may end unseen by any
        supervisor.
        """
        found = {}
        for name in self._folder.processes():
            if name not in self._ended:
                main, ends = self._files(self._record(name))
                runs = main is not None and not any(ends) and procfs.find(main["pid"], main["start_time"]) is not None
                found[name] = (main is not None, runs, *ends)
        return found

    def _files(self, record):
        """(main's record or None, whether each of its ends is written down), read again when the folder changed."""
        changed = _changed_ns(record.path)
        known = self._states.get(record.process)
        if known is None or known[0] != changed:
            ends = tuple(os.path.exists(record.file(file)) for file in _ENDS)
            main = record.main() if record.of_this_boot() else None
            known = (changed, (main, ends))
            # A folder's time has coarse steps: what it says of this very moment may still change without a trace.
            if time.time_ns() - changed > _STEP_NS:
                self._states[record.process] = known
        return known[1]

    def _record(self, name):
        return self._records.setdefault(name, Record(self._folder, name))

    def _drop(self, names):
        for gone in set(self._records) - set(names):
            self._records.pop(gone, None)
            self._states.pop(gone, None)
            self._end_probe(gone)
        self._ended &= set(names)

    def _process(self, name):
        record = self._record(name)
        main, stopped, proof = record.main(), record.stopped(), record.proof()
        if main is None and stopped is None:
            # Half-made: a start is under way, failed, or will be repeated.
            return None
        members = self._scanner.members(record)
        supervised = record.supervisor() is not None
        if members and not supervised:
            self._stand_in(record, members)
        exit_ = record.exit()
        # Until a live supervisor has written the exit down, main counts as alive: an end comes with its code.
        alive = exit_ is None and (record.main_runs() or (supervised and main is not None))
        if not alive and not members:
            self._retire(name, proof if main else stopped)
        return self._described(record, main, stopped, members, supervised, exit_, alive)

    def _described(self, record, main, stopped, members, supervised, exit_, alive):
        request = record.request()
        probe = self._probe(record, alive)
        base, size = logs.extent(record)
        main = main or {}
        return {
            "replica": request.get("replica"),
            "attempt": request.get("attempt"),
            "role": request.get("role"),
            "pid": main.get("pid"),
            "start_time": main.get("start_time"),
            "started_at": main.get("started_at"),
            "alive": alive,
            "supervised": supervised,
            "exit": exit_,
            "tombstone": not main and stopped is not None,
            "stopped": stopped is not None,
            "members": [_member(entry) for entry in members],
            "probe": probe.as_dict() if probe else None,
            "log": {"base": base, "size": size},
            "log_tail": logs.tail(record, LOG_TAIL) if _is_news(record, main, alive, probe) else None,
        }

    def _stand_in(self, record, members):
        """Does the supervisor's bookkeeping for a process that lost it."""
        with contextlib.suppress(OSError):
            record.note((entry.pid, entry.start_time) for entry in members)
            logs.cap(record, int(record.request().get("log_cap_bytes") or 0) or 1 << 62)

    def _retire(self, name, mark):
        if mark is not None and mark.get("proven", True) and time.time() - mark.get("at", 0) > _SETTLED_S:
            self._ended.add(name)

    def _probe(self, record, alive):
        if not alive:
            self._end_probe(record.process)
            return None
        wanted = record.request().get("probe") or {}
        if wanted.get("kind") != "openai":
            return None
        prober = self._probers.get(record.process)
        if prober is None:
            prober = self._probers[record.process] = Prober(OpenAiProbe(wanted, record.secrets()), self)
            prober.start()
        return prober.probe

    def _end_probe(self, name):
        prober = self._probers.pop(name, None)
        if prober:
            prober.end()

    def _strays(self, names):
        """Processes with this installation's marker whose folder is gone."""
        found = []
        for (installation, process), entries in sorted(self._scanner.marked().items(), key=str):
            if installation == self._folder.installation and process not in names:
                found += [
                    {"process": process, "installation": installation, "pid": entry.pid, "name": procfs.title(entry)}
                    for entry in entries
                ]
        return found


def _changed_ns(path):
    """When something in a folder was last made, replaced or removed; 0 for one that is gone."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _member(entry):
    return {"pid": entry.pid, "start_time": entry.start_time, "name": procfs.title(entry), "rss": entry.rss}


def _is_news(record, main, alive, probe):
    """Whether the log's tail belongs in a report: while starting, for a minute after, and when it ended unasked."""
    if not main:
        return False
    if not alive:
        return record.proof() is None
    if probe is not None:
        return probe.passed_at is None or time.monotonic() - probe.passed_at < _SETTLED_S
    try:
        return time.time() - os.stat(record.log).st_mtime < _SETTLED_S
    except OSError:
        return False


def _host():
    memory = {}
    for line in (read_text("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        memory[name] = int(rest.split()[0]) * 1024
    return {
        "load": list(os.getloadavg()),
        "memory_available": memory.get("MemAvailable"),
        "swap_free": memory.get("SwapFree"),
    }


def report(session, call):
    """The verb: one report."""
    return session.reporter.build(1.0 if call.args.get("gpu") else None)


def watch(session, call):
    """The verb: a report each interval, and at once when a process ends or its probe's result changes.

    A beginning waits for the next interval: who asked for it knows it from the answer.
    """
    interval = max(_SHORTEST_S, float(call.args.get("interval_s") or 1.0))
    reporter = session.reporter
    with reporter.changes() as changed:
        while not call.cancelled.is_set():
            changed.clear()
            before = reporter.states()
            call.event(reporter.build(interval if call.args.get("gpu") else None))
            _wait(call, reporter, changed, before, time.monotonic() + interval)
    return {"ended": "cancelled"}


def _wait(call, reporter, changed, before, deadline):
    while time.monotonic() < deadline and not call.cancelled.is_set():
        if changed.wait(_LOOK_S) or _ends(reporter.states()) != _ends(before):
            return


def _ends(states):
    """The states of what has begun and no longer runs."""
    return {name: state for name, state in states.items() if state[0] and not state[1]}
