"""The embedded panel's life: first and later starts, Ctrl-C, and death of every part."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.embedded.panel import Panel, eventually


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Panel]:
    panel = Panel(tmp_path_factory.mktemp("panel") / "var").start()
    yield panel
    panel.end()


@pytest.fixture
def panel(tmp_path: Path) -> Iterator[Panel]:
    panel = Panel(tmp_path / "var")
    yield panel
    panel.end()


def query(panel: Panel, sql: str) -> list[tuple]:
    with psycopg.connect(panel.places.database_url, autocommit=True) as connection:
        return connection.execute(sql).fetchall()


def kept_state(panel: Panel) -> list[object]:
    files = [path.read_text() for path in (panel.places.secret_key, panel.places.field_keys)]
    return [*files, query(panel, "SELECT id, username, password FROM auth_user ORDER BY id")]


def test_a_second_start_finds_everything_as_it_was_and_shows_no_password(panel: Panel) -> None:
    panel.start()
    assert re.search(r"^First login: admin / \S{20} ", panel.output, re.MULTILINE)
    assert f"http://127.0.0.1:{panel.port}/" in panel.output
    before = kept_state(panel)
    panel.interrupt()
    panel.start()
    assert "First login" not in panel.output
    assert kept_state(panel) == before


def test_ctrl_c_stops_in_order_and_leaves_nothing(panel: Panel) -> None:
    panel.start()
    assert len(panel.processes()) > 6
    assert panel.interrupt() == 0
    assert panel.processes() == []
    assert not list(panel.places.runtime.iterdir())
    assert "database system is shut down" in (panel.var / "log" / "postgres.log").read_text()
    with socket.create_server(("127.0.0.1", panel.port)):
        pass


def test_state_and_sockets_are_closed_to_other_users(running: Panel) -> None:
    for folder in (running.var, running.places.runtime):
        assert folder.stat().st_mode & 0o777 == 0o700
    for file in (running.places.secret_key, running.places.field_keys, running.places.lock):
        assert file.stat().st_mode & 0o777 == 0o600


def test_the_servers_listen_on_unix_sockets_only(running: Panel) -> None:
    assert query(running, "SELECT current_setting('listen_addresses')") == [("",)]
    listening = {
        line.split()[9]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    for server in ("postgres", "valkey-server"):
        pid = running.pid_of(server)
        links = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        assert not links & {f"socket:[{inode}]" for inode in listening}


@pytest.mark.parametrize("part", ["web", "worker", "beat", "valkey-server", "postgres"])
def test_a_killed_part_is_started_again(running: Panel, part: str) -> None:
    old = running.pid_of(part)
    assert old is not None
    os.kill(old, signal.SIGKILL)
    eventually(f"{part} again", lambda: running.pid_of(part) not in (None, old))
    eventually("ready again", running.is_ready)
    assert query(running, "SELECT count(*) FROM auth_user") == [(1,)]


def test_a_second_supervisor_says_where_the_first_one_is(running: Panel) -> None:
    other = Panel(running.var)
    done = other.run()
    assert done.returncode == 0
    assert f"already runs: http://127.0.0.1:{running.port}/ (pid {running.process.pid})" in done.stdout
    assert running.is_ready()


def test_a_killed_supervisor_leaves_nothing_and_loses_no_committed_row(panel: Panel) -> None:
    panel.start()
    committed = []
    with psycopg.connect(panel.places.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE witness (n int)")
        for n in range(200):
            insert(connection, n, committed)
        panel.kill()
        with pytest.raises(psycopg.OperationalError):  # noqa: PT012 - which insert meets the end is not ours to say
            for n in itertools.count(200):
                insert(connection, n, committed)
    eventually("all children gone", lambda: panel.processes() == [])
    panel.start()
    kept = {n for (n,) in query(panel, "SELECT n FROM witness")}
    assert set(committed) <= kept


def insert(connection: psycopg.Connection, n: int, committed: list[int]) -> None:
    connection.execute("INSERT INTO witness VALUES (%s)", [n])
    committed.append(n)


def test_a_supervisor_that_follows_a_killed_one_at_once_takes_over(panel: Panel) -> None:
    panel.start()
    panel.kill()
    panel.start()
    assert panel.is_ready()
