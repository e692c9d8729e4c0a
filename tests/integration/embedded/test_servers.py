"""The servers alone: odd folders, leftovers of crashes, and every way to run them as somebody else than root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from controlplane.database import redis_client_url
from controlplane.embedded import children, identity, postgres, servers
from controlplane.embedded.errors import CannotStart
from controlplane.embedded.places import PG_SOCKET, SOCKET_LIMIT, Places

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="needs root: only root has an identity to drop")


@contextmanager
def serving(places: Places, **choices: str) -> Iterator[list[servers.Child]]:
    found = servers.find(places, only=("postgres", "valkey"), **choices)
    running: list[tuple[servers.Child, children.Program]] = []
    try:
        for server in found:
            running.append((servers.start(server), server.program))
        yield [child for child, _ in running]
    finally:
        for child, program in reversed(running):
            children.stop(child, program)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    places = Places(tmp_path / "var", os.getuid())
    yield places
    shutil.rmtree(identity.OWN_ROOM / places.key, ignore_errors=True)


def visit(places: Places) -> int:
    """Leave a mark in both servers; how many there are by now, by each server's count."""
    with psycopg.connect(places.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS visits (n int)")
        connection.execute("INSERT INTO visits VALUES (1)")
        rows = connection.execute("SELECT count(*) FROM visits").fetchone()
    with redis.Redis.from_url(redis_client_url(places.broker_url)) as client:
        assert rows == (client.incr("visits"),)
    return rows[0]


def test_a_folder_too_deep_for_a_socket_gets_a_short_one_elsewhere(tmp_path: Path) -> None:
    places = Places(tmp_path / ("deep" * 20) / ("deeper" * 10) / "var", os.getuid())
    assert len(bytes(places.var / "run" / PG_SOCKET)) > SOCKET_LIMIT
    try:
        for expected in (1, 2):
            with serving(places):
                assert visit(places) == expected
        assert places.runtime.parent == Path("/tmp")
        assert places.runtime.stat().st_mode & 0o777 == 0o700
    finally:
        shutil.rmtree(places.runtime, ignore_errors=True)


def test_a_socket_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    places = Places(tmp_path / ("deep" * 20) / ("deeper" * 10) / "var", os.getuid())
    places.runtime.mkdir(mode=0o777)
    places.runtime.chmod(0o777)
    try:
        with pytest.raises(CannotStart, match="not a private folder"):
            servers.find(places, only=("postgres",))
    finally:
        places.runtime.rmdir()


def test_names_with_blanks_quotes_and_percent_signs_are_names_like_any_other(tmp_path: Path) -> None:
    places = Places(tmp_path / "a b'c%41\"é" / "var", os.getuid())
    with serving(places):
        assert visit(places) == 1


@ROOT_ONLY
@pytest.mark.parametrize("how", ["userns", "uid"])
def test_root_runs_the_servers_below_a_closed_home(tmp_path: Path, how: str) -> None:
    """Programs and data both lie below a folder that only root may enter, and its mode stays as it is."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    wheel = postgres.find_programs().parents[1]
    shutil.copytree(wheel, home / "lib" / wheel.name, ignore=shutil.ignore_patterns("include"))
    shutil.copytree(wheel.with_name(f"{wheel.name}.libs"), home / "lib" / f"{wheel.name}.libs")
    pg_bin = str(home / "lib" / wheel.name / "pginstall" / "bin")
    places = Places(home / "panel" / "var", 0)
    try:
        for expected in (1, 2):
            with serving(places, drop_root=how, pg_bin=pg_bin) as running:
                assert visit(places) == expected
                owners = {Path(f"/proc/{child.pid}").stat().st_uid for child in running}
                assert owners == {0} if how == "userns" else owners <= set(identity.FREE_UIDS)
        assert home.stat().st_mode & 0o777 == 0o700
    finally:
        shutil.rmtree(identity.OWN_ROOM / places.key, ignore_errors=True)


@ROOT_ONLY
def test_data_of_a_user_namespace_are_taken_along_to_an_own_uid_and_stay_there(places: Places) -> None:
    for how, expected in (("userns", 1), ("uid", 2), ("auto", 3)):
        with serving(places, drop_root=how):
            assert visit(places) == expected
    with pytest.raises(CannotStart, match="own uid already"):
        servers.find(places, only=("postgres",), drop_root="userns")


def test_a_stale_pid_file_whose_pid_is_alive_again_does_not_stop_a_start(places: Places) -> None:
    with serving(places):
        visit(places)
    (places.postgres_data / "postmaster.pid").write_text(f"{os.getpid()}\n{places.postgres_data}\n1\n5432\n")
    for name in (PG_SOCKET, f"{PG_SOCKET}.lock", "valkey.sock"):
        (places.runtime / name).write_text(f"{os.getpid()}\n")
    with serving(places):
        assert visit(places) == 2


def test_an_initdb_that_was_cut_short_is_begun_again(places: Places) -> None:
    half = places.var / "postgres.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with serving(places):
        assert visit(places) == 1


def test_servers_that_outlived_their_supervisor_are_ended_before_new_ones_start(places: Places) -> None:
    """Started here without a parent-death signal, as a kernel without it would leave them."""
    orphans = []
    for server in servers.find(places, only=("postgres", "valkey")):
        orphans.append(subprocess.Popen(_without_death_signal(server.program), start_new_session=True))
        deadline = time.monotonic() + 30
        while not server.is_ready(orphans[-1].pid) and time.monotonic() < deadline:
            time.sleep(0.02)
    visit(places)
    _reap_in_background(orphans)
    with serving(places):
        assert visit(places) == 2
    assert [orphan.wait(5) is not None for orphan in orphans] == [True, True]


def _without_death_signal(program: children.Program) -> list[str]:
    words = [str(os.getpid()), "0", program.identity, *program.argv]
    return [sys.executable, "-I", "-S", children.SPAWN, *words]


def _reap_in_background(orphans: list[subprocess.Popen[bytes]]) -> None:
    """Init would reap them; as our children they would stay in the process table otherwise."""
    import threading

    for orphan in orphans:
        threading.Thread(target=orphan.wait, daemon=True).start()


def test_data_of_another_major_version_are_refused_by_name(places: Places) -> None:
    with serving(places):
        pass
    (places.postgres_data / "PG_VERSION").write_text("15\n")
    with pytest.raises(CannotStart, match="data are of PostgreSQL 15"):
        servers.find(places, only=("postgres",))


def test_a_child_whose_supervisor_is_gone_already_does_not_start(tmp_path: Path) -> None:
    witness = tmp_path / "started"
    words = ["2147483647", str(int(signal.SIGKILL)), "same", "/bin/sh", "-c", f"touch '{witness}'"]
    done = subprocess.run([sys.executable, "-I", "-S", children.SPAWN, *words], capture_output=True, check=False)
    assert done.returncode != 0
    assert not witness.exists()
