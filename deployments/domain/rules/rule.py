"""What a rule is, and the words that all rules use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..plugins import Problem
from .subject import Subject

Value = int | float | str
# Where a setting is entered, if not under its own name. What is none of these is an engine argument.
FIELDS = {
    **dict.fromkeys(("nodes", "rank", "headless", "engine_version", "model_path", "compute_capability"), "nodes"),
    **dict.fromkeys(("packages", "shm_mib", "ram_mib", "open_files", "memlock_unlimited", "rdma"), "nodes"),
    "load_balancers": "layout",
    "backend": "backend",
}
_KINDS = ("tensor", "pipeline", "data", "prefill_context", "decode_context")
SIZES = frozenset(f"{kind}_parallel_size" for kind in _KINDS) | {"data_parallel_size_local"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One numbered rule. `check` gives the problems of a subject: none when it holds or cannot be decided."""

    number: int
    title: str
    check: Callable[[Subject], Iterable[Problem]]


def wrong(
    setting: str,
    message: str,
    remedy: str,
    values: Sequence[Value] = (),
    *,
    node: str | None = None,
    code: str | None = None,
    severity: str = "error",
) -> Problem:
    """A launch that would fail: the number that must change, and values of it that satisfy this rule."""
    field = setting if setting in SIZES else FIELDS.get(setting, "env" if setting.isupper() else "args")
    code = code or ("INVALID_OPTION" if field in ("args", "env") else "INVALID_LAYOUT")
    return Problem(code, message, remedy, field, node, severity, setting=setting, values=tuple(values))


def doubtful(
    setting: str,
    message: str,
    remedy: str,
    values: Sequence[Value] = (),
    *,
    node: str | None = None,
    code: str | None = None,
) -> Problem:
    """What may go wrong, or cannot be checked for want of a fact."""
    return wrong(setting, message, remedy, values, node=node, code=code, severity="warning")


def listed(values: Iterable[Value], last: str = "or") -> str:
    """1, 2 or 4."""
    words = [str(value) for value in values]
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)
