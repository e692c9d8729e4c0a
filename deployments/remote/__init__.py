"""The only code that starts a process or opens a connection to a node. Everybody else calls `launcher()`."""

from __future__ import annotations

import threading

from .launcher import Launcher

_lock = threading.Lock()
_current: Launcher | None = None


def launcher() -> Launcher:
    """The launcher of this operating system process, by the setting LAUNCHER: `node` (the default) or `stub`."""
    global _current
    with _lock:
        if _current is None:
            _current = _configured()
        return _current


def use_launcher(instance: Launcher | None) -> Launcher | None:
    """Makes `launcher()` return `instance`, and returns what it returned so far; None = choose by the setting again."""
    global _current
    with _lock:
        previous, _current = _current, instance
    return previous


def _configured() -> Launcher:
    # Imported here: the rest of this package works without Django.
    from django.conf import settings

    if getattr(settings, "LAUNCHER", "node") == "stub":
        from .stub import StubLauncher

        return StubLauncher()
    from .node_launcher import NodeLauncher

    return NodeLauncher()
