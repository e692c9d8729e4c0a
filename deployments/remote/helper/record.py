"""One process's folder: what is written where, and what can be read back after any crash."""

import os

from . import paths, procfs

LOG_TAIL = 16 * 1024


class Record:
    """The files of one process. Every reader gives None for what is missing."""

    def __init__(self, folder, process):
        self.process = process
        self.installation = folder.installation
        self.path = folder.process(process)
        self._request = None

    def file(self, name):
        return os.path.join(self.path, name)

    @property
    def log(self):
        return self.file("log")

    @property
    def lock(self):
        return self.file("lock")

    @property
    def supervisor_lock(self):
        return self.file("supervisor.lock")

    def exists(self):
        return os.path.isdir(self.path)

    def request(self):
        """The start request without its secrets; {} when there is none."""
        if self._request is None:
            self._request = paths.read_json(self.file("request.json"))
        return self._request or {}

    def secrets(self):
        return paths.read_json(self.file("secrets.json")) or {}

    def main(self):
        """{"pid", "start_time", "boot_id", "started_at"} once it was started."""
        return paths.read_json(self.file("pid.json"))

    def exit(self):
        """{"code", "signal", "at"} once main has ended and its supervisor saw it."""
        return paths.read_json(self.file("exit.json"))

    def stopped(self):
        """The tombstone or stop record."""
        return paths.read_json(self.file("stopped.json"))

    def proof(self):
        return paths.read_json(self.file("stop-proof.json"))

    def seen(self):
        """(pid, start time) of every member recorded in this boot, as a set."""
        if not self.of_this_boot():
            return set()
        return {tuple(pair) for pair in paths.read_json(self.file("members.json")) or []}

    def note(self, members):
        """Records who is a member now. The last ones stay on record: what they held is looked for after their end."""
        now = set(members)
        if now and now != self.seen():
            paths.write_json(self.file("members.json"), sorted(now))

    def of_this_boot(self):
        """Whether main was started since the machine came up; what ran before that is gone with all it held."""
        main = self.main()
        return main is not None and main.get("boot_id") == procfs.boot_id()

    def main_runs(self):
        if not self.of_this_boot():
            return False
        main = self.main()
        return procfs.find(main["pid"], main["start_time"]) is not None

    def supervisor(self):
        """The (pid, start time) of the live supervisor, or None."""
        written = paths.read_json(self.file("supervisor.json"))
        if not written or written.get("boot_id") != procfs.boot_id():
            return None
        alive = procfs.find(written["pid"], written["start_time"]) is not None
        return (written["pid"], written["start_time"]) if alive else None
