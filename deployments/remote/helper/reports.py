"""What a node says about itself and its processes, once when asked or again and again."""

import contextlib
import os
import threading
import time

from . import SCHEMA, logs, metrics, procfs
from .errors import HelperError
from .host import Machine, Stream
from .members import Scanner
from .probes import OpenAiProbe, Prober
from .record import LOG_TAIL, Record

_SETTLED_S = 60.0
_LOOK_S = 0.1
_SHORTEST_S = 0.2
_STEP_NS = 100 * 1000 * 1000
# The panel takes no larger report; one that would be is sent without figures and with this much of each log.
_CAP, _SHORT_TAIL = 4 * 1024 * 1024, 1024
_ENDS = ("exit.json", "stopped.json", "stop-proof.json")


class Wanted:
    """Which figures the reports of one request carry, beside the processes, and the memory that their rates need."""

    def __init__(self, args, machine):
        self.interval_s = max(_SHORTEST_S, float(args.get("interval_s") or 1.0))
        self.metrics = frozenset(str(name) for name in args.get("metrics") or ())
        self.gpu = bool(args.get("gpu"))
        self.host = Stream(machine) if args.get("host", True) else None


class Reporter:
    """Builds reports for one installation; keeps the process table and the probes between them."""

    def __init__(self, folder, gpus=None):
        self.machine = Machine()
        self._folder = folder
        self._gpus = gpus
        self._scanner = Scanner()
        self._records = {}
        self._probers = {}
        self._scrapers = {}
        self._ended = set()
        self._states = {}
        self._lock = threading.Lock()
        self._watchers = []

    def build(self, wanted):
        """One report, as the protocol describes it, with the figures that are `Wanted`."""
        with self._lock:
            self._scanner.refresh()
            names = self._folder.processes()
            self._drop(names)
            described = {name: self._process(name, wanted) for name in names if name not in self._ended}
            described = {name: value for name, value in described.items() if value is not None}
            return {
                "schema": SCHEMA,
                "at": time.time(),
                "boot_id": procfs.boot_id(),
                "uptime_s": procfs.uptime(),
                "hostname": os.uname().nodename,
                **self._figures(described, wanted),
                "processes": described,
                "strays": self._strays(names),
                "ended": sorted(self._ended),
            }

    def _figures(self, described, wanted):
        """What is wanted of this machine's hardware; no key for what is not."""
        found = {}
        if wanted.host is not None:
            found["host"] = wanted.host.sample()
        if wanted.gpu:
            found["gpu"] = self._gpus.newest(described, wanted.interval_s) if self._gpus else None
        return found

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

    def _process(self, name, wanted):
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
        found = self._described(record, main, stopped, members, supervised, exit_, alive)
        if wanted.metrics:
            found["metrics"] = self._metrics(name, wanted)
        return found

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
        for threads in (self._probers, self._scrapers):
            thread = threads.pop(name, None)
            if thread:
                thread.end()

    def _metrics(self, name, wanted):
        """What an engine that serves said of itself; None for everything else."""
        prober = self._probers.get(name)
        if prober is None or prober.probe.passed_at is None:
            return None
        scraper = self._scrapers.get(name)
        if scraper is None or not scraper.is_alive():
            probe = prober.probe
            scraper = metrics.Scraper(probe.url, probe.token, wanted.metrics, wanted.interval_s)
            self._scrapers[name] = scraper
            # A machine that is out of threads has no figures, but still has a report.
            with contextlib.suppress(RuntimeError):
                scraper.start()
        return scraper.take(wanted.metrics)

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


def report(session, call):
    """The verb: one report."""
    reporter = session.reporter
    return reporter.build(Wanted(call.args, reporter.machine))


def watch(session, call):
    """The verb: a report each interval, and at once when a process ends or its probe's result changes.

    A beginning waits for the next interval: who asked for it knows it from the answer.
    """
    reporter = session.reporter
    wanted = Wanted(call.args, reporter.machine)
    with reporter.changes() as changed:
        while not call.cancelled.is_set():
            changed.clear()
            before = reporter.states()
            _send(call, reporter.build(wanted))
            _wait(call, reporter, changed, before, time.monotonic() + wanted.interval_s)
    return {"ended": "cancelled"}


def _send(call, whole):
    try:
        call.event(whole, _CAP)
    except HelperError:
        call.event(_without_figures(whole), _CAP)


def _without_figures(whole):
    """What jobs and the reconciler need of a report that is too large."""
    processes = {name: dict(entry) for name, entry in whole["processes"].items()}
    for entry in processes.values():
        entry["log_tail"] = entry["log_tail"] and entry["log_tail"][-_SHORT_TAIL:]
        entry.pop("metrics", None)
    return {name: value for name, value in dict(whole, processes=processes).items() if name not in ("gpu", "host")}


def _wait(call, reporter, changed, before, deadline):
    while time.monotonic() < deadline and not call.cancelled.is_set():
        if changed.wait(_LOOK_S) or _ends(reporter.states()) != _ends(before):
            return


def _ends(states):
    """The states of what has begun and no longer runs."""
    return {name: state for name, state in states.items() if state[0] and not state[1]}
