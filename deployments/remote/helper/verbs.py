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
        self.wants = ["pynvml"] if _module("driver").present() else []
        self.provided = {}
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
                gpus = _module("gpu").Sampler(self.provided) if self.wants else None
                self._reporter = _module("reports").Reporter(self.folder, gpus)
            return self._reporter


def hello(args, bundle):
    """Opens the session: (Session, what the panel is told about this machine and interpreter)."""
    if args.get("schema") != SCHEMA:
        message = "The panel speaks schema %r and this helper schema %d." % (args.get("schema"), SCHEMA)
        raise HelperError("SCHEMA_MISMATCH", message)
    folder = paths.StateFolder.open(args.get("installation"))
    session = Session(folder, bundle)
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
        "wants": session.wants,
    }
    return session, facts


def provide(session, args):
    """Keeps the sources of modules that hello said are wanted, for when they are needed: {"kept": names}."""
    modules = args.get("modules") or {}
    session.provided.update((name, modules[name]) for name in session.wants if isinstance(modules.get(name), str))
    return {"kept": sorted(session.provided)}


# Each is a function of the same name in one of these modules, which are imported when they are needed.
VERBS = {
    "collect": "collect",
    "converse": "converse",
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
