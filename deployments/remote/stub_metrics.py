"""What `/metrics` of a simulated engine says: everything that counts is the integral of a rate that swings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

from .stub_facts import digits

PERIOD_S = 47.0
SWING = 0.4
LABELS = {"engine": "0"}
# Finished requests, and tokens, per second on average.
REQUESTS, PROMPT, GENERATION = 4.0, 2_400.0, 1_100.0
COUNTERS = {
    "vllm:prompt_tokens_total": PROMPT,
    "vllm:generation_tokens_total": GENERATION,
    "vllm:num_preemptions_total": 0.01,
    "vllm:prefix_cache_queries_total": PROMPT,
    "vllm:prefix_cache_hits_total": PROMPT * 0.37,
}
REASONS = {"stop": 0.9, "length": 0.09, "abort": 0.01}
# By name: how often a second it is observed, its median (s), and its bounds (s).
HISTOGRAMS: dict[str, tuple[float, float, tuple[float, ...]]] = {
    "vllm:time_to_first_token_seconds": (
        REQUESTS,
        0.09,
        (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    ),
    "vllm:inter_token_latency_seconds": (
        GENERATION,
        0.014,
        (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    ),
    "vllm:e2e_request_latency_seconds": (
        REQUESTS,
        3.8,
        (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    ),
    "vllm:request_queue_time_seconds": (
        REQUESTS,
        0.01,
        (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    ),
}
# The spread of the simulated times: the standard deviation of their logarithm.
SPREAD = 0.6


def series(seed: str, age_s: float, names: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The wanted series of an engine that has been ready for `age_s` seconds; names it does not have are left out."""
    start = int(digits(seed, 8), 16) / 16**8 * PERIOD_S
    now, seconds = _rate(start + age_s), _integral(start + age_s) - _integral(start)
    found = {}
    for name in names:
        if (rows := _rows(name, now, max(0.0, seconds))) is not None:
            found[name] = rows
    return found


def _rows(name: str, now: float, seconds: float) -> list[dict[str, Any]] | None:
    if name in COUNTERS:
        return [_row(LABELS, float(int(COUNTERS[name] * seconds)))]
    if name in HISTOGRAMS:
        return [_histogram(name, seconds)]
    if name == "vllm:request_success_total":
        return [
            _row({**LABELS, "finished_reason": reason}, float(int(REQUESTS * share * seconds)))
            for reason, share in REASONS.items()
        ]
    value = _gauge(name, now)
    return None if value is None else [_row(LABELS, value)]


def _gauge(name: str, now: float) -> float | None:
    if name == "vllm:num_requests_running":
        return float(round(16 * now))
    if name == "vllm:num_requests_waiting":
        return float(max(0, round(20 * (now - 1.25))))
    return round(0.45 * now, 4) if name == "vllm:kv_cache_usage_perc" else None


def _row(labels: dict[str, str], value: float) -> dict[str, Any]:
    return {"labels": labels, "value": value, "sum": None, "buckets": None}


def _histogram(name: str, seconds: float) -> dict[str, Any]:
    per_second, median, bounds = HISTOGRAMS[name]
    count = int(per_second * seconds)
    buckets: list[list[float | None]] = [
        [bound, float(int(count * share))] for bound, share in zip(bounds, _shares(name), strict=True)
    ]
    mean = median * math.exp(SPREAD**2 / 2)
    return {"labels": LABELS, "value": float(count), "sum": count * mean, "buckets": [*buckets, [None, float(count)]]}


@cache
def _shares(name: str) -> tuple[float, ...]:
    """The share of observations up to each bound, of a log-normal distribution."""
    _, median, bounds = HISTOGRAMS[name]
    return tuple(0.5 + 0.5 * math.erf(math.log(bound / median) / (SPREAD * math.sqrt(2))) for bound in bounds)


def _rate(t: float) -> float:
    """How busy an engine is, 1 on average."""
    return 1 + SWING * math.sin(2 * math.pi * t / PERIOD_S)


def _integral(t: float) -> float:
    return t - SWING * PERIOD_S / (2 * math.pi) * math.cos(2 * math.pi * t / PERIOD_S)
