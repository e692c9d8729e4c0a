"""Where the helper keeps things on a node, and how it writes them so that a crash leaves nothing half-written."""

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import re
import threading

from .errors import HelperError

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
# File systems that other machines may mount too: locks and process ids mean nothing there.
_SHARED = (
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "gluster",
    "9p",
    "afs",
    "virtiofs",
    "pvfs",
    "panfs",
)
ROOT_VARIABLE = "PILOTHOUSE_STATE_ROOT"


def checked(name):
    """An id or replica name as it may appear in a path.

    Raises:
        HelperError: INVALID_ID.
    """
    if not isinstance(name, str) or not _ID.fullmatch(name) or name in (".", ".."):
        raise HelperError("INVALID_ID", "%r is no name: 1 to 128 of letters, digits, dot, dash, underscore." % (name,))
    return name


def read_text(path, cap=1 << 20):
    """A small file's text without surrounding space, or None when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(cap).decode("utf-8", "replace").strip()
    except OSError:
        return None


def machine_id():
    return read_text("/etc/machine-id") or read_text("/var/lib/dbus/machine-id") or ""


def machine_key():
    """Tells machines apart that share a home, also clones that share a machine id."""
    return hashlib.sha256((machine_id() + "\0" + os.uname().nodename).encode()).hexdigest()[:12]


def user():
    """(name, home, login shell) of the current user; from the environment where the user database has no entry."""
    try:
        entry = pwd.getpwuid(os.getuid())
        return entry.pw_name, os.environ.get("HOME") or entry.pw_dir, entry.pw_shell
    except KeyError:
        return os.environ.get("USER") or str(os.getuid()), os.environ.get("HOME") or "/", os.environ.get("SHELL")


def mounts():
    """(mount point, file system type, device) of every mount, as /proc/self/mountinfo lists them."""
    found = []
    for line in (read_text("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        words, kinds = left.split(), right.split()
        if len(words) > 4 and len(kinds) > 1:
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), words[4])
            found.append((point, kinds[0], kinds[1]))
    return found


def mount_of(path):
    """(mount point, file system type, device) that holds a path, or None."""
    path = os.path.realpath(path)
    best = None
    for mount in mounts():
        prefix = mount[0].rstrip("/") + "/"
        # Of two mounts on one point the later one is visible.
        if (path + "/").startswith(prefix) and (best is None or len(mount[0]) >= len(best[0])):
            best = mount
    return best


def is_shared(kind):
    """Whether a file system of this type may be mounted by other machines too."""
    return kind.startswith(_SHARED)


def is_local(path):
    mount = mount_of(path)
    return mount is not None and not is_shared(mount[1])


def _candidates():
    chosen = os.environ.get(ROOT_VARIABLE)
    if chosen:
        return [chosen]
    found = ["/var/lib/pilothouse"] if os.geteuid() == 0 else []
    home = user()[1]
    if os.path.isdir(home) and is_local(home):
        found.append(os.path.join(home, ".local", "state", "pilothouse"))
    return [*found, "/var/tmp/pilothouse-%d" % os.geteuid()]


def _usable(root, base):
    os.makedirs(base, mode=0o700, exist_ok=True)
    for folder in (root, base):
        # Somebody else could have made the folder in a place where everybody may write.
        if os.lstat(folder).st_uid != os.geteuid() or os.path.islink(folder):
            raise OSError("%s belongs to somebody else" % folder)
    os.chmod(base, 0o700)
    trial = os.path.join(base, ".trial-%d" % os.getpid())
    os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    os.unlink(trial)


class StateFolder:
    """The folder of one installation on this machine, and the names inside it."""

    def __init__(self, base, installation):
        self.base = base
        self.installation = installation

    @classmethod
    def open(cls, installation):
        """Finds or makes the folder.

        Raises:
            HelperError: STATE_DIR when no place can be written.
        """
        reasons = []
        for root in _candidates():
            base = os.path.join(root, machine_key(), checked(installation))
            try:
                _usable(root, base)
                for name in ("p", "t", "fence"):
                    os.makedirs(os.path.join(base, name), mode=0o700, exist_ok=True)
                return cls(base, installation)
            except OSError as error:
                reasons.append("%s: %s" % (root, error))
        raise HelperError(
            "STATE_DIR",
            "No folder on this node can hold the helper's state (%s)." % "; ".join(reasons),
            remedy="Give the login user a writable home on a local disk, or set %s on the node." % ROOT_VARIABLE,
        )

    def process(self, process):
        return os.path.join(self.base, "p", checked(process))

    def tombstone(self, process):
        return os.path.join(self.base, "t", checked(process))

    def fence(self, replica):
        return os.path.join(self.base, "fence", checked(replica))

    def processes(self):
        """Ids of all processes that have a folder."""
        try:
            return sorted(os.listdir(os.path.join(self.base, "p")))
        except OSError:
            return []


def read_json(path):
    """The object in a file; None when it is missing or not whole (which counts as not written)."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read().decode("utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path, value, durable=False):
    """Replaces a file in one step. `durable` = it must survive a power cut."""
    temporary = "%s.%d-%d.new" % (path, os.getpid(), threading.get_ident())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(value).encode("utf-8"))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def locked(path, shared=False):
    """Holds an advisory lock on a file, made when missing; yields its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def try_lock(path):
    """A descriptor that holds the lock, or None when somebody else does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except OSError:
        os.close(fd)
        return None
