"""Raw facts of this machine. What cannot be found out is null, never a guess; nothing here may hang the answer."""

import ctypes
import os
import platform
import re
import resource
import shutil
import socket
import sys
import threading
import time

from . import detach, environments, network, paths, procfs, programs, sockets
from .paths import read_text

_TOTAL_S = 9.0
_NVIDIA_S = 8.0
_XML_CAP = 4 * 1024 * 1024
_TOOLS = ("ps", "ss", "ip", "nvidia-smi", "git", "dmesg", "systemd-run", "numactl", "ibstat", "docker")
_PSEUDO = ("/proc", "/sys", "/dev", "/run")
_UNSYNCHRONIZED = 0x40


def probe(session, call):
    """The verb: everything at once, each part in its own thread; a part that hangs is null."""
    wanted = call.args.get("environment")
    asked = [str(path) for path in call.args.get("paths") or []]
    parts = {
        "os": _system,
        "cpu": _cpu,
        "memory": _memory,
        "disks": lambda: _disks([*asked, session.folder.base]),
        "paths": lambda: {path: _path(path) for path in asked},
        "nics": network.interfaces,
        "default_interface": network.default_interface,
        "ip_local_port_range": network.ephemeral_ports,
        "listening": sockets.listening,
        "nvidia_smi": _nvidia_smi,
        "shm": lambda: _room("/dev/shm"),
        "limits": _limits,
        "clock": _clock,
        "detach": _detach,
        "tools": lambda: {name: programs.which(name) for name in _TOOLS},
        "home_fs": _home_fs,
        "environment": lambda: environments.describe(wanted),
        "candidates": environments.candidates,
    }
    found = gather(parts, _TOTAL_S)
    found.update(_identity(session))
    return found


def gather(parts, timeout_s):
    """{name: result} of functions run side by side; None for one that failed or did not end in time."""
    results = {}

    def run(name, function):
        try:
            results[name] = function()
        except Exception as error:
            sys.stderr.write("pilothouse helper: %s: %r\n" % (name, error))

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in parts.items()]
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: results.get(name) for name in parts}


def _identity(session):
    name, home, shell = paths.user()
    return {
        "at": time.time(),
        "hostname": socket.gethostname(),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "login_shell": shell,
        "home": home,
        "state_dir": session.folder.base,
        "user": name,
        "uid": os.getuid(),
        "boot_id": procfs.boot_id(),
        "machine_id": paths.machine_id() or None,
    }


def _system():
    values = {}
    for line in (read_text("/etc/os-release") or read_text("/usr/lib/os-release") or "").splitlines():
        name, _, value = line.partition("=")
        values[name] = value.strip().strip("\"'")
    return {"pretty": values.get("PRETTY_NAME"), "id": values.get("ID"), "version_id": values.get("VERSION_ID")}


def _cpu():
    """`cores` are physical ones, `threads` those that the kernel schedules on."""
    text = read_text("/proc/cpuinfo", 8 << 20) or ""
    first = dict(re.findall(r"^([^\t\n:]+?)\s*: (.*)$", text.partition("\n\n")[0], re.M))
    flags = set((first.get("flags") or first.get("Features") or "").split())
    packages, cores = (re.findall(r"^%s id\s*: (\d+)$" % kind, text, re.M) for kind in ("physical", "core"))
    pairs = set(zip(packages, cores))  # noqa: B905 (`strict` came with Python 3.10)
    nodes = [name for name in _listed("/sys/devices/system/node") if re.match(r"node\d+$", name)]
    return {
        "model": first.get("model name"),
        "cores": len(pairs) or os.cpu_count(),
        "threads": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)),
        "sockets": len({socket_ for socket_, _ in pairs}) or None,
        "numa": len(nodes) or None,
        "flags": sorted(flag for flag in flags if flag == "avx2" or flag.startswith(("avx512", "amx"))),
    }


