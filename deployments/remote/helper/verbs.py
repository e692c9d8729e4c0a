"""The table of verbs, the session they share, and how errors of the operating system become typed ones."""

import errno
import os
import platform
import socket
import sys

from . import SCHEMA, paths
from .errors import HelperError

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Session:
    """What the requests of one connection share."""

    def __init__(self, folder, bundle):
        self.folder = folder
        self.bundle = bundle


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
        "boot_id": paths.read_text("/proc/sys/kernel/random/boot_id"),
        "machine_id": paths.machine_id(),
        "state_dir": folder.base,
        "noise_note": None,
    }
    return Session(folder, bundle), facts


def translated(error):
    """A typed error for a failed system call that no verb expected."""
    where = error.filename or "a file"
    if error.errno in _FULL:
        remedy = "Free space (or quota) on that file system and try again."
        return HelperError("DISK_FULL", "No space left while writing %s." % where, remedy)
    if error.errno in (errno.EACCES, errno.EPERM):
        return HelperError("PERMISSION", "%s: permission denied for user %s." % (where, paths.user()[0]))
    return HelperError("INTERNAL", "%s: %s" % (type(error).__name__, error))


VERBS = {}
