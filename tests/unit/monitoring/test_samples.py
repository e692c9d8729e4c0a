"""Samples: what no machine has is refused, so that a node that goes wrong costs its own figures only."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from monitoring.domain.derive import Derivation
from monitoring.domain.samples import MOST_GPU_PROCESSES, MOST_SERIES, read_sample


def report(**parts: Any) -> dict[str, Any]:
    return {"at": 1_800_000_000.0, **parts}


def gpus(count: int, **more: Any) -> dict[str, Any]:
    return {"source": "nvml", "devices": [{"uuid": f"GPU-{place}", "index": place, **more} for place in range(count)]}


def engines(count: int, series: int) -> dict[str, Any]:
    metrics = {"series": {f"name-{name}": [{"value": 1.0}] * 1024 for name in range(series // 1024)}}
    return {f"p{place}": {"alive": True, "metrics": metrics} for place in range(count)}


@pytest.mark.parametrize(
    "parts",
    [
        {"gpu": gpus(70_000)},
        {"gpu": gpus(8, processes=[{"pid": 1}] * (MOST_GPU_PROCESSES // 8 + 1))},
        {"gpu": gpus(1, name="N" * 100_000)},
        {"gpu": gpus(1, utilization=1e308)},
        {"gpu": gpus(1, memory_used=10**30)},
        {"host": {"cpu": float("inf")}},
        {"host": {"cpu": float("nan")}},
        {"host": {"networks": [{"name": "eth0"}] * 50_000}},
        {"processes": engines(2, MOST_SERIES)},
    ],
)
def test_what_no_machine_has_is_no_telemetry(parts):
    with pytest.raises(msgspec.ValidationError, match=r"\$"):
        read_sample(report(**parts))


def test_the_largest_machines_are_read():
    # Sixteen GPUs in seven parts each, beside their parents, with processes on all of them.
    sample = read_sample(report(gpu=gpus(16 * 8, processes=[{"pid": 1}] * 32), processes=engines(16, 1024)))
    assert sample.gpu is not None
    assert len(sample.gpu.devices) == 128


def test_figures_never_become_infinite():
    derivation = Derivation(1)
    for second in range(30):
        sample = read_sample(report(host={"cpu": 1e18}, gpu=gpus(1, memory_total=1, memory_used=2**63 - 1)))
        figures = derivation.feed(sample, 1_800_000_000.0 + second)
    assert figures.cpu_trend.values[-1] == pytest.approx(1e18)
    assert derivation.lost(1_800_000_040.0, "garbage").problem == "garbage"
