"""Scrapes of engines, made from figures or read from the golden text of a real one."""

from __future__ import annotations

import re
from pathlib import Path

from monitoring.domain.metrics import WANTED
from monitoring.domain.samples import Metrics, Series

GOLDEN = Path(__file__).parents[2] / "golden" / "engine_metrics"
BOUNDS: tuple[float | None, ...] = (0.1, 0.5, 1.0, None)
_LINE = re.compile(r"^([a-z:_0-9]+)\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def counter(value: float, **labels: str) -> Series:
    return Series(labels={"engine": "0", **labels}, value=value)


def histogram(*counts: float, bounds: tuple[float | None, ...] = BOUNDS, **labels: str) -> Series:
    buckets = tuple(zip(bounds, counts, strict=True))
    return Series(labels={"engine": "0", **labels}, value=counts[-1], sum=0.0, buckets=buckets)


def scrape(at: float, series: dict[str, Series | tuple[Series, ...]]) -> Metrics:
    """`series` by exposed name without the prefix `vllm:`."""
    found = {f"vllm:{name}": one if isinstance(one, tuple) else (one,) for name, one in series.items()}
    return Metrics(at=at, series=found)


def golden(name: str, at: float) -> Metrics:
    """A real engine's answer, as a node helper sends it."""
    plain: dict[str, list[Series]] = {}
    buckets: dict[str, list[tuple[float | None, float]]] = {}
    for line in (GOLDEN / name).read_text().splitlines():
        if not (match := _LINE.match(line)):
            continue
        full, labels, value = match[1], dict(_LABEL.findall(match[2])), float(match[3])
        labels.pop("model_name", None)
        if full.endswith("_bucket") and full.removesuffix("_bucket") in WANTED:
            bound = labels["le"]
            buckets.setdefault(full.removesuffix("_bucket"), []).append(
                (None if bound == "+Inf" else float(bound), value)
            )
        elif full in WANTED:
            plain.setdefault(full, []).append(Series(labels=labels, value=value))
    series = {full: tuple(found) for full, found in plain.items()}
    for full, pairs in buckets.items():
        series[full] = (Series(labels={"engine": "0"}, value=pairs[-1][1], buckets=tuple(pairs)),)
    return Metrics(at=at, series=series)
