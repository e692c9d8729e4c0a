"""Reading how far a job's process is from its log. Pure."""

from __future__ import annotations

import json
from typing import Any


def read_progress(text: str) -> tuple[int | None, dict[str, Any] | None]:
    """Percent done and the result, from the newest lines that say so.

    The helper writes `{"step": k, "of": n}` before each step, `{"progress": p}` in between, `{"result": ...}` at the
    end; every other line is a program's own.
    """
    percent, result = None, None
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        if isinstance(said.get("progress"), int | float):
            percent = int(said["progress"])
        elif isinstance(said.get("step"), int) and isinstance(said.get("of"), int) and said["of"] > 0:
            percent = 100 * (said["step"] - 1) // said["of"]
        if isinstance(said.get("result"), dict):
            result = said["result"]
    return (None if percent is None else max(0, min(100, percent))), result


def last_words(text: str) -> str:
    """What a program said last before it failed: its last line that begins with ERROR, else its last line.

    The helper's own lines, JSON objects all of them, count only where there is nothing else.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("{")]
    errors = [line for line in said if line.upper().startswith("ERROR")]
    return (errors or said or lines or [""])[-1]


def tail(text: str, limit: int) -> str:
    """The last `limit` characters, from the start of a line where there is one."""
    if len(text) <= limit:
        return text
    cut = text[-limit:]
    newline = cut.find("\n")
    return cut[newline + 1 :] if 0 <= newline < len(cut) - 1 else cut
