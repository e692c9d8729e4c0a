"""Cutting a piece of a log into lines for people: colours removed, what went wrong marked."""

from __future__ import annotations

import re
from dataclasses import dataclass

# CSI and OSC sequences, and the lone escapes that progress bars leave behind.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# A line that never ends is shown in pieces of this many characters.
LONGEST = 32 * 1024
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_FAULT = re.compile(
    r"^(?:\([^)]*\)\s*)?(?:ERROR|CRITICAL|FATAL)\b|Traceback \(most recent call last\)"
    r"|^(?:\([^)]*\)\s*)?[\w.]*(?:Error|Exception):|\b(?:error|Error): |Segmentation fault|Killed$"
)
_WARNING = re.compile(r"^(?:\([^)]*\)\s*)?WARN(?:ING)?\b|\bWarning: ")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line. `offset` is the byte at which it starts in the log; `level` is `fault`, `warning` or ''."""

    offset: int
    text: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Whole lines, and where to go on reading."""

    lines: tuple[LogLine, ...]
    next_offset: int


def read_lines(data: str, offset: int, end: int, *, ended: bool = False, cut: bool = False) -> LogPiece:
    """The whole lines of `data`, the log's bytes from `offset` up to `end`.

    Args:
        ended: Nothing will follow, so a last line without its end is one too.
        cut: `data` may start in the middle of a line, which is then left out.
    """
    parts = data.split("\n")
    rest = parts.pop()
    if cut and parts:
        offset += len(parts.pop(0).encode()) + 1
    lines = []
    for part in parts:
        lines.append(_line(offset, part))
        offset += len(part.encode()) + 1
    if rest and (ended or len(rest) > LONGEST):
        lines.append(_line(offset, rest))
        rest = ""
    # Counted from the end: bytes that are no text have another length once they are decoded.
    return LogPiece(tuple(lines), end - len(rest.encode()))


def _line(offset: int, raw: str) -> LogLine:
    text = clean(raw)
    level = "fault" if _FAULT.search(text) else "warning" if _WARNING.search(text) else ""
    return LogLine(offset, text, level)


def clean(raw: str) -> str:
    """A line as a terminal would leave it: no escapes, only the last state of what was overwritten."""
    text = _ESCAPES.sub("", raw.rstrip("\r"))
    return _CONTROL.sub("", text.rsplit("\r", 1)[-1])
