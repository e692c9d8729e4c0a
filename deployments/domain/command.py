"""Turning argument words into text that a shell reads back as the same words. The only quoting in the project."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

REDACTED = "***"


def quote(word: str) -> str:
    """One word for a POSIX shell."""
    return shlex.quote(word)


def shell(argv: Sequence[str], env: Mapping[str, str] | None = None, secrets: Iterable[str] = ()) -> str:
    """A command line that a POSIX shell runs as `argv` with `env`; secrets appear as NAME=***."""
    words = [f"{name}={quote(value)}" for name, value in sorted((env or {}).items())]
    words += [f"{name}={quote(REDACTED)}" for name in sorted(secrets)]
    prefix = ["env", *words] if words else []
    return " ".join([*prefix, *(quote(word) for word in argv)])
