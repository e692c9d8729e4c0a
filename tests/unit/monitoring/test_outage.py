"""What goes away is told of once, and so is its return."""

from __future__ import annotations

import logging

from monitoring.sinks.outage import Outage

log = logging.getLogger("a test")


def test_an_outage_is_told_once_and_its_end_once(caplog):
    caplog.set_level(logging.INFO)
    outage = Outage(log, "the cache is away")
    outage.worked()
    for _ in range(3):
        outage.failed(ConnectionError("refused"))
    for _ in range(3):
        outage.worked()
    outage.failed(TimeoutError())
    assert caplog.messages == [
        "the cache is away: refused",
        "the cache is away: over",
        "the cache is away: TimeoutError",
    ]
