"""The fragments of a topic, written by the templates that the pages include, and only those that changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.template.loader import get_template
from django.utils import translation

from monitoring.domain.derive import total
from monitoring.domain.figures import EngineFigures, NodeFigures

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fragment:
    """One element of a page, by a key that no other has.

    What it shows follows from `source`: while that is the same, so is the element.
    """

    key: str
    template: str
    source: Any
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """All that can be shown now: figures by node, and engines with their process ids by deployment.

    Attributes:
        sums: All engines of a deployment, of which some may be heard by other observers.
    """

    figures: Mapping[int, NodeFigures] = field(default_factory=dict)
    deployments: Mapping[int, Mapping[str, EngineFigures]] = field(default_factory=dict)
    sums: Mapping[int, Mapping[str, EngineFigures]] = field(default_factory=dict)


# Elements that change together: what they follow from, and how to list them.
Group = tuple[str, Any, Callable[[], Iterable[Fragment]]]


def of_topic(topic: str, scene: Scene) -> Iterator[Group]:
    """The elements of `fleet`, `node-<pk>` or `deployment-<pk>`; none of what is not known."""
    kind, _, number = topic.partition("-")
    pk = int(number) if number.isdecimal() else -1
    if topic == "fleet":
        for node, figures in scene.figures.items():
            yield f"line {node}", figures, partial(_line, figures)
    elif kind == "node" and pk in scene.figures:
        yield topic, scene.figures[pk], partial(_node, scene.figures[pk])
    elif kind == "deployment" and (pk in scene.deployments or pk in scene.sums):
        engines, everywhere = scene.deployments.get(pk, {}), scene.sums.get(pk, {})
        yield topic, (engines, everywhere), partial(_deployment, pk, engines, everywhere)


def _line(figures: NodeFigures) -> Iterator[Fragment]:
    """A node on the fleet page. A cell shows no age of its own: that is its node's."""
    for gpu in figures.gpu.devices if figures.gpu is not None else ():
        yield Fragment(f"cell {figures.node} {gpu.uuid}", "live/cell.html", gpu, {"gpu": gpu, "figures": figures})
    yield Fragment(f"line {figures.node}", "live/node_line.html", figures, {"figures": figures})


def _node(figures: NodeFigures) -> Iterator[Fragment]:
    context = {"figures": figures}
    yield Fragment(f"host {figures.node}", "live/host.html", figures, context)
    yield Fragment(f"gpus {figures.node}", "live/gpus.html", figures, context)
    yield from _engines(figures.engines)


def _deployment(
    pk: int, engines: Mapping[str, EngineFigures], everywhere: Mapping[str, EngineFigures]
) -> Iterator[Fragment]:
    yield from _engines(engines)
    if everywhere:
        context = {"deployment_id": pk, "totals": total(everywhere.values())}
        yield Fragment(f"totals {pk}", "live/totals.html", tuple(everywhere.values()), context)


def _engines(engines: Mapping[str, EngineFigures]) -> Iterator[Fragment]:
    for process, engine in engines.items():
        context = {"process_id": process, "engine": engine}
        yield Fragment(f"engine {process}", "live/engine.html", engine, context)


# What an audience was shown of a group: its source, and each element's source and text.
Shown = tuple[Any, dict[str, tuple[Any, str]]]
_NEVER: Shown = (None, {})


class Renderer:
    """Writes elements, and remembers what each audience (a topic in a language) was last shown. For one thread."""

    def __init__(self) -> None:
        self._shown: dict[str, dict[str, Shown]] = {}
        self._broken: set[str] = set()

    def changes(self, audiences: Iterable[str], scene: Scene) -> Iterator[tuple[str, list[str]]]:
        """New elements, one audience (`<topic>.<language>`) after the other; all of them for one that is new here."""
        watched = set(audiences)
        self._shown = {audience: shown for audience, shown in self._shown.items() if audience in watched}
        # Pages share elements, such as an engine's, so each is written once a language.
        written: dict[tuple[str, str], str | None] = {}
        for audience in watched:
            topic, _, language = audience.partition(".")
            with translation.override(language):
                page = _Page(self._shown.get(audience, {}), partial(self._write, language, written))
                elements = page.turn(of_topic(topic, scene))
            self._shown[audience] = page.shown
            yield audience, elements

    def _write(self, language: str, written: dict[tuple[str, str], str | None], fragment: Fragment) -> str | None:
        name = (fragment.key, language)
        if name not in written:
            written[name] = self._render(fragment)
        return written[name]

    def _render(self, fragment: Fragment) -> str | None:
        """The element; None if its template fails, which costs this element alone."""
        try:
            html = get_template(fragment.template).render({**fragment.context, "oob": True})
        except Exception:
            if fragment.template not in self._broken:
                self._broken.add(fragment.template)
                log.exception("%s cannot be rendered", fragment.template)
            return None
        self._broken.discard(fragment.template)
        return html


class _Page:
    """One audience's page: from what it showed to what it shows."""

    def __init__(self, before: dict[str, Shown], write: Callable[[Fragment], str | None]) -> None:
        self.shown: dict[str, Shown] = {}
        self._before = before
        self._write = write

    def turn(self, groups: Iterable[Group]) -> list[str]:
        """The elements that differ from before."""
        new: list[str] = []
        for key, source, fragments in groups:
            before = self._before.get(key, _NEVER)
            if before is not _NEVER and _same(before[0], source):
                self.shown[key] = before
                continue
            self.shown[key] = (source, self._elements(before[1], fragments(), new))
        return new

    def _elements(
        self, before: dict[str, tuple[Any, str]], fragments: Iterable[Fragment], new: list[str]
    ) -> dict[str, tuple[Any, str]]:
        now = {}
        for fragment in fragments:
            source, html = before.get(fragment.key, (None, ""))
            if not html or not _same(source, fragment.source):
                fresh = self._write(fragment)
                if fresh is None:
                    continue
                if fresh != html:
                    new.append(fresh)
                html = fresh
            now[fragment.key] = (fragment.source, html)
        return now


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)
