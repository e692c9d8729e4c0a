"""VAR_DIR and the socket folder: made private, checked for their owner, filled with generated keys once."""

from __future__ import annotations

import base64
import os
import secrets
import stat
from pathlib import Path

from controlplane.embedded.errors import CannotStart
from controlplane.embedded.places import Places


def prepare(places: Places) -> None:
    """Make VAR_DIR (0700) and the socket folder; a folder of somebody else is refused, never used."""
    try:
        places.var.mkdir(mode=0o700, parents=True, exist_ok=True)
        places.var.chmod(0o700)
    except OSError as error:
        raise CannotStart(f"VAR_DIR {places.var} cannot be used: {error}.", "Choose a folder of yours.") from error
    if not places.runtime.is_symlink():
        places.runtime.mkdir(mode=0o700, exist_ok=True)
    _check_owner(places.runtime, places.uid)


def make_keys(places: Places) -> None:
    """SECRET_KEY and the first key for the fields, 0600, only where there is none yet."""
    _write_once(places.secret_key, secrets.token_urlsafe(48))
    _write_once(places.field_keys, base64.urlsafe_b64encode(secrets.token_bytes(32)).decode("ascii"))


def _write_once(path: Path, text: str) -> None:
    """Whole or not at all, and never over an older value: data encrypted with that would be lost."""
    if path.exists():
        return
    half = path.with_name(path.name + ".half")
    half.unlink(missing_ok=True)
    with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    half.rename(path)


def _check_owner(folder: Path, uid: int) -> None:
    """The short socket folder lies in /tmp, where anybody could have put a folder or link of that name first."""
    found = folder.lstat()
    private_folder = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if found.st_uid != uid or not (private_folder or stat.S_ISLNK(found.st_mode)):
        raise CannotStart(f"{folder} is not a private folder of this user.", "Remove it, or choose another VAR_DIR.")
