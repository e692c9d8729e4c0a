"""What the kernel says about processes, read from /proc. A process is named by its pid and its kernel start time."""

import collections
import contextlib
import ctypes
import os
import signal

from .paths import read_text

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
_PIDFD_OPEN, _PIDFD_SEND = 434, 424

# start_time is in clock ticks since boot, rss in bytes.
Stat = collections.namedtuple("Stat", "pid name state ppid group session start_time rss")


def boot_id():
    return read_text("/proc/sys/kernel/random/boot_id")


def uptime():
    """Seconds since boot, or None."""
    text = read_text("/proc/uptime")
    return float(text.split()[0]) if text else None


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat(pid):
    """A Stat, or None when there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # The name may hold spaces and parentheses; the last one closes it.
    name, _, rest = text.partition("(")[2].rpartition(")")
    words = rest.split()
    if len(words) < 22:
        return None
    numbers = (int(words[1]), int(words[2]), int(words[3]), int(words[19]), int(words[21]) * PAGE)
    return Stat(pid, name, words[0], *numbers)


def is_running(entry):
    """Whether a Stat is more than a zombie. A dead leader whose threads still run holds its memory: it counts."""
    if entry.state in "Xx":
        return False
    if entry.state != "Z":
        return True
    try:
        return len(os.listdir("/proc/%d/task" % entry.pid)) > 1
    except OSError:
        return False


def find(pid, start_time):
    """The Stat of exactly this running process, or None (gone, or the number belongs to another one now)."""
    entry = stat(pid)
    return entry if entry is not None and entry.start_time == start_time and is_running(entry) else None


def snapshot():
    """Every running process: {pid: Stat}."""
    found = {}
    for pid in pids():
        entry = stat(pid)
        if entry is not None and is_running(entry):
            found[pid] = entry
    return found


def environment(pid):
    """The environment block a process was started with (or wrote over), b"" when it may not be read."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def markers(block):
    """(installation, process) that an environment block is marked with; None where not."""
    found = {}
    for item in block.split(b"\0"):
        name, _, value = item.partition(b"=")
        if name in (b"PILOTHOUSE_INSTALLATION", b"PILOTHOUSE_PROCESS"):
            found[name] = value.decode("utf-8", "replace")
    return found.get(b"PILOTHOUSE_INSTALLATION"), found.get(b"PILOTHOUSE_PROCESS")


def command(pid):
    """The command line as one string, or None."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def title(entry):
    """A name for people: the kernel's, or the full title where the kernel's is that title cut short."""
    if len(entry.name) < 15:
        return entry.name
    words = (command(entry.pid) or "").split()
    first = os.path.basename(words[0]) if words else ""
    return first if first.startswith(entry.name) else entry.name


def _system_call(*numbers):
    result = ctypes.CDLL(None, use_errno=True).syscall(*[ctypes.c_long(number) for number in numbers])
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def send(pid, start_time, number):
    """Sends a signal to exactly this process; False when it is gone or out of reach.

    The descriptor is opened before the start time is compared, so the signal cannot hit a process that took the number
    over in between. Kernels before 5.3 have no such descriptors: there the comparison alone must do.
    """
    try:
        fd = _system_call(_PIDFD_OPEN, pid, 0)
    except OSError:
        fd = None
    try:
        if find(pid, start_time) is None:
            return False
        if fd is None:
            os.kill(pid, number)
        else:
            _system_call(_PIDFD_SEND, fd, number, 0, 0)
        return True
    except OSError:
        return False
    finally:
        if fd is not None:
            os.close(fd)


def send_group(group, number):
    with contextlib.suppress(OSError):
        os.killpg(group, number)


def signal_number(name):
    """TERM, SIGTERM or INT as a number; None when there is no such signal."""
    name = str(name).upper()
    return getattr(signal, name if name.startswith("SIG") else "SIG" + name, None)