def _listed(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def _memory():
    values = dict(re.findall(r"^(\w+):\s+(\d+) kB$", read_text("/proc/meminfo") or "", re.M))
    names = {"total": "MemTotal", "available": "MemAvailable", "swap_total": "SwapTotal", "swap_free": "SwapFree"}
    return {name: int(values[key]) * 1024 if key in values else None for name, key in names.items()}


def _room(path):
    room = os.statvfs(path)
    return {"size": room.f_blocks * room.f_frsize, "free": room.f_bavail * room.f_frsize}


def _disks(asked):
    """Every mounted disk, and whatever holds the paths asked for; one that hangs has null sizes."""
    wanted = {}
    for point, kind, device in paths.mounts():
        if device.startswith("/dev/") or kind in ("overlay", "zfs", "btrfs") or paths.is_shared(kind):
            if os.path.join(point, "").startswith(tuple(path + "/" for path in _PSEUDO)) or not point.startswith("/"):
                continue
            wanted[point] = kind
    for path in asked:
        mount = paths.mount_of(path)
        if mount:
            wanted[mount[0]] = mount[1]
    rooms = gather({point: (lambda point=point: _room(point)) for point in wanted}, 3.0)
    unknown = {"size": None, "free": None}
    return [dict({"mount": point, "fs": kind}, **(rooms[point] or unknown)) for point, kind in sorted(wanted.items())]


def _path(path):
    mount = paths.mount_of(path)
    return {
        "exists": os.path.exists(path),
        "folder": os.path.isdir(path),
        "readable": os.access(path, os.R_OK),
        "writable": os.access(path, os.W_OK),
        "mount": mount[0] if mount else None,
    }


def _nvidia_smi():
    path = programs.which("nvidia-smi")
    if path is None:
        return {"found": None, "xml": None, "rc": None, "stderr": None, "timed_out": False, "compute_capabilities": {}}
    done = programs.run([path, "-q", "-x"], _NVIDIA_S)
    # A driver that does not match says so on stdout: it is kept even if it is no XML.
    xml = done.out[:_XML_CAP] or None
    caps = _compute_capabilities(path) if done.rc == 0 else {}
    said = {"rc": done.rc, "stderr": done.err[-4000:], "timed_out": done.timed_out}
    return {"found": path, "xml": xml, "compute_capabilities": caps, **said}


def _compute_capabilities(path):
    """{uuid: "9.0"}; the XML does not say it, and drivers before 510 do not know the field: then it is empty."""
    done = programs.run([path, "--query-gpu=uuid,compute_cap", "--format=csv,noheader"], _NVIDIA_S)
    rows = [line.split(", ") for line in done.out.splitlines()] if done.rc == 0 else []
    return {row[0]: row[1] for row in rows if len(row) == 2}


def _limits():
    """[soft, hard] of each; -1 is the kernel's word for unlimited."""
    kinds = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC}
    return {name: list(resource.getrlimit(kind)) for name, kind in kinds.items()}


def _clock():
    return {"now": time.time(), "ntp_synchronized": _synchronized()}


def _synchronized():
    """Whether the kernel's clock is disciplined; None where that is not said."""
    # struct timex: `modes` (0 = only read) comes first, `status` after it and four longs.
    block = ctypes.create_string_buffer(512)
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(block) < 0:
            return None
    except AttributeError:
        return None
    status = ctypes.c_int.from_buffer(block, 5 * ctypes.sizeof(ctypes.c_long)).value
    return not status & _UNSYNCHRONIZED


def _home_fs():
    mount = paths.mount_of(paths.user()[1])
    return mount[1] if mount else None


def _detach():
    """What could end a process when its login ends or sshd is restarted."""
    cgroup = _cgroup()
    return {
        "kill_user_processes": _kill_user_processes(),
        "linger": detach.lingers(paths.user()[0]) if detach.has_systemd() else None,
        "cgroup": cgroup,
        "sshd_cgroup_kills": _sshd_kills(cgroup),
        "systemd": detach.has_systemd(),
        "escapes": bool(detach.prefix()),
        "in_container": _in_container(),
    }


def _cgroup():
    lines = (read_text("/proc/self/cgroup") or "").splitlines()
    unified = [line[3:] for line in lines if line.startswith("0::")]
    named = [line.split(":", 2)[2] for line in lines if ":name=systemd:" in line]
    return (named + unified + [None])[0]


def _kill_user_processes():
    """logind's setting; False is its default, None where there is no logind."""
    if not detach.has_systemd():
        return None
    files = ["/usr/lib/systemd/logind.conf", "/etc/systemd/logind.conf"]
    for base in ("/usr/lib/systemd", "/run/systemd", "/etc/systemd"):
        folder = base + "/logind.conf.d"
        files += sorted(os.path.join(folder, name) for name in _listed(folder) if name.endswith(".conf"))
    value = "no"
    for file in files:
        value = (re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", read_text(file) or "", re.M) or [value])[-1]
    return value.lower() in ("yes", "true", "on", "1")


def _sshd_kills(cgroup):
    """Whether restarting sshd would end what this login started; None when that cannot be told."""
    if cgroup is None or not detach.has_systemd():
        return None
    unit = re.search(r"/(sshd?(?:@[^/]*)?\.service)", cgroup)
    if unit is None:
        return False
    systemctl = shutil.which("systemctl")
    done = programs.run([systemctl, "show", unit.group(1), "--property=KillMode"], 3.0) if systemctl else None
    mode = done.out.strip().partition("=")[2] if done and done.rc == 0 else ""
    return mode not in ("process", "none") if mode else None


def _in_container():
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return True
    if b"container=" in procfs.environment(1):
        return True
    return bool(re.search(r"docker|kubepods|libpod|lxc|containerd", read_text("/proc/1/cgroup") or ""))
