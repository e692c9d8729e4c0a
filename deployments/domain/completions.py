"""Reading what an OpenAI-compatible engine writes: the lines of a streamed answer, and its refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_WORDS = 2000
_TEMPLATE = re.compile(r"chat[ _-]?template", re.IGNORECASE)
_PREFIX = "data:"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a streamed answer.

    Attributes:
        text: More of the answer.
        thought: More of what a reasoning model says to itself.
        finish_reason: Why it ended (`stop`, `length` ...), with its last piece.
        prompt_tokens, completion_tokens: Counted by the engine, with the last piece of all.
        error: `(status or None, message)` of an engine that gave up in the middle.
        done: Nothing follows.
    """

    text: str = ""
    thought: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: tuple[int | None, str] | None = None
    done: bool = False


def read_line(line: str) -> Chunk | None:
    """One line of server-sent events; None for what carries nothing (comments, other fields, blank lines).

    Raises:
        ValueError: A `data:` line that is no piece of an answer.
    """
    if not line.startswith(_PREFIX):
        return None
    data = line[len(_PREFIX) :].strip()
    if data == "[DONE]":
        return Chunk(done=True)
    value = _parsed(data)
    if not isinstance(value, dict):
        raise ValueError("the piece is no object")
    if value.get("error"):
        return Chunk(error=_error(value["error"]))
    usage = value.get("usage")
    if not isinstance(usage, dict):
        usage = {}
    text, thought, reason = _choice(value.get("choices"))
    return Chunk(text, thought, reason, _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def read_refusal(status: int, body: str) -> str:
    """What an engine said with an answer that is none: its message in whichever of the usual shapes, or the body."""
    try:
        value = _parsed(body)
    except ValueError:
        value = None
    found = _message(value) if isinstance(value, dict) else None
    return (found or body.strip() or f"status {status}, without a word")[:MAX_WORDS]


def lacks_chat_template(message: str) -> bool:
    """Whether an engine refuses because its model brings no chat template."""
    return _TEMPLATE.search(message) is not None


def _choice(choices: Any) -> tuple[str, str, str | None]:
    """(text, thought, finish reason) of the first choice, of a chat or of a plain completion."""
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, Mapping):
        return "", "", None
    delta = first.get("delta")
    if not isinstance(delta, Mapping):
        delta = {}
    text = _text(delta.get("content")) or _text(first.get("text"))
    thought = _text(delta.get("reasoning")) or _text(delta.get("reasoning_content"))
    reason = first.get("finish_reason")
    return text, thought, _text(reason) or None


def _error(error: Any) -> tuple[int | None, str]:
    if not isinstance(error, Mapping):
        return None, _text(str(error))[:MAX_WORDS]
    code = error.get("code")
    return code if isinstance(code, int) else None, _text(error.get("message"))[:MAX_WORDS] or "no reason was given"


def _message(value: dict[str, Any]) -> str | None:
    error = value.get("error")
    if isinstance(error, Mapping):
        error = error.get("message")
    for found in (error, value.get("message"), value.get("detail")):
        if isinstance(found, str) and found.strip():
            return _text(found).strip()
    return None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the piece is nested too deeply") from None


def _text(value: Any) -> str:
    """Without halves of surrogate pairs, which JSON may hold and no page can be sent."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
