"""System checks: what settings cannot know by parsing alone. Each has an id and says what to do."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register, run_checks

# A name (`.example.org` covers its subdomains), an IPv4 address, an IPv6 one in brackets, or the refused `*`.
HOST = re.compile(r"\*|\.?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@register("pilothouse")
def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    return [
        *_var_dir(),
        *_database(),
        *_hosts(),
        *_secret_key(),
        *_field_keys(),
        *_launcher(),
        *_keys_dir(),
        *_proxies(),
    ]


def refuse_if_wrong() -> None:
    """For processes that Django's command line does not start: errors go to stderr and the exit code is 2."""
    errors = [message for message in run_checks(tags=["pilothouse"]) if message.is_serious()]
    for error in errors:
        print(f"pilothouse: {error.id} {error.msg} {error.hint}", file=sys.stderr)  # noqa: T201 - before logging is of use
    if errors:
        raise SystemExit(2)


def _var_dir() -> Iterator[CheckMessage]:
    parent = settings.VAR_DIR
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        yield Error(
            f"VAR_DIR {settings.VAR_DIR} cannot be written.", hint="Choose a folder of yours.", id="pilothouse.E001"
        )


def _database() -> Iterator[CheckMessage]:
    if not settings.DATABASES["default"]["NAME"]:
        hint = "Write it like postgresql://user:password@host:5432/name."
        yield Error("DATABASE_URL names no database.", hint=hint, id="pilothouse.E002")


def _hosts() -> Iterator[CheckMessage]:
    others = [host for host in settings.ALLOWED_HOSTS if host not in (*LOOPBACK, "[::1]")]
    if settings.BIND not in LOOPBACK and not others:
        hint = "Set ALLOWED_HOSTS to the names or addresses under which browsers reach the panel."
        yield Error(f"BIND is {settings.BIND}, but only loopback names are allowed.", hint=hint, id="pilothouse.E003")
    for host in settings.ALLOWED_HOSTS:
        if not HOST.fullmatch(host):
            hint = "Write host names or addresses alone, without scheme, port or path."
            yield Error(f"ALLOWED_HOSTS: {host!r} is no host.", hint=hint, id="pilothouse.E009")
    if "*" in settings.ALLOWED_HOSTS and not settings.DEBUG:
        hint = "Name the hosts: '*' lets a foreign page reach the panel through a name that it controls."
        yield Error("ALLOWED_HOSTS contains '*'.", hint=hint, id="pilothouse.E004")


def _secret_key() -> Iterator[CheckMessage]:
    if len(settings.SECRET_KEY) < 32 or len(set(settings.SECRET_KEY)) < 8:
        hint = "Use at least 32 random characters, for example from `openssl rand -base64 48`."
        yield Error("SECRET_KEY is too easy to guess.", hint=hint, id="pilothouse.E005")


def _field_keys() -> Iterator[CheckMessage]:
    for number, key in enumerate(settings.FIELD_KEYS, start=1):
        try:
            Fernet(key)
        except ValueError:
            hint = "Each key is 32 bytes in url-safe base64, as cryptography's Fernet.generate_key() writes it."
            yield Error(f"Key {number} of FIELD_KEYS is no Fernet key.", hint=hint, id="pilothouse.E006")


def _launcher() -> Iterator[CheckMessage]:
    if settings.LAUNCHER == "stub" and not settings.DEBUG:
        hint = "Unset LAUNCHER to reach real nodes."
        yield Warning("LAUNCHER is 'stub': nothing is started on any node.", hint=hint, id="pilothouse.W001")


def _keys_dir() -> Iterator[CheckMessage]:
    folder = settings.KEYS_DIR
    if folder and not (os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK)):
        hint = "Name a folder with SSH keys that the panel may read, or leave it unset."
        yield Error(f"KEYS_DIR {folder} is no readable folder.", hint=hint, id="pilothouse.E007")


def _proxies() -> Iterator[CheckMessage]:
    for word in settings.TRUSTED_PROXIES:
        try:
            ipaddress.ip_network(word, strict=False)
        except ValueError:
            if word != "*":
                hint = "Write addresses or networks, such as 10.0.0.5 or 10.0.0.0/24."
                yield Error(f"TRUSTED_PROXIES: {word!r} is no address.", hint=hint, id="pilothouse.E008")
