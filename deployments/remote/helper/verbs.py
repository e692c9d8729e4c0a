"""The table of verbs, and the session that the requests of one connection share."""

import contextlib
import importlib
import os
import sys
import threading

from . import SCHEMA, paths, procfs
from .errors import HelperError


class Session:
    """What the requests of one connection share."""

    def __init__(self, folder, bundle):
        self.folder = folder
        self.bundle = bundle
        self.nursery = None
        self._reporter = None
        self._lock = threading.Lock()

    def make_nursery(self):
        """For the main thread while it is alone: a copy of one of many threads could wait for a lock for ever."""
        with contextlib.suppress(OSError):
            self.nursery = _module("nursery").Nursery()

    @property
    def reporter(self):
        with self._lock:
            if self._reporter is None:
                self._reporter = _module("reports").Reporter(self.folder)
            return self._reporter


def hello(args, bundle):
    """Opens the session: (Session, what the panel is told about this machine and interpreter)."""
    if args.get("schema") != SCHEMA:
        message = "The panel speaks schema %r and this helper schema %d." % (args.get("schema"), SCHEMA)
        raise HelperError("SCHEMA_MISMATCH", message)
    folder = paths.StateFolder.open(args.get("installation"))
    facts = {
        "schema": SCHEMA,
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "pid": os.getpid(),
        "uid": os.getuid(),
        "user": paths.user()[0],
        "hostname": os.uname().nodename,
        "boot_id": procfs.boot_id(),
        "machine_id": paths.machine_id(),
        "state_dir": folder.base,
        "noise_note": None,
    }
    return Session(folder, bundle), facts


# Each is a function of the same name in one of these modules, which are imported when they are needed.
VERBS = {
    "collect": "collect",
    "forget": "stop",
    "logs": "logs",
    "probe": "facts",
    "read_model": "model_folder",
    "report": "reports",
    "start": "start",
    "stop": "stop",
    "watch": "reports",
}


def find(verb):
    """The function that answers a verb, or None when there is no such verb."""
    return getattr(_module(VERBS[verb]), verb) if verb in VERBS else None


def _module(name):
    return importlib.import_module("." + name, __package__)
