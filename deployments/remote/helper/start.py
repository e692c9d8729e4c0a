"""Starting a process exactly once: fences, checks, the folder, and the supervisor that does the rest."""

import contextlib
import errno
import fcntl
import json
import marshal
import os
import select
import sys
import threading
import time
import zlib

from . import accelerators, child, detach, nursery, paths, procfs, sockets
from .errors import FULL, HelperError
from .later import Later
from .record import Record

subprocess = Later("subprocess")

_HANDSHAKE_S = 20.0
_ROOM = 1 << 20
_NAMES = ("process", "replica", "attempt", "role", "cwd", "probe", "log_cap_bytes")
_FIELDS = (*_NAMES, "argv", "steps", "builtin", "env", "ports", "accelerators")


def start(session, call):
    """The verb. Returns {"pid", "start_time", "boot_id", "already"}.

    Raises:
        HelperError: INVALID_ID, BAD_REQUEST, FENCED, DIR_MISSING, EXEC_FAILED, PORT_IN_USE, DISK_FULL, BUSY.
    """
    request = _checked_request(call.args)
    record = Record(session.folder, request["process"])
    if record.main() is not None:
        return _started(record.main(), True)
    _check_tombstone(session.folder, record)
    with _attempt_fence(session.folder, request):
        with contextlib.suppress(FileExistsError):
            os.mkdir(record.path, 0o700)
        with paths.locked(record.lock):
            # Whoever holds the lock looks first at what an earlier holder got done before it crashed.
            if record.main() is not None:
                return _started(record.main(), True)
            _check_tombstone(session.folder, record)
            return _start(session, record, request, call.args.get("secrets") or {})


def _checked_request(args):
    paths.checked(args.get("process"))
    paths.checked(args.get("replica"))
    request = {name: args.get(name) for name in _FIELDS}
    if not isinstance(request["attempt"], int):
        raise HelperError("BAD_REQUEST", "`attempt` must be a number.")
    if sum(1 for name in ("argv", "steps", "builtin") if request[name]) != 1:
        raise HelperError("BAD_REQUEST", "A start needs exactly one of `argv`, `steps` and `builtin`.")
    if request["builtin"] and request["builtin"].get("name") not in child.BUILTINS:
        raise HelperError("BAD_REQUEST", "This helper has no builtin %r." % request["builtin"].get("name"))
    return request


def _check_tombstone(folder, record):
    if record.stopped() is not None or os.path.exists(folder.tombstone(record.process)):
        raise _fenced("Process %s was stopped here before it was started." % record.process)


def _started(main, already):
    return {"pid": main["pid"], "start_time": main["start_time"], "boot_id": main["boot_id"], "already": already}


def _fenced(message):
    return HelperError("FENCED", message, remedy="A later decision overtook this start; nothing needs to be done.")


@contextlib.contextmanager
def _attempt_fence(folder, request):
    """Refuses attempts lower than one seen; holds a shared lock, so that a higher one waits for this start."""
    with paths.locked(folder.fence(request["replica"])) as fd:
        if request["attempt"] > _seen(fd):
            os.pwrite(fd, b"%020d\n" % request["attempt"], 0)
            os.fsync(fd)
        # Giving the lock back to share it is not one step: a higher attempt may come in between, so look again.
        fcntl.flock(fd, fcntl.LOCK_SH)
        seen = _seen(fd)
        if request["attempt"] < seen:
            raise _fenced("Attempt %d of %s comes after %d." % (request["attempt"], request["replica"], seen))
        yield


def _seen(fd):
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else -1


def _start(session, record, request, secrets):
    env = child.environment(request, secrets, record.installation)
    _check_folder(request)
    _check_program(request, env)
    _check_ports(request)
    _check_room(record)
    paths.write_json(record.file("secrets.json"), secrets)
    if request["accelerators"]:
        paths.write_json(record.file("baseline.json"), accelerators.snapshot(request["accelerators"]))
    paths.write_json(record.file("request.json"), request, durable=True)
    answer = _supervise(session, record)
    if "started" in answer:
        return _started(answer["started"], bool(answer.get("already")))
    if "fenced" in answer:
        raise _fenced("Process %s was stopped before it was started." % record.process)
    if "busy" in answer:
        return _started(_other_start(record), True)
    raise _failed(request, answer["failure"])


def _check_folder(request):
    if request["cwd"] and not os.path.isdir(request["cwd"]):
        raise HelperError("DIR_MISSING", "%s is not a folder on this node." % request["cwd"])


