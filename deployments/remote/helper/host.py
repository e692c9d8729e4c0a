"""What this machine is doing: processor, memory, disks and network, as far as the kernel tells.

What cannot be read is null, never 0; a counter that went backwards (a reset, another device of that name) too.
"""

import os
import re
import time

from . import paths
from .procfs import PAGE
from .slowly import Slowly, Sometimes

# Shorter than this (s), a difference of counters is mostly the kernel's own rounding.
_SHORTEST_S = 0.5
_SECTOR = 512
_MOST_MOUNTS, _MOST_DEVICES = 64, 256
# Where there is no /sys to ask, whole disks are told by their names.
_WHOLE = re.compile(r"(sd|vd|xvd|hd)[a-z]+|nvme\d+n\d+|mmcblk\d+|pmem\d+")
_REMOVABLE = re.compile(r"(sr|fd)\d+")
# Interfaces that containers, virtual machines and tunnels make, whose traffic the real ones carry.
_NOISE = re.compile(
    r"(veth|docker|br-|virbr|cali|cni|flannel|cilium|lxc|lxd|vnet|tap|podman|nerdctl|kube-|nodelocaldns|vxlan|geneve|dummy"
    r"|ifb|tunl|sit|gre|erspan|ip6tnl|ip6gre|ip6_vti|ip_vti|teql|nlmon)"
)
_NO_ROOM = ("/proc/", "/sys/", "/dev/", "/run/", "/etc/", "/snap/", "/var/lib/docker/", "/var/lib/kubelet/")
_ALWAYS_FULL = ("squashfs", "iso9660", "udf", "erofs", "cramfs")
_IN_MEMORY = ("/dev/shm", "/tmp")


class Machine:
    """This machine, for the streams of one connection; keeps what is slow to find out between their reports.

    Args:
        proc, sys: Where the kernel's files are.
    """

    def __init__(self, proc="/proc", sys="/sys"):
        self.proc, self.sys = proc, sys
        self.cores = Sometimes(self._cores).value
        self._points = Sometimes(lambda: _mount_points(paths.mounts()))
        self._speeds = Slowly(self._look_at_speeds)
        self._rooms = {}

    def text(self, name):
        """A file of /proc, or None."""
        return paths.read_text(os.path.join(self.proc, name))

    def counters(self):
        """{(kind, name...): count since boot} of everything whose rate is told."""
        found = {}
        for read in (self._cpu, self._swap, self._disks, self._networks):
            try:
                found.update(read())
            except (OSError, ValueError, IndexError):
                continue
        return found

    def _cpu(self):
        words = (self.text("stat") or "").partition("\n")[0].split()
        user, nice, system, idle, iowait, irq, softirq, steal = [int(word) for word in (words[1:] + ["0"] * 3)[:8]]
        busy = user + nice + system + irq + softirq + steal
        return {("cpu", "busy"): busy, ("cpu", "all"): busy + idle + iowait}

    def _swap(self):
        values = dict(re.findall(r"^(pswpin|pswpout|oom_kill) (\d+)$", self.text("vmstat") or "", re.M))
        return {("vm", name): int(value) * (1 if name == "oom_kill" else PAGE) for name, value in values.items()}

    def _disks(self):
        found = {}
        for line in (self.text("diskstats") or "").splitlines():
            words = line.split()
            if len(words) > 12 and self._is_whole_disk(words[2]):
                found[("read", words[2])] = int(words[5]) * _SECTOR
                found[("write", words[2])] = int(words[9]) * _SECTOR
                found[("busy", words[2])] = int(words[12])
        return found

    def _is_whole_disk(self, name):
        """Whether this is a device of its own: no partition, no volume made of others, nothing in memory."""
        if _REMOVABLE.fullmatch(name):
            return False
        folder = os.path.join(self.sys, "block")
        if not os.path.isdir(folder):
            return bool(_WHOLE.fullmatch(name))
        return os.path.exists(os.path.join(folder, name.replace("/", "!"), "device"))

    def _networks(self):
        found = {}
        for line in (self.text("net/dev") or "").splitlines()[2:]:
            name, _, rest = line.rpartition(":")
            words = [int(word) for word in rest.split()]
            if len(words) > 11:
                found[("rx", name.strip())], found[("tx", name.strip())] = words[0], words[8]
                found[("errors", name.strip())] = words[2] + words[3] + words[10] + words[11]
        return found

    def shown(self, names):
        """The interfaces that are worth a line: all but the loopback and those that others' traffic goes through."""
        names = [name for name in names if name != "lo"]
        real = [name for name in names if not _NOISE.match(name) or self._has_device(name)]
        return sorted(real or names)[:_MOST_DEVICES]

    def _has_device(self, name):
        return os.path.exists(os.path.join(self.sys, "class", "net", name, "device"))

    def speeds(self):
        """{interface: Mbit/s}. A driver may keep whoever asks waiting for its lock."""
        return self._speeds.value() or {}

    def _look_at_speeds(self):
        folder = os.path.join(self.sys, "class", "net")
        said = {name: paths.read_text(os.path.join(folder, name, "speed")) for name in os.listdir(folder)}
        return {name: int(text) for name, text in said.items() if text and text.isdigit() and int(text) < 1 << 31}

    def filesystems(self):
        """[{"mount", "size", "free"}] in bytes; null for one whose server does not answer."""
        points = self._points.value()
        for gone in set(self._rooms) - set(points):
            del self._rooms[gone]
        found = []
        for point in points:
            room = self._rooms.setdefault(point, Slowly(lambda point=point: _room(point))).value() or {}
            if room.get("size") != 0:
                found.append({"mount": point, "size": room.get("size"), "free": room.get("free")})
        return found

    def memory(self):
        """{name: bytes} of /proc/meminfo."""
        rows = re.findall(r"^(\w+):\s+(\d+) kB$", self.text("meminfo") or "", re.M)
        return {name: int(value) * 1024 for name, value in rows}

    def _cores(self):
        """How many cores a process started from here can keep busy."""
        quota = self._quota()
        usable = len(os.sched_getaffinity(0))
        return usable if quota is None else max(1, min(usable, int(quota)))

    def _quota(self):
        """The cores that the control groups above leave us, None = as many as there are."""
        found = []
        for line in (self.text("self/cgroup") or "").splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "" or "cpu" in kinds.split(","):
                base = os.path.join(self.sys, "fs/cgroup", "" if kinds == "" else "cpu")
                found += [quota for quota in map(_quota_of, _upwards(base, path)) if quota is not None]
        return min(found) if found else None


