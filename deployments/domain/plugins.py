"""The shapes of plug-ins and how they are found. A new kind is one new file with one constant."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .specs import Assignment, EngineOptions, LayoutSpec, ModelFacts, NodeView, ProcessSpec


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong or worth knowing about a wish, and what to do about it.

    `severity` is `error` (the launch is refused) or `warning`. One of a numbered `rule` also says which `setting` must
    change and `values` of it that would satisfy that rule.
    """

    code: str
    message: str
    remedy: str = ""
    field: str | None = None
    node: str | None = None
    severity: str = "error"
    rule: int | None = None
    setting: str | None = None
    values: tuple[int | float | str, ...] = ()


@dataclass(frozen=True, slots=True)
class RenderContext:
    """Everything a layout needs to write its commands down."""

    served_name: str
    model: ModelFacts
    layout: LayoutSpec
    nodes: Mapping[int, NodeView]
    assignments: Sequence[Assignment]
    options: EngineOptions
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """What one process needs: accelerators on one node and ports by name."""

    accelerators: int
    ports: tuple[str, ...] = ("http",)


@dataclass(frozen=True, slots=True)
class Layout:
    """A way to split one copy of a model.

    `check(layout, model)` returns what is wrong for this kind (the numbered rules are asked for all kinds alike);
    `seats(layout)` says what its processes need, in the order in which `render` expects their assignments.
    """

    kind: str
    title: str
    summary: str
    check: Callable[[LayoutSpec, ModelFacts], list[Problem]]
    seats: Callable[[LayoutSpec], tuple[Seat, ...]]
    render: Callable[[RenderContext], tuple[ProcessSpec, ...]]


@dataclass(frozen=True, slots=True)
class Platform:
    """What an accelerator is on a kind of machine.

    `args(context, seat)` are the default engine arguments (dropped where people give their own), `env(...)` the
    environment that gives the process its accelerators. `memory_back` says in words what a stop has to prove.
    """

    name: str
    title: str
    slot_word: str
    memory_back: str
    args: Callable[[RenderContext, Assignment], tuple[str, ...]]
    env: Callable[[RenderContext, Assignment], dict[str, str]]


def discover(package: ModuleType, constant: str, key: str) -> dict[str, Any]:
    """The constant `constant` of each module in `package`, by its attribute `key`, sorted; duplicates are an error."""
    found: dict[str, Any] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        plugin = getattr(importlib.import_module(f"{package.__name__}.{info.name}"), constant)
        name = getattr(plugin, key)
        if name in found:
            raise RuntimeError(f"{package.__name__}.{info.name}: {constant} {name!r} is defined twice")
        found[name] = plugin
    return found
