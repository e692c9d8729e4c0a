"""Reading how far a job's process is from its log. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard


def read_progress(text: str) -> tuple[int | None, dict[str, Any] | None]:
    """Percent done and the result, from the newest lines that say so.

    The helper writes `{"step": k, "of": n}` before each step, `{"progress": p}` in between, `{"result": ...}` at the
    end; every other line is a program's own.
    """
    percent, result = None, None
    for line in text.splitlines():
        said = _said(line)
        done = _percent(said)
        percent = percent if done is None else done
        if isinstance(said.get("result"), dict):
            result = said["result"]
    return percent, result


def _said(line: str) -> dict[str, Any]:
    """A line that is a JSON object; {} for every other."""
    if not line.startswith("{"):
        return {}
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _percent(said: dict[str, Any]) -> int | None:
    progress, step, of = said.get("progress"), said.get("step"), said.get("of")
    if _is_number(progress):
        return int(max(0, min(100, progress)))
    if type(step) is int and type(of) is int and of > 0:
        return max(0, min(100, 100 * (step - 1) // of))
    return None


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and math.isfinite(value)


def last_words(text: str) -> str:
    """The line of a failed process's log to quote: a program's last error, else its last line, else the helper's."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not _said(line).keys() & {"step", "progress", "result"}]
    errors = [line for line in own if line.lower().startswith(("error", "fatal"))]
    return next((found[-1] for found in (errors, own, lines) if found), "")


def tail(text: str, limit: int) -> str:
    """The last `limit` characters, from the start of a line where there is one."""
    if len(text) <= limit:
        return text
    cut = text[-limit:]
    newline = cut.find("\n")
    return cut[newline + 1 :] if 0 <= newline < len(cut) - 1 else cut
