"""What one node's reports lead to: rows when there is news or some time has passed, and figures always."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from monitoring.domain.derive import Derivation, problem_of
from monitoring.domain.figures import NodeFigures
from monitoring.domain.samples import read_sample

from .news import news
from .writer import Writer

log = logging.getLogger(__name__)

# A report without news is written this often, so that "heard" stays true (s).
QUIET_S = 4.0


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where a listener's findings go; none of them blocks.

    Attributes:
        show: Takes every figures.
        changed: Takes the node's id when a problem of its telemetry begins or ends.
    """

    writer: Writer
    show: Callable[[NodeFigures], None]
    changed: Callable[[int], None]


class Listener:
    """Hears one node for as long as this observer has it, over however many streams."""

    def __init__(self, node_id: int, outlets: Outlets) -> None:
        self._node_id = node_id
        self._outlets = outlets
        self._derivation = Derivation(node_id)
        self._seen: dict[str, Any] | None = None
        self._written_at = 0.0
        self._problem: str | None = None
        self._unreadable = False

    def begin(self) -> None:
        """A stream begins: its first report is news, whatever it says."""
        self._seen = None

    def hear(self, report: dict[str, Any]) -> None:
        """Takes one report. Nothing is waited for."""
        seen, now = news(report), time.monotonic()
        if seen != self._seen or now - self._written_at >= QUIET_S:
            self._outlets.writer.put(self._node_id, report, seen != self._seen)
            self._seen, self._written_at = seen, now
        figures = self._figures(report, time.time())
        self._outlets.show(figures)
        problem = problem_of(figures)
        if problem != self._problem:
            self._problem = problem
            self._outlets.changed(self._node_id)

    def _figures(self, report: dict[str, Any], heard_at: float) -> NodeFigures:
        """Figures, whatever the node sent; wrong telemetry must not cost its reports."""
        try:
            figures = self._derivation.feed(read_sample(report), heard_at)
        except msgspec.ValidationError as error:
            self._tell(str(error))
            return self._derivation.lost(heard_at, str(error))
        except Exception as error:
            self._tell(repr(error), exc_info=True)
            return self._derivation.lost(heard_at, repr(error))
        self._unreadable = False
        return figures

    def _tell(self, words: str, exc_info: bool = False) -> None:
        if not self._unreadable:
            self._unreadable = True
            log.warning("node %s: its telemetry cannot be read: %s", self._node_id, words, exc_info=exc_info)
