"""Quantiles of a histogram, by the rule of Prometheus' histogram_quantile, so that dashboards agree."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


def quantile(q: float, bounds: Sequence[float | None], counts: Sequence[float]) -> float | None:
    """The value below which the part `q` (0 to 1) of what was counted lies, linear within a bucket.

    Args:
        bounds: Upper bounds, rising, the last None for +Inf.
        counts: Cumulative, as many as bounds. A count below the one before it is taken as equal to it.

    Returns:
        None where nothing was counted, or the buckets tell nothing; the highest finite bound for what lies above it.
    """
    if len(bounds) < 2 or bounds[-1] is not None or len(counts) != len(bounds):
        return None
    rising = list(accumulate(counts, max))
    total = rising[-1]
    if total <= 0:
        return None
    rank = q * total
    place = bisect_left(rising, rank)
    if place == len(bounds) - 1:
        return bounds[-2]
    return _within(place, rank, bounds, rising)


def _within(place: int, rank: float, bounds: Sequence[float | None], counts: Sequence[float]) -> float | None:
    end = bounds[place]
    if end is None or (place == 0 and end <= 0):
        return end
    start, before = (0.0, 0.0) if place == 0 else (bounds[place - 1] or 0.0, counts[place - 1])
    inside = counts[place] - before
    return end if inside <= 0 else start + (end - start) * (rank - before) / inside
