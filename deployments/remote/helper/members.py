"""Which running processes belong to a process of ours. Never by name.

A member carries our marker, or sits in main's session or process group, or descends from main, from another member or
from the supervisor (which adopts orphans), or was recorded earlier by pid and kernel start time.
"""

import time

from . import procfs

# Between fork and exec, and until a title is set, an environment can still change: young processes are read again.
_YOUNG_S = 5.0


class Scanner:
    """A process table that is cheap to refresh: environments are read once for each process, and again while young."""

    def __init__(self):
        self.table = {}
        self._marks = {}

    def refresh(self):
        self.table = procfs.snapshot()
        uptime = procfs.uptime() or time.monotonic()
        self._marks = {(entry.pid, entry.start_time): self._mark(entry, uptime) for entry in self.table.values()}
        return self

    def _mark(self, entry, uptime):
        known = self._marks.get((entry.pid, entry.start_time))
        if known is None or (known == (None, None) and uptime - entry.start_time / procfs.TICKS < _YOUNG_S):
            return procfs.markers(procfs.environment(entry.pid))
        return known

    def marked(self):
        """{(installation, process): [Stat]} of all processes that carry a marker."""
        found = {}
        for (pid, _), mark in self._marks.items():
            if mark[1] is not None:
                found.setdefault(mark, []).append(self.table[pid])
        return found

    def members(self, record):
        """The live members of a process as a list of Stats, in pid order."""
        if not record.of_this_boot():
            return []
        main = record.main()
        seeds = self._seen(record) | self._carriers(record)
        seeds |= self._session(main, seeds)
        found = self._descendants(seeds, record.supervisor())
        return [self.table[pid] for pid in sorted(found)]

    def _seen(self, record):
        main = record.main()
        pairs = record.seen() | {(main["pid"], main["start_time"])}
        return {pid for pid, start in pairs if pid in self.table and self.table[pid].start_time == start}

    def _carriers(self, record):
        wanted = (record.installation, record.process)
        return {pid for (pid, _), mark in self._marks.items() if mark == wanted}

    def _session(self, main, known):
        """Processes in main's session or group, if that is still main's.

        The kernel gives a number to nobody else while a session or group of that number has a process left. So the
        session is ours when main runs, or when somebody in it is known to be ours; else it may be a later one.
        """
        pid = main["pid"]
        inside = {entry.pid for entry in self.table.values() if pid in (entry.session, entry.group)}
        return inside if inside & known else set()

    def _descendants(self, seeds, supervisor):
        children = {}
        for entry in self.table.values():
            children.setdefault(entry.ppid, []).append(entry.pid)
        found, todo = set(seeds), list(seeds)
        if supervisor is not None:
            todo.append(supervisor[0])
        while todo:
            for child in children.get(todo.pop(), ()):
                if child not in found:
                    found.add(child)
                    todo.append(child)
        return found