def _check_program(request, env):
    for argv in [request["argv"]] if request["argv"] else (request["steps"] or [])[:1]:
        if not argv or not all(isinstance(word, str) for word in argv):
            raise HelperError("BAD_REQUEST", "An argv must be a list of words.")
        if child.executable(argv[0], env, request["cwd"]) is None:
            where = argv[0] if "/" in argv[0] else "%s (looked for in %s)" % (argv[0], env["PATH"])
            why = "may not be executed" if os.path.isfile(argv[0]) else "does not exist on this node"
            raise HelperError("EXEC_FAILED", "%s %s." % (where, why), "Check the engine environment of this node.")


def _check_ports(request):
    for port, pids in sorted(sockets.owners(request["ports"] or []).items()):
        who = ", ".join("pid %d: %s" % (pid, (procfs.command(pid) or "?")[:200]) for pid in sorted(pids))
        message = "Port %d is in use on this node by %s." % (port, who or "a process of another user")
        detail = {"port": port, "pids": sorted(pids)}
        raise HelperError("PORT_IN_USE", message, "Stop that process or choose other ports.", detail)


def _check_room(record):
    room = os.statvfs(record.path)
    free = room.f_bavail * room.f_frsize
    if free < _ROOM:
        message = "Only %d bytes are free at %s." % (free, record.path)
        raise HelperError("DISK_FULL", message, "Free space on that file system and try again.")


def _supervise(session, record):
    """Runs a supervisor from the modules in memory and returns its first words."""
    prefix = detach.prefix()
    answer = None if prefix else _fork(session, record)
    if answer is None:
        answer = _spawn(session, record, prefix)
    if answer is None and prefix:
        # The scope could not be made after all; a start must not fail for that.
        answer = _spawn(session, record, [])
    if answer is None:
        said = paths.read_text(record.file("supervisor.err")) or "nothing"
        raise HelperError("START_FAILED", "The supervisor did not come up; it said: %s" % said[-2000:])
    return answer


def _fork(session, record):
    if session.nursery is None:
        return None
    return session.nursery.supervise(_args(session, record), record.file("supervisor.err"), _HANDSHAKE_S)


def _spawn(session, record, prefix):
    nonce = os.urandom(16).hex()
    boot = session.bundle["modules"][__package__ + ".boot"]
    title = "pilothouse-supervisor:" + record.process
    argv = [*prefix, sys.executable, "-I", "-S", "-c", boot, nonce, title]
    env = {name: os.environ[name] for name in nursery.KEPT if name in os.environ}
    pipe = subprocess.PIPE
    with open(record.file("supervisor.err"), "wb") as errors:
        process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=errors, env=env, cwd="/", start_new_session=True
        )
    threading.Thread(target=process.wait, daemon=True).start()
    detach.move(process.pid)
    try:
        with process.stdin as stdin, contextlib.suppress(BrokenPipeError):
            stdin.write(_bundle(session, record))
        with process.stdout as stdout:
            return _first_words(stdout.fileno())
    except OSError:
        return None


def _bundle(session, record):
    main = __package__ + ".supervise"
    bundle = {"modules": session.bundle["modules"], "main": main, "args": _args(session, record)}
    try:
        data = json.dumps(bundle).encode("utf-8")
    except TypeError:
        # The modules came compiled, for this very Python.
        data = marshal.dumps(bundle)
    packed = zlib.compress(data, 1)
    return b"%08x" % len(packed) + packed


def _args(session, record):
    return {"base": session.folder.base, "installation": record.installation, "process": record.process}


def _first_words(fd):
    deadline, data = time.monotonic() + _HANDSHAKE_S, b""
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 1.0)[0]:
            part = os.read(fd, 65536)
            data += part
            _, found, line = data.partition(b"PHSTART ")
            if found and line.endswith(b"\n"):
                return json.loads(line.decode("utf-8"))
            if not part:
                return None
    return None


def _other_start(record):
    """Waits for a supervisor that an earlier, interrupted start left behind."""
    deadline = time.monotonic() + _HANDSHAKE_S
    while time.monotonic() < deadline:
        main = record.main()
        if main is not None:
            return main
        time.sleep(0.05)
    raise HelperError("BUSY", "Another start of %s is still under way." % record.process)


def _failed(request, failure):
    number = failure.get("errno")
    path = failure.get("path") or (request["argv"] or ["the job"])[0]
    if number in FULL:
        return HelperError("DISK_FULL", "No space left while starting %s." % path, "Free space and try again.")
    why = failure.get("strerror")
    if number == errno.ENOENT and os.path.exists(path):
        why = "the interpreter in its first line does not exist"
    return HelperError(
        "EXEC_FAILED", "%s could not be run: %s." % (path, why), "Check the engine environment.", failure
    )
