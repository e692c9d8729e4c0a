"""One wish on many machines: which of them the rules allow, and what is said once instead of once a machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..plugins import Problem
from ..specs import EngineOptions, LayoutSpec, ModelFacts, NodeView
from . import RULES, Host, Subject, check

# Seats say whether there are enough accelerators; what machines owe each other is asked where they are chosen together.
ONE_MACHINE = frozenset(RULES) - {7, 8, 9, 25, 26}
# More names than this are counted, not listed.
NAMED = 5


def allowed(
    nodes: Iterable[NodeView],
    layout: LayoutSpec,
    model: ModelFacts,
    config: Mapping[str, Any],
    options: EngineOptions,
    seats: int = 1,
) -> list[int]:
    """Ids of the nodes where no rule says that the launch would fail; all of them when there would be none left.

    Rules may be wrong about a build of the engine that somebody made; they choose among nodes, they do not stop one.
    """
    pool = list(nodes)
    kinds: dict[tuple[Any, ...], bool] = {}
    fits = []
    for node in pool:
        same = (node.platform, node.engine_version, tuple(slot.compute_capability for slot in node.accelerators))
        if same not in kinds:
            more: dict[str, Any] = {"config": config, "options": options, "platform": node.platform, "nodes": seats}
            found = check(Subject.of(layout, model, hosts=[Host.of(node)], **more), only=ONE_MACHINE)
            kinds[same] = not any(problem.severity == "error" for problem in found)
        if kinds[same]:
            fits.append(node.id)
    return fits or [node.id for node in pool]


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