class Stream:
    """The host's part of one stream of reports: its rates are over the time since the report before."""

    def __init__(self, machine, clock=time.monotonic):
        self._machine = machine
        self._clock = clock
        self._before, self._at, self._last = {}, None, None

    def sample(self):
        """What a report says of the host; the last one again when that was made a moment ago."""
        now = self._clock()
        if self._last is None or now - self._at >= _SHORTEST_S:
            counters = self._machine.counters()
            since = _Since(self._before, counters, None if self._at is None else now - self._at)
            self._before, self._at, self._last = counters, now, _described(self._machine, counters, since)
        return self._last


class _Since:
    """What was counted between two looks, `seconds` apart (None = there was no look before)."""

    def __init__(self, before, now, seconds):
        self._before, self._now, self._seconds = before, now, seconds

    def gained(self, *key):
        before, now = self._before.get(key), self._now.get(key)
        return None if before is None or now is None or now < before else now - before

    def rate(self, *key):
        """Per second, or None."""
        gained = self.gained(*key)
        return None if gained is None or not self._seconds else round(gained / self._seconds, 3)

    def cpu(self):
        busy, all_ = self.gained("cpu", "busy"), self.gained("cpu", "all")
        return None if busy is None or not all_ else round(min(100.0, 100.0 * busy / all_), 2)

    def busy(self, disk):
        # Milliseconds with work, per second.
        rate = self.rate("busy", disk)
        return None if rate is None else round(min(100.0, rate / 10), 2)


def _described(machine, counters, since):
    memory = _known(machine.memory) or {}
    return {
        "load": _known(lambda: list(os.getloadavg())),
        "cores": _known(machine.cores),
        "cpu": since.cpu(),
        "memory_total": memory.get("MemTotal"),
        "memory_available": memory.get("MemAvailable"),
        "swap_total": memory.get("SwapTotal"),
        "swap_free": memory.get("SwapFree"),
        "swap_in_bps": since.rate("vm", "pswpin"),
        "swap_out_bps": since.rate("vm", "pswpout"),
        "disks": [_disk(name, since) for name in _names(counters, "read")[:_MOST_DEVICES]] or None,
        "filesystems": _known(machine.filesystems),
        "networks": _known(lambda: _networks(machine, counters, since)),
        "oom_kills": counters.get(("vm", "oom_kill")),
    }


def _disk(name, since):
    return {
        "name": name,
        "read_bps": since.rate("read", name),
        "write_bps": since.rate("write", name),
        "busy": since.busy(name),
    }


def _networks(machine, counters, since):
    names, speeds = _names(counters, "rx"), machine.speeds()
    if not names:
        return None
    return [
        {
            "name": name,
            "rx_bps": since.rate("rx", name),
            "tx_bps": since.rate("tx", name),
            "errors": counters.get(("errors", name)),
            "speed_mbps": speeds.get(name),
        }
        for name in machine.shown(names)
    ]


def _names(counters, kind):
    return sorted(key[1] for key in counters if key[0] == kind)


def _known(look):
    """What `look` finds, or None: a file of the kernel in a form nobody has seen must not cost the report."""
    try:
        return look()
    except (OSError, ValueError, IndexError, RuntimeError):
        return None


def _room(point):
    room = os.statvfs(point)
    return {"size": room.f_blocks * room.f_frsize, "free": room.f_bavail * room.f_frsize}


def _mount_points(mounts):
    """Where disks, shared folders and the memory that programs share are mounted: each device once, sorted."""
    visible = {point: (kind, device) for point, kind, device in mounts}
    found = {}
    for point, (kind, device) in sorted(visible.items()):
        if _has_room(point, kind, device):
            found.setdefault(point if kind in ("tmpfs", "overlay") else device, point)
    return sorted(found.values())[:_MOST_MOUNTS]


def _has_room(point, kind, device):
    if kind == "tmpfs":
        return point in _IN_MEMORY
    if kind == "overlay":
        return point == "/"
    if not point.startswith("/") or (point + "/").startswith(_NO_ROOM) or kind in _ALWAYS_FULL:
        return False
    return device.startswith("/dev/") or kind in ("zfs", "btrfs") or paths.is_shared(kind)


def _upwards(base, path):
    """The folders of a control group and of all above it."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return [os.path.join(base, *parts[:count]) for count in range(len(parts), -1, -1)]


def _quota_of(folder):
    """The cores that one control group may use, None = no limit (said)."""
    words = (paths.read_text(os.path.join(folder, "cpu.max")) or "").split()
    if not words:
        words = [paths.read_text(os.path.join(folder, "cpu.cfs_%s_us" % name)) or "" for name in ("quota", "period")]
    if len(words) < 2 or not (words[0].isdigit() and words[1].isdigit()) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])
