"""Log lines for operators: one event is one line, whatever text came from a node."""

from __future__ import annotations

import logging
import time


class OneLine(logging.Formatter):
    """`2026-01-31T12:00:00Z worker WARNING deployments.reconcile: text`; line breaks and control characters escaped."""

    converter = staticmethod(time.gmtime)

    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)sZ {process} %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return "".join(c if c.isprintable() else _escaped(c) for c in super().format(record))


def _escaped(character: str) -> str:
    return " | " if character == "\n" else character.encode("unicode_escape").decode("ascii")
