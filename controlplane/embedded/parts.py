"""The panel's own processes, as data: what the supervisor keeps running beside the servers."""

from __future__ import annotations

import sys
from pathlib import Path

from controlplane.embedded.children import Program

BASE = Path(__file__).resolve().parents[2]
CELERY = ("-m", "celery", "-A", "controlplane.celery", "--quiet")
OBSERVE = "management/commands/observe.py"


def prepare() -> Program:
    """Migrations, static files, the first admin, this machine as a node; runs to its end before the others start."""
    return _python("prepare", "manage.py", "prepare")


def parts(listening: int) -> list[Program]:
    """In the order of starting; they stop all together, before the servers. `listening` is the web's open socket."""
    programs = [
        _python("web", "-m", "controlplane.web", "--fd", str(listening), pass_fds=(listening,)),
        _python("worker", *CELERY, "worker", "--without-gossip", "--without-mingle", "--without-heartbeat"),
        _python("beat", *CELERY, "beat"),
    ]
    if any((BASE / app / OBSERVE).exists() for app in ("controlplane", "deployments", "monitoring")):
        programs.append(_python("observer", "manage.py", "observe"))
    return programs


def _python(name: str, *words: str, pass_fds: tuple[int, ...] = ()) -> Program:
    env = {"PROCESS": name, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(BASE)}
    return Program(name, (sys.executable, *words), env=env, cwd=BASE, pass_fds=pass_fds)
