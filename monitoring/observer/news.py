"""What of a report is new, and what of it is kept."""

from __future__ import annotations

from typing import Any

import msgspec


def news(report: dict[str, Any]) -> dict[str, Any]:
    """The part of a report whose change somebody has to act on: how a process ended, how its probe went.

    One that just runs is no news: who started it knows.
    """
    seen = {}
    for process, entry in (report.get("processes") or {}).items():
        probe = entry.get("probe") or {}
        if entry.get("alive") and not entry.get("exit") and not probe:
            continue
        seen[process] = (
            entry.get("alive"),
            entry.get("exit"),
            bool(entry.get("members")),
            (probe.get("health") or {}).get("status"),
            probe.get("models"),
            (probe.get("completion") or {}).get("ok"),
        )
    return {"boot": report.get("boot_id"), "processes": seen}


def kept(report: dict[str, Any]) -> str:
    """A report as the database keeps it: JSON without figures, which go to the cache alone.

    PostgreSQL takes no NUL character in JSON, and a log may hold some.
    """
    plain = {name: value for name, value in report.items() if name != "gpu"}
    if processes := report.get("processes"):
        plain["processes"] = {
            process: {name: value for name, value in entry.items() if name != "metrics"}
            for process, entry in processes.items()
        }
    return msgspec.json.encode(plain).replace(b"\\u0000", b"\\ufffd").decode()
