"""From what a node samples to what operators see: rates, percentiles and trends, kept node by node."""

from __future__ import annotations

from math import isfinite

from .engines import Engine, total
from .figures import EngineFigures, NodeFigures, Trend
from .samples import Gpu, Gpus, Process, Sample
from .trends import TrendLine

__all__ = ["Derivation", "total"]


class Derivation:
    """Collects the samples of one node. Pure: it has no clock, and keeps nothing but what it was fed.

    Args:
        node: The node's primary key.
    """

    def __init__(self, node: int) -> None:
        self._node = node
        self._engines: dict[str, Engine] = {}
        self._cpu = TrendLine()
        self._utilization: dict[str, TrendLine] = {}
        self._memory: dict[str, TrendLine] = {}

    def feed(self, sample: Sample, heard_at: float) -> NodeFigures:
        """Figures after one more sample, heard at `heard_at` on the panel's clock (s)."""
        devices = sample.gpu.devices if sample.gpu is not None else ()
        return NodeFigures(
            node=self._node,
            heard_at=heard_at,
            host=sample.host,
            gpu=sample.gpu,
            engines=self._feed_engines(sample.processes, heard_at),
            cpu_trend=self._cpu.feed(heard_at, _finite(sample.host.cpu if sample.host is not None else None)),
            utilization_trends=_feed_lines(
                self._utilization, {gpu.uuid: _finite(gpu.utilization) for gpu in devices}, heard_at
            ),
            memory_trends=_feed_lines(self._memory, {gpu.uuid: _memory_percent(gpu) for gpu in devices}, heard_at),
        )

    def lost(self, heard_at: float, problem: str) -> NodeFigures:
        """Figures after a report whose telemetry could not be read: there are none, but for the trends until then."""
        return NodeFigures(
            node=self._node,
            heard_at=heard_at,
            problem=problem,
            cpu_trend=self._cpu.feed(heard_at, None),
            utilization_trends={uuid: line.feed(heard_at, None) for uuid, line in self._utilization.items()},
            memory_trends={uuid: line.feed(heard_at, None) for uuid, line in self._memory.items()},
        )

    def _feed_engines(self, processes: dict[str, Process], heard_at: float) -> dict[str, EngineFigures]:
        """Engines are processes that have shown metrics; they are forgotten when they are no longer alive."""
        for gone in [id for id in self._engines if id not in processes or not processes[id].alive]:
            del self._engines[gone]
        figures = {}
        for id, process in processes.items():
            if not process.alive or (process.metrics is None and id not in self._engines):
                continue
            engine = self._engines.get(id) or self._engines.setdefault(id, Engine())
            figures[id] = engine.feed(process.metrics, heard_at)
        return figures


def problem_of(figures: NodeFigures) -> str | None:
    """What is wrong with a node's telemetry, so that a change of it can be told; None = nothing."""
    if figures.problem is not None:
        return "UNREADABLE"
    return figures.gpu.problem if isinstance(figures.gpu, Gpus) else None


def _feed_lines(lines: dict[str, TrendLine], values: dict[str, float | None], at: float) -> dict[str, Trend]:
    """One line for each accelerator that is there now."""
    for gone in lines.keys() - values.keys():
        del lines[gone]
    for new in values.keys() - lines.keys():
        lines[new] = TrendLine()
    return {uuid: lines[uuid].feed(at, value) for uuid, value in values.items()}


def _memory_percent(gpu: Gpu) -> float | None:
    if gpu.memory_used is None or not gpu.memory_total:
        return None
    return 100.0 * gpu.memory_used / gpu.memory_total


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
