"""What happens between the supervisor's fork and the program: a new session, a clean environment, a log as output."""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import time

from . import paths, procfs
from .later import Later

subprocess, traceback = Later("subprocess"), Later("traceback")

_RESET = (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SET_NAME = 15
# Each is a function in a module of the same name.
BUILTINS = ("fingerprint",)


def environment(request, secrets, installation):
    """The whole environment of a started process: a clean base, the request's own, the secrets, the markers."""
    name, home, _ = paths.user()
    found = {"HOME": home, "USER": name, "LOGNAME": name, "PATH": _PATH, "LANG": "C.UTF-8"}
    found.update({key: os.environ[key] for key in ("TMPDIR", "XDG_RUNTIME_DIR") if os.environ.get(key)})
    found.update({str(key): str(value) for key, value in (request.get("env") or {}).items()})
    found.update({str(key): str(value) for key, value in secrets.items()})
    found.update(
        PILOTHOUSE_INSTALLATION=installation,
        PILOTHOUSE_PROCESS=request["process"],
        PILOTHOUSE_REPLICA=request["replica"],
        PILOTHOUSE_ATTEMPT=str(request["attempt"]),
        # setproctitle would write its title over the environment, and the markers with it.
        SPT_NOENV="1",
    )
    return found


def executable(word, env, cwd=None):
    """The file that an argv's first word names, or None when there is none that may be executed."""
    if "/" in word:
        tried = [os.path.join(cwd or "/", word)]
    else:
        tried = [os.path.join(folder, word) for folder in env.get("PATH", _PATH).split(":") if folder]
    return next((path for path in tried if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def become(record, request, env, report_fd):
    """Never returns. Turns this freshly forked process into the main process of a request.

    What fails before the program runs is written to `report_fd` (closed by a successful exec) as JSON.
    """
    try:
        _settle(record, request)
        start = procfs.stat(os.getpid()).start_time
        main = {"pid": os.getpid(), "start_time": start, "boot_id": procfs.boot_id(), "started_at": time.time()}
        paths.write_json(record.file("pid.json"), main, durable=True)
        if request.get("argv"):
            _execute(request, env)
        os.close(report_fd)
        _run_here(request, env)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(record.file("pid.json"))
        failure = {"errno": error.errno, "strerror": error.strerror, "path": error.filename}
        os.write(report_fd, json.dumps(failure).encode("utf-8"))
    finally:
        os._exit(127)


def _settle(record, request):
    os.setsid()
    os.umask(0o022)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(record.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    home = paths.user()[1]
    os.chdir(request.get("cwd") or (home if os.path.isdir(home) else "/"))


def _execute(request, env):
    path = executable(request["argv"][0], env, request.get("cwd"))
    if path is None:
        raise FileNotFoundError(2, "no such executable", request["argv"][0])
    try:
        os.execve(path, list(request["argv"]), env)
    except OSError as error:
        error.filename = path
        raise


def _run_here(request, env):
    """Runs steps or a builtin in this process and exits with their code."""
    with contextlib.suppress(OSError, AttributeError):
        # So that people who look at processes see a job and not a second supervisor.
        ctypes.CDLL(None).prctl(_SET_NAME, b"pilothouse-job", 0, 0, 0)
    code = 1
    try:
        if request.get("steps"):
            code = run_steps(request["steps"], env, request.get("cwd"))
        else:
            builtin = request["builtin"]
            module = importlib.import_module("." + builtin["name"], __package__)
            code = getattr(module, builtin["name"])(_print, **(builtin.get("args") or {}))
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    os._exit(code)


def _print(value):
    os.write(1, json.dumps(value).encode("utf-8", "replace") + b"\n")


def run_steps(steps, env, cwd):
    """Runs each argv after the other; the first exit code that is not 0 ends it and is returned."""
    for number, argv in enumerate(steps, 1):
        _print({"step": number, "of": len(steps), "argv": list(argv)})
        path = executable(argv[0], env, cwd)
        if path is None:
            _print({"step": number, "error": "%s: not found or not executable" % argv[0]})
            return 127
        code = subprocess.call(list(argv), executable=path, env=env, stdin=subprocess.DEVNULL)
        if code != 0:
            _print({"step": number, "code": code})
            return code if code > 0 else 128 - code
    return 0
