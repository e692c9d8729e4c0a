from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import caches
from django.test import Client

from controlplane.login import FAILURES, WINDOW_S

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def account(db: None) -> None:
    caches["default"].clear()
    caches["local"].clear()
    get_user_model().objects.create_user("ada", password=PASSWORD)


def log_in(client: Client, password: str, name: str = "ada", address: str = "198.51.100.7") -> int:
    data = {"username": name, "password": password}
    return client.post("/login/", data, REMOTE_ADDR=address).status_code


def test_the_right_password_signs_in(client: Client) -> None:
    assert log_in(client, PASSWORD) == 302
    assert "_auth_user_id" in client.session


def test_guessing_is_stopped_even_for_the_right_password_and_says_for_how_long(client: Client) -> None:
    assert [log_in(client, "wrong") for _ in range(FAILURES)] == [200] * FAILURES
    answer = client.post("/login/", {"username": "Ada", "password": PASSWORD}, REMOTE_ADDR="198.51.100.7")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, str(WINDOW_S))
    assert "_auth_user_id" not in client.session


def test_others_are_not_locked_out_by_it(client: Client) -> None:
    for _ in range(FAILURES):
        log_in(client, "wrong")
    assert log_in(client, PASSWORD, address="198.51.100.8") == 302


def test_a_login_forgets_the_failures_before_it(client: Client) -> None:
    for _ in range(FAILURES - 1):
        log_in(client, "wrong")
    log_in(client, PASSWORD)
    client.post("/logout/")
    assert log_in(client, "wrong") == 200


def test_guessing_is_limited_while_the_broker_is_away(client: Client, settings) -> None:
    settings.CACHES = {**settings.CACHES, "default": {**settings.CACHES["default"], "LOCATION": "unix:///nowhere?db=1"}}
    assert [log_in(client, "wrong") for _ in range(FAILURES + 1)] == [200] * FAILURES + [429]


def test_logging_out_needs_a_post(client: Client) -> None:
    log_in(client, PASSWORD)
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").status_code == 302
    assert "_auth_user_id" not in client.session


def test_cookies_cannot_be_read_by_scripts_or_sent_by_other_sites(client: Client) -> None:
    log_in(client, PASSWORD)
    cookie = client.cookies["pilothouse_session"]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")


def test_a_login_form_of_another_site_is_refused() -> None:
    strict = Client(enforce_csrf_checks=True)
    assert strict.post("/login/", {"username": "ada", "password": PASSWORD}).status_code == 403
