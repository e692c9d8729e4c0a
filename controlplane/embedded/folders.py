"""VAR_DIR and the socket folder: made private, and checked for their owner."""

from __future__ import annotations

import stat
from pathlib import Path

from controlplane.embedded.errors import CannotStart
from controlplane.embedded.places import Places


def prepare(places: Places) -> None:
    """Make VAR_DIR (0700) and the socket folder; a folder of somebody else is refused, never used."""
    make_private(places.var)
    if not places.runtime.is_symlink():
        places.runtime.mkdir(mode=0o700, exist_ok=True)
    _check_owner(places.runtime, places.uid)


def make_private(folder: Path) -> None:
    """Only its last part is changed: whatever lies above is the operator's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise CannotStart(f"VAR_DIR {folder} cannot be used: {error}.", "Choose a folder of yours.") from error


def _check_owner(folder: Path, uid: int) -> None:
    """The short socket folder lies in /tmp, where anybody could have put a folder or link of that name first."""
    found = folder.lstat()
    private_folder = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if found.st_uid != uid or not (private_folder or stat.S_ISLNK(found.st_mode)):
        raise CannotStart(f"{folder} is not a private folder of this user.", "Remove it, or choose another VAR_DIR.")
