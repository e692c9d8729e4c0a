from __future__ import annotations

import logging
import sys

from controlplane.logs import OneLine


def record(message: str, error: bool = False) -> str:
    failure = None
    if error:
        try:
            raise ValueError("no")
        except ValueError:
            failure = sys.exc_info()
    entry = logging.LogRecord("deployments.reports", logging.WARNING, "f", 1, "%s", (message,), failure)
    entry.created = 0
    return OneLine("worker").format(entry)


def test_a_line_says_when_who_how_bad_and_where() -> None:
    assert record("node gone") == "1970-01-01T00:00:00Z worker WARNING deployments.reports: node gone"


def test_text_from_a_node_cannot_forge_a_line_or_colour_the_terminal() -> None:
    line = record("a\n1970 web INFO x: forged\r\x1b[31m\u2028")
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


def test_an_exception_stays_on_its_line() -> None:
    assert len(record("failed", error=True).splitlines()) == 1
    assert "ValueError: no" in record("failed", error=True)
