"""PID 1 of a lab host: builds the host's view of the machine, runs its SSH server, buries its orphans.

Run by the system's Python inside new net, mount, pid, uts and ipc namespaces, with the host's folder as working
folder and `host.json` in it. Standard input carries one JSON command a line, standard output one JSON answer a line.
When standard input ends (its owner died, however it died) this process ends, and the kernel ends all of the host.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
LAB = "/run/lab"
ORIGINALS = "/run/lab-originals"
libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, fstype="none", flags=0, data=""):
    done = libc.mount(source.encode(), target.encode(), fstype.encode(), ctypes.c_ulong(flags), data.encode())
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def say(**message):
    os.write(1, (json.dumps(message) + "\n").encode())


def shadow_folder(target, store):
    """Give the host its own copy of a system folder: links to what is there, and room for what is not."""
    original = ORIGINALS + target
    os.makedirs(original, exist_ok=True)
    os.makedirs(store, exist_ok=True)
    mount(target, original, flags=MS_BIND)
    for name in os.listdir(target):
        if name == "pilothouse" or os.path.lexists(os.path.join(store, name)):
            continue
        real = os.path.realpath(os.path.join(target, name))
        inside = real.startswith(target + "/")
        os.symlink(ORIGINALS + real if inside else real, os.path.join(store, name))
    mount(store, target, flags=MS_BIND)


def mount_own_sys():
    """A sysfs of this network namespace (else /sys/class/net shows the machine's), with the cgroup tree kept."""
    os.makedirs("/run/lab-cgroup", exist_ok=True)
    kept = os.path.isdir("/sys/fs/cgroup")
    if kept:
        mount("/sys/fs/cgroup", "/run/lab-cgroup", flags=MS_BIND | MS_REC)
    mount("sysfs", "/sys", "sysfs")
    if kept:
        mount("/run/lab-cgroup", "/sys/fs/cgroup", flags=MS_BIND | MS_REC)


def build(config):
    """The mounts, in the one order that works: what is covered is read through descriptors opened before."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    extra = [(os.open(path, os.O_PATH), path) for path in config["binds"]]
    own = [(os.open(source, os.O_PATH), target) for source, target in config["own"]]
    mount("tmpfs", "/run", "tmpfs", data="mode=755,size=256m")
    os.makedirs(LAB)
    mount(".", LAB, flags=MS_BIND)
    os.chdir(LAB)
    os.makedirs("/run/sshd", mode=0o755)
    mount_own_sys()
    shadow_folder("/var/lib", LAB + "/shown/var-lib")
    shadow_folder("/usr/local/bin", LAB + "/shown/bin")
    shadow_folder("/opt", LAB + "/shown/opt")
    os.makedirs("/var/lib/pilothouse", exist_ok=True)
    for descriptor, target in own:
        mount(f"/proc/self/fd/{descriptor}", target, flags=MS_BIND)
        os.close(descriptor)
    for target, options in config["tmpfs"]:
        mount("tmpfs", target, "tmpfs", data=options)
    mount(LAB + "/etc/boot-id", "/proc/sys/kernel/random/boot_id", flags=MS_BIND)
    for descriptor, path in extra:
        bind_shared(descriptor, path)
    mount("none", "/", flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    for path in config["masked"]:
        mount("/dev/null", os.path.realpath(path), flags=MS_BIND)
    os.chdir("/")


def bind_shared(descriptor, path):
    """Show a folder of the machine at its own path although the host's own folder covers it; read-only."""
    if not os.path.exists(path):
        os.makedirs(path)
        mount(f"/proc/self/fd/{descriptor}", path, flags=MS_BIND)
        mount("none", path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    os.close(descriptor)


def forget_owner():
    """Signals as a machine's first process has them: a lab started in the background hands down an ignored Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)


def configure_network(lines):
    with open("/proc/sys/net/ipv4/ip_forward", "w") as switch:
        switch.write("0")
    text = "".join(line + "\n" for line in lines)
    done = subprocess.run(
        ["ip", "-batch", "-"], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        raise OSError(f"ip: {done.stdout}")


class Server:
    """The SSH server: the listener, and the session processes that outlive it."""

    def __init__(self, binary):
        self.binary = binary
        self.pid = None

    def start(self):
        if self.pid is None:
            with open(LAB + "/ssh/log", "ab") as log:
                argv = [self.binary, "-D", "-e", "-f", LAB + "/ssh/sshd_config"]
                started = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self.pid = started.pid
            started.returncode = 0  # reaped by bury(), not by subprocess

    def stop(self, sessions):
        if self.pid is not None:
            pid, self.pid = self.pid, None
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if sessions:
            for pid in session_processes():
                os.kill(pid, signal.SIGKILL)


def session_processes():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/comm") as comm:
                    if comm.read().strip().startswith("sshd"):
                        found.append(int(name))
            except OSError:
                continue
    return found


def bury(server):
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == server.pid:
            server.pid = None


def obey(message, server):
    verb = message["do"]
    if verb == "network":
        configure_network(message["lines"])
    elif verb == "start_sshd":
        server.start()
    elif verb == "stop_sshd":
        server.stop(message["sessions"])
    elif verb == "mask":
        mount("/dev/null", message["path"], flags=MS_BIND)


def serve(server):
    """Until standard input ends: commands and dead children, whichever comes."""
    bell, ring = os.pipe()
    os.set_blocking(ring, False)
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    waiting = b""
    while True:
        readable, _, _ = select.select([0, bell], [], [])
        if bell in readable:
            os.read(bell, 4096)
            bury(server)
        if 0 not in readable:
            continue
        block = os.read(0, 65536)
        if not block:
            return
        *lines, waiting = (waiting + block).split(b"\n")
        for line in lines:
            answer(json.loads(line), server)


def answer(message, server):
    try:
        obey(message, server)
        say(done=message["do"])
    except Exception as error:  # the owner is to read it, not a log that nobody opens
        say(error=f"{message['do']}: {error!r}")


def main():
    with open("host.json") as file:
        config = json.load(file)
    server = Server(config["sshd"])
    try:
        os.setsid()
        forget_owner()
        socket.sethostname(config["name"])
        build(config)
    except Exception as error:
        say(error=repr(error))
        return 1
    say(done="built")
    serve(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
