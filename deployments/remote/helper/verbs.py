"""The table of verbs, and the session that the requests of one connection share."""

import os
import platform
import socket
import sys

from . import SCHEMA, collect, facts, logs, model_folder, paths, procfs, reports, start, stop
from .errors import HelperError


class Session:
    """What the requests of one connection share."""

    def __init__(self, folder, bundle):
        self.folder = folder
        self.bundle = bundle
        self.reporter = reports.Reporter(folder)


def hello(args, bundle):
    """Opens the session: (Session, what the panel is told about this machine and interpreter)."""
    if args.get("schema") != SCHEMA:
        message = "The panel speaks schema %r and this helper schema %d." % (args.get("schema"), SCHEMA)
        raise HelperError("SCHEMA_MISMATCH", message)
    folder = paths.StateFolder.open(args.get("installation"))
    facts = {
        "schema": SCHEMA,
        "python": platform.python_version(),
        "executable": sys.executable,
        "pid": os.getpid(),
        "uid": os.getuid(),
        "user": paths.user()[0],
        "hostname": socket.gethostname(),
        "boot_id": procfs.boot_id(),
        "machine_id": paths.machine_id(),
        "state_dir": folder.base,
        "noise_note": None,
    }
    return Session(folder, bundle), facts


VERBS = {
    "collect": collect.collect,
    "forget": stop.forget,
    "logs": logs.logs,
    "probe": facts.probe,
    "read_model": model_folder.read_model,
    "report": reports.report,
    "start": start.start,
    "stop": stop.stop,
    "watch": reports.watch,
}
