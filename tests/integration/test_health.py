from __future__ import annotations

import pytest
from django.test import Client


def test_healthz_is_open_and_answers_without_a_database(client: Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db(transaction=True)
def test_readyz_names_each_part_that_works(client: Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["parts"]) == (200, {"database": "ok", "broker": "ok"})


@pytest.mark.django_db
def test_readyz_is_503_and_names_a_broker_that_is_away(client: Client, settings: object) -> None:
    settings.BROKER_URL = "redis+socket:///nowhere/broker.sock"  # type: ignore[attr-defined]
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["parts"]) == (503, {"database": "ok", "broker": "down"})


def test_every_answer_carries_the_headers_that_browsers_enforce(client: Client) -> None:
    headers = client.get("/healthz").headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
