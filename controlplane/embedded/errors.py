"""Why the embedded default does not start; each message names the thing and what to do."""

from __future__ import annotations


class CannotStart(Exception):
    """Shown to the operator as one line; the supervisor exits with `exit_code`."""

    exit_code = 2

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")


class PortInUse(CannotStart):
    exit_code = 3


class ServerFailed(CannotStart):
    """A server binary is missing, unusable, or gave up; the message carries the end of its log."""

    exit_code = 4
