"""Generated secrets in files of VAR_DIR: written once, 0600, and never over an older value."""

from __future__ import annotations

import base64
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from controlplane.embedded import folders


def secret_key() -> str:
    return secrets.token_urlsafe(48)


def field_key() -> str:
    """A Fernet key; made here so that the supervisor needs no cryptography package."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode("ascii")


def kept(path: Path, generate: Callable[[], str]) -> str:
    """The file's text. A missing file appears whole or not at all, and of two that make it at once one wins."""
    folders.make_private(path.parent)
    if not path.exists():
        number, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with open(number, "w", encoding="ascii") as file:
            file.write(generate() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(half, path)
        os.unlink(half)
    return path.read_text(encoding="ascii").strip()
