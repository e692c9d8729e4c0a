"""Starts that are refused: the operator reads a named cause and a remedy, never a traceback."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.integration.embedded.panel import Panel


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"PORT": "http"}, "PORT: 'http' is not usable. Use a whole number from 1 to 65535."),
        ({"DEBUG": "perhaps"}, "DEBUG: 'perhaps' is not usable."),
        ({"LAUNCHER": "rocket"}, "LAUNCHER: 'rocket' is not usable. Use one of: node, stub."),
        ({"DATABASE_URL": "mysql://u:secret@h/d"}, "DATABASE_URL: '***@h/d' is not usable."),
        ({"BROKER_URL": "amqp://h"}, "BROKER_URL: 'amqp://h' is not usable."),
        ({"SECRET_KEY_FILE": "/nowhere/key"}, "SECRET_KEY_FILE: cannot be read"),
        ({"TRUSTED_ORIGINS": "panel.example.org"}, "TRUSTED_ORIGINS: 'panel.example.org' is no origin."),
        ({"VAR_DIR": "relative"}, "VAR_DIR: 'relative' is not usable. Use an absolute path."),
        ({"VAR_DIR": "/proc/pilothouse"}, "VAR_DIR /proc/pilothouse cannot be used"),
        ({"SECRET_KEY": "short"}, "pilothouse.E005"),
        ({"FIELD_KEYS": "no-key"}, "pilothouse.E006"),
        ({"BIND": "0.0.0.0"}, "pilothouse.E003"),
        ({"KEYS_DIR": "/nowhere"}, "pilothouse.E007) KEYS_DIR /nowhere is no readable folder."),
        ({"TRUSTED_PROXIES": "proxy one"}, "pilothouse.E008) TRUSTED_PROXIES: 'proxy one' is no address."),
        ({"ALLOWED_HOSTS": "http://panel.example.org"}, "pilothouse.E009) ALLOWED_HOSTS: 'http://panel.example.org'"),
        ({"BIND": "203.0.113.1"}, "203.0.113.1:"),
        ({"PG_BIN": "/nowhere"}, "PG_BIN /nowhere holds no usable server"),
        ({"DATABASE_URL": "postgresql:///d?host=/nowhere"}, "DATABASE_URL: the database does not answer"),
        ({"BROKER_URL": "redis://127.0.0.1:1/0"}, "BROKER_URL: the broker does not answer"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_setting_is_named_with_its_remedy(tmp_path: Path, settings: dict[str, str], named: str) -> None:
    panel = Panel(tmp_path / "var", **settings)
    done = panel.run()
    assert done.returncode in (2, 4), done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr.replace("secret-key", "")
    assert panel.processes() == []


def test_all_wrong_settings_are_named_at_once(tmp_path: Path) -> None:
    done = Panel(tmp_path / "var", PORT="0", WORKER_THREADS="many", LANGUAGE_CODE="fr").run()
    assert [name in done.stderr for name in ("PORT:", "WORKER_THREADS:", "LANGUAGE_CODE:")] == [True] * 3


def test_a_port_in_use_is_named_with_its_holder_and_nothing_is_started(tmp_path: Path) -> None:
    panel = Panel(tmp_path / "var")
    with socket.create_server(("127.0.0.1", panel.port)):
        done = panel.run()
    assert done.returncode == 3
    assert f"Port {panel.port} is in use by " in done.stderr
    assert f"(pid {os.getpid()})" in done.stderr
    assert not panel.places.postgres_data.exists()
