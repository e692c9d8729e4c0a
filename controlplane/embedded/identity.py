"""As whom PostgreSQL and Valkey run. PostgreSQL refuses uid 0, so root has to become somebody else.

First choice for root: a user namespace. Inside, the server is an ordinary user; outside, it still owns root's files,
so that nothing has to be moved, chowned or made traversable, even below a 0700 home. Where the kernel or a container
forbids that, a numeric uid that belongs to nobody, with the data in /var/lib/pilothouse-embedded.
"""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from controlplane.embedded.children import Program, run
from controlplane.embedded.errors import CannotStart
from controlplane.embedded.places import Places

# Between systemd's ranges for homes and for dynamic users; no distribution gives these numbers to anybody.
FREE_UIDS = range(60578, 61184)
OWN_ROOM = Path("/var/lib/pilothouse-embedded")


@dataclass(frozen=True, slots=True)
class Identity:
    """`server` is for the servers, `initdb` for initdb, which insists on a name in the user database."""

    server: str = "same"
    initdb: str = "same"

    @property
    def numeric(self) -> tuple[int, int] | None:
        """The ids that must own the data, where they are not the supervisor's own."""
        kind, _, ids = self.server.partition(":")
        if kind != "uid":
            return None
        uid, gid = ids.split(":")
        return int(uid), int(gid)


def choose(places: Places, wish: str = "auto") -> Identity:
    """`wish`: auto, or for root userns or uid. Data that an earlier start put under an own uid stays there."""
    if places.uid != 0:
        return Identity()
    somebody = _somebody()
    inside = f"userns:{somebody.pw_uid}:{somebody.pw_gid}"
    if wish == "auto":
        wish = "userns" if not places.postgres_data.is_symlink() and _works(inside) else "uid"
    if wish == "userns":
        if places.postgres_data.is_symlink():
            raise CannotStart("The data belong to an own uid already.", "Unset DROP_ROOT, or set it to uid.")
        return Identity(inside, inside)
    number = FREE_UIDS[int(places.key, 16) % len(FREE_UIDS)]
    return Identity(f"uid:{number}:{number}", f"uid:{somebody.pw_uid}:{somebody.pw_gid}")


def make_room(places: Places, identity: Identity) -> None:
    """For an own uid: data and sockets move to a folder that it can reach; VAR_DIR keeps symbolic links to them."""
    owner = identity.numeric
    if owner is None:
        return
    room = OWN_ROOM / places.key
    try:
        for folder in (OWN_ROOM, room):
            folder.mkdir(mode=0o711, exist_ok=True)
            folder.chmod(0o711)
    except OSError as error:
        raise CannotStart(f"{room} cannot be made: {error}.", "Run as an ordinary user.") from error
    for link in (places.postgres_data, places.valkey_data, places.runtime):
        _move(link, room / link.name, owner)


def reachable(program: Path, places: Places, identity: Identity) -> Path:
    """The program's path for that identity: a copy of its whole tree where a parent folder is closed to others."""
    if identity.numeric is None or _open_to_others(program):
        return program
    tree = program.parent.parent
    version = f"{tree.parent.name}-{int(tree.stat().st_mtime)}"
    copy = OWN_ROOM / places.key / "programs" / version / tree.parent.name / tree.name
    if not (copy / program.parent.name / program.name).exists():
        _copy(tree, copy)
        libraries = tree.parent.with_name(f"{tree.parent.name}.libs")
        if libraries.is_dir():
            _copy(libraries, copy.parent.with_name(libraries.name))
    return copy / program.parent.name / program.name


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all: a copy that was cut short would be taken for a good one at the next start."""
    half = target.with_name(target.name + ".half")
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    for parent in takewhile(lambda parent: parent != OWN_ROOM, half.parents):
        parent.chmod(0o711)
    shutil.copytree(source, half, ignore=shutil.ignore_patterns("include", "__pycache__"))
    for path in (half, *half.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044))
    half.rename(target)


def _somebody() -> pwd.struct_passwd:
    """Any ordinary entry of the user database; the kernel's overflow id would make foreign files look like ours."""
    for entry in pwd.getpwall():
        if 0 < entry.pw_uid < 65534 and entry.pw_gid > 0:
            return entry
    raise CannotStart("The user database has no entry besides root.", "Add a system user, or set DATABASE_URL.")


def _works(identity: str) -> bool:
    return run(Program("probe", ("/bin/sh", "-c", "test $(id -u) -ne 0"), identity)).returncode == 0


def _move(link: Path, target: Path, owner: tuple[int, int]) -> None:
    if link.is_dir() and not link.is_symlink():
        shutil.move(link, target)
    target.mkdir(mode=0o700, exist_ok=True)
    for path in (target, *target.rglob("*")):
        os.chown(path, *owner, follow_symlinks=False)
    if not link.is_symlink():
        link.symlink_to(target)


def _open_to_others(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
