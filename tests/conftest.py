"""Tests run on a real PostgreSQL and a real Valkey: the embedded ones, private to each pytest session.

They are started when the first test asks for the database, as children of pytest that end with it. With DATABASE_URL
or BROKER_URL set, that part is used instead and nothing of ours is started.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import chromium as chromium

PREFIX = "pilothouse-test-"
EXTERNAL = {"postgres": bool(os.environ.get("DATABASE_URL")), "valkey": bool(os.environ.get("BROKER_URL"))}


def _session_folder() -> Path:
    """A short, private folder, locked for as long as this session lives; those of killed sessions are removed."""
    for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if old.stat().st_uid == os.getuid() and _is_abandoned(old):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def _is_abandoned(folder: Path) -> bool:
    try:
        with (folder / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


VAR = _session_folder()
(VAR / "static").mkdir()
_lock = (VAR / "lock").open("w")
fcntl.flock(_lock, fcntl.LOCK_EX)
os.environ.update(
    DJANGO_SETTINGS_MODULE="controlplane.settings",
    VAR_DIR=str(VAR),
    SECRET_KEY="a key for tests that guards nothing 0123456789",
    FIELD_KEYS="cGlsb3Rob3VzZS10ZXN0cy1vbmx5LWtleS0wMTIzNDU=",
    LAUNCHER="stub",
    PROCESS="test",
)


def pytest_configure(config: pytest.Config) -> None:
    from django.conf import settings

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.ALLOWED_HOSTS = ["*"]


def pytest_unconfigure(config: pytest.Config) -> None:
    _lock.close()
    shutil.rmtree(VAR, ignore_errors=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[None]:
    """PostgreSQL and Valkey for this session, without fsync: what a test wrote may be lost with the machine."""
    from dataclasses import replace

    from django.conf import settings

    from controlplane.embedded import children
    from controlplane.embedded import servers as embedded

    missing = tuple(name for name, external in EXTERNAL.items() if not external)
    found = embedded.find(settings.PLACES, only=missing, pg_bin=settings.PG_BIN)
    running = []
    for server in found:
        if server.program.name == "postgres":
            fast = (*server.program.argv, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=100")
            server = replace(server, program=replace(server.program, argv=fast))
        running.append((embedded.start(server), server.program))
    yield
    for child, program in reversed(running):
        children.stop(child, program)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(servers: None, django_db_modify_db_settings_parallel_suffix: None) -> None:
    """pytest-django asks for this before it makes the test database."""
