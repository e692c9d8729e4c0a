"""Running other programs without ever hanging on them."""

import collections
import contextlib
import os
import signal

from .later import Later

shutil, subprocess = Later("shutil"), Later("subprocess")

_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin:/usr/lib/wsl/lib"

Finished = collections.namedtuple("Finished", "rc out err timed_out")


def which(name):
    """The path of a program, also where a non-interactive login's PATH does not look; None when there is none."""
    return shutil.which(name, path=_path())


def has(name):
    """Whether `which` would find something, without the imports that it costs."""
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in _path().split(":") if folder)


def _path():
    return os.environ.get("PATH", "") + ":" + _FOLDERS


def run(argv, timeout_s):
    """Runs a program in the C locale. What cannot be killed (a hanging driver call) is left behind, not waited for."""
    env = dict(os.environ, LC_ALL="C")
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env, cwd="/", start_new_session=True
        )
    except OSError as error:
        return Finished(None, "", str(error), False)
    try:
        out, err = process.communicate(timeout=timeout_s)
        return Finished(process.returncode, _text(out), _text(err), False)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        return Finished(None, "", "no answer within %g s" % timeout_s, True)


def _text(data):
    return data.decode("utf-8", "replace")
