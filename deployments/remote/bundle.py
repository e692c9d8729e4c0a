"""What the panel sends to make a node's Python run the helper: one line of shell, then all modules in one block."""

from __future__ import annotations

import json
import marshal
import zlib
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from deployments.domain.command import quote

PACKAGE = "pilothouse_helper"
FOLDER = Path(__file__).parent / "helper"
# The numbered ones are for distributions whose python3 is older than the helper can use.
INTERPRETERS = (
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/bin/python3",
    *(f"/usr/bin/python3.{minor}" for minor in range(14, 7, -1)),
)
# Not -I: Python 2.7 does not know it and could not say that it is too old. boot.py itself drops the current folder.
_FLAGS = "-E -s -S -u"
_MINORS = " ".join(str(minor) for minor in range(14, 7, -1))
_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 8))"


def boot_line(nonce: str, interpreter: str | None = None) -> str:
    """One line for `/bin/sh` (with its newline) that becomes a waiting Python, or says PHFAIL.

    Args:
        nonce: 32 hex digits, fresh for each connection.
        interpreter: The only Python to try, as an absolute path; None tries the usual places.
    """
    tried = [quote(interpreter)] if interpreter else [*INTERPRETERS, '"$(command -v python3)"']
    said = interpreter or " ".join([*INTERPRETERS[:3], "/usr/bin/python3.*", "PATH"])
    run = f'exec "$p" {_FLAGS} -c "$b" {quote(nonce)}'
    fail = f"\\nPHFAIL {nonce} INTERPRETER_MISSING %s\\n"
    return (
        f"b={quote(_boot())}; f=; for p in {' '.join(tried)}; do "
        f'if [ -f "$p" ] && [ -x "$p" ]; then f="${{f:-$p}}"; '
        # Many a python3 is a link to the python3.N beside it: that name tells the version, so nothing has to be run.
        f'for n in {_MINORS}; do if [ "$p" -ef "${{p%/*}}/python3.$n" ] 2>/dev/null; then {run}; fi; done; '
        f'if "$p" -E -s -S -c {quote(_NEW_ENOUGH)} </dev/null >/dev/null 2>&1; then {run}; fi; fi; done; '
        f'if [ -n "$f" ]; then p="$f"; {run}; fi; '
        f"printf {quote(fail)} {quote(said)}; exit 127\n"
    )


def bundle(version: str = "") -> bytes:
    """All helper modules: 8 hex digits (length), then that many bytes of zlib-compressed JSON.

    The JSON is `{"modules": {name: source}, "main": name of the module whose main(nonce, bundle) runs}`. For a Python
    that reads the same code as ours it is marshalled instead, with the modules compiled: that saves the node the work.

    Args:
        version: What the node's Python said of itself: its version and, in hex, the format of its code.
    """
    return _compiled() if version.split()[1:] == [MAGIC_NUMBER.hex()] else _sources()


@cache
def _sources() -> bytes:
    return _packed(json.dumps(_bundle(_read())).encode())


@cache
def _compiled() -> bytes:
    sources = _read()
    code = {name: compile(text, name.replace(".", "/") + ".py", "exec", 0, True) for name, text in sources.items()}
    # A supervisor in a Python of its own is started with the text of this one.
    boot = f"{PACKAGE}.boot"
    return _packed(marshal.dumps(_bundle({**code, boot: sources[boot]})))


def _read() -> dict[str, str]:
    return {_module(path): path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}


def _bundle(modules: dict[str, Any]) -> dict[str, Any]:
    return {"modules": modules, "main": f"{PACKAGE}.main"}


def _packed(data: bytes) -> bytes:
    packed = zlib.compress(data, 9)
    return b"%08x" % len(packed) + packed


def _module(path: Path) -> str:
    return PACKAGE if path.stem == "__init__" else f"{PACKAGE}.{path.stem}"


@cache
def _boot() -> str:
    """boot.py as a program without line breaks: the shell's line must be one line."""
    return f"exec({(FOLDER / 'boot.py').read_text(encoding='utf-8')!r})"
