"""One wish on many machines: which of them the rules allow, and what is said once instead of once a machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from ..plugins import Problem

# More names than this are counted, not listed.
NAMED = 5


def told_once(candidates: Sequence[Sequence[Problem]], *, chosen: bool) -> list[Problem]:
    """The problems of machines to choose among, each said once.

    What is an error on every machine is an error; an error on some of them is a warning. A warning that only some have
    is left out unless those machines were `chosen` by name.

    Args:
        candidates: For each machine, its problems.
    """
    groups: dict[tuple[int | None, str | None, int], list[Problem]] = defaultdict(list)
    for problems in candidates:
        seen: dict[tuple[int | None, str | None], int] = defaultdict(int)
        for problem in problems:
            kind = (problem.rule, problem.setting)
            groups[*kind, seen[kind]].append(problem)
            seen[kind] += 1
    found = [
        _as_one(group, everywhere=len(group) == len(candidates))
        for group in groups.values()
        if chosen or len(group) == len(candidates) or any(problem.severity == "error" for problem in group)
    ]
    return sorted(found, key=lambda problem: problem.rule or 0)


def _as_one(group: Sequence[Problem], *, everywhere: bool) -> Problem:
    certain = everywhere and all(problem.severity == "error" for problem in group)
    first, others = group[0], [problem.node for problem in group[1:] if problem.node is not None]
    message = f"{first.message} The same holds for {_names(others)}." if first.node and others else first.message
    return replace(first, message=message, severity="error" if certain else "warning")


def _names(names: Collection[str]) -> str:
    listed = list(names)
    shown = listed[:NAMED]
    if len(listed) > NAMED:
        return f"{', '.join(shown)} and {len(listed) - NAMED} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
