from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from controlplane.database import postgres, redis_client_url
from controlplane.embedded.places import PG_SOCKET, SOCKET_LIMIT, Places

paths = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=30)


def parts(url: str) -> dict[str, str]:
    return {key.lower(): value for key, value in postgres(url).items() if isinstance(value, str) and key != "ENGINE"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h:5433/n", {"user": "u", "password": "p", "host": "h", "port": "5433", "name": "n"}),
        ("postgres://u@[::1]/n", {"user": "u", "password": "", "host": "::1", "port": "", "name": "n"}),
        (
            "postgresql://a%40b:c%2Fd%3A@h/n%20m",
            {"user": "a@b", "password": "c/d:", "host": "h", "port": "", "name": "n m"},
        ),
        (
            "postgresql:///n?host=/run/pg&user=u",
            {"user": "u", "password": "", "host": "/run/pg", "port": "", "name": "n"},
        ),
        ("postgresql://%2Frun%2Fpg/n", {"user": "", "password": "", "host": "/run/pg", "port": "", "name": "n"}),
    ],
)
def test_each_part_of_a_database_url_is_found(url: str, expected: dict[str, str]) -> None:
    assert parts(url) == expected


def test_words_for_libpq_go_to_libpq() -> None:
    assert postgres("postgresql://h/n?sslmode=verify-full")["OPTIONS"]["sslmode"] == "verify-full"


@given(paths, paths)
def test_an_embedded_database_url_means_the_same_to_us_and_to_libpq(folder: str, name: str) -> None:
    places = Places(Path("/") / folder / name, 1000)
    libpq = conninfo_to_dict(places.database_url)
    ours = parts(places.database_url)
    assert (ours["host"], ours["name"], ours["user"]) == (libpq["host"], libpq["dbname"], libpq["user"])
    assert ours["host"] == str(places.runtime)


@given(st.integers(1, 400))
def test_a_socket_never_has_a_path_that_the_kernel_refuses(length: int) -> None:
    places = Places(Path("/" + "x" * length), 1000)
    for socket in (places.runtime / PG_SOCKET, places.valkey_socket):
        assert len(bytes(socket)) <= SOCKET_LIMIT


def test_two_installations_never_share_a_short_socket_folder() -> None:
    deep = [Places(Path("/" + "x" * 200 + end), uid).runtime for end in "ab" for uid in (1, 2)]
    assert len(set(deep)) == 4


@pytest.mark.parametrize(
    ("broker", "database", "client"),
    [
        ("redis://h:6379/2", None, "redis://h:6379/2"),
        ("redis://:p@h:6379/2", 1, "redis://:p@h:6379/1"),
        ("redis+socket:///run/v.sock", None, "unix:///run/v.sock?db=0"),
        ("redis+socket:///run/v.sock?virtual_host=3", None, "unix:///run/v.sock?db=3"),
        ("redis+socket:///run/v.sock", 1, "unix:///run/v.sock?db=1"),
    ],
)
def test_a_broker_url_is_told_to_redis_in_its_own_words(broker: str, database: int | None, client: str) -> None:
    assert redis_client_url(broker, database) == client
