"""Settings that replace a part of the embedded default: that part is then not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.embedded.keys import field_key, secret_key
from tests.integration.embedded.panel import Panel
from tests.integration.embedded.test_servers import places, serving  # noqa: F401 - a fixture


@pytest.fixture
def panel(tmp_path: Path) -> Panel:
    return Panel(tmp_path / "panel")


def test_a_given_database_and_broker_are_used_and_no_own_ones_are_started(panel: Panel, places) -> None:  # noqa: F811
    with serving(places):
        panel.settings |= {"DATABASE_URL": places.database_url, "BROKER_URL": places.broker_url}
        panel.start()
        try:
            assert panel.is_ready()
            assert panel.pid_of("postgres") is panel.pid_of("valkey-server") is None
            assert not panel.places.postgres_data.exists()
        finally:
            panel.end()


def test_given_keys_are_used_and_none_are_made(panel: Panel, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(secret_key())
    (tmp_path / "fields").write_text(f"{field_key()}\n{field_key()}\n")
    panel.settings |= {"SECRET_KEY_FILE": str(tmp_path / "key"), "FIELD_KEYS_FILE": str(tmp_path / "fields")}
    panel.start()
    try:
        assert panel.is_ready()
        assert not panel.places.secret_key.exists()
        assert not panel.places.field_keys.exists()
    finally:
        panel.end()
