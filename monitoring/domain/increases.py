"""Counters and histograms that begin anew when their program does, as totals that only rise; and a window of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import isfinite
from operator import add, sub
from typing import Generic, TypeVar

from .samples import Series

# The labels of a series, sorted.
Labels = tuple[tuple[str, str], ...]
Bounds = tuple[float | None, ...]
Value = TypeVar("Value")


def labels_of(series: Series) -> Labels:
    return tuple(sorted(series.labels.items()))


class Rising:
    """A counter, summed over its series (one for each core of an engine, or reason).

    A series that falls has begun anew, so all that it shows was added since. One that is met for the first time
    adds nothing yet: it may have counted for long.
    """

    def __init__(self) -> None:
        self.total: float | None = None
        self._before: tuple[Series, ...] = ()
        self._values: dict[Labels, float] = {}

    def feed(self, series: tuple[Series, ...]) -> float | None:
        """The total of all increases so far; None while there is no series."""
        if series == self._before:
            return self.total
        self._before = series
        for one in series:
            if one.value is not None and isfinite(one.value):
                self._add(labels_of(one), one.value)
        return self.total

    def _add(self, labels: Labels, value: float) -> None:
        before = self._values.get(labels, value)
        self._values[labels] = value
        self.total = (self.total or 0.0) + (value - before if value >= before else max(value, 0.0))


class RisingBuckets:
    """A histogram, its buckets summed over its series. `counts` are cumulative, as many as `bounds`."""

    def __init__(self) -> None:
        self.bounds: Bounds = ()
        self.counts: tuple[float, ...] | None = None
        self._before: tuple[Series, ...] = ()
        self._values: dict[Labels, tuple[float, ...]] = {}

    def feed(self, series: tuple[Series, ...]) -> tuple[float, ...] | None:
        """The totals of all increases by bucket; None while there is no series.

        A series with other bounds than before (an engine of another version, with the same process) starts all anew.
        """
        if series == self._before:
            return self.counts
        self._before = series
        for one in series:
            if one.buckets:
                bounds, counts = zip(*one.buckets, strict=True)
                self._add(labels_of(one), bounds, counts)
        return self.counts

    def _add(self, labels: Labels, bounds: Bounds, counts: tuple[float, ...]) -> None:
        if not isfinite(sum(counts)):
            return
        if bounds != self.bounds:
            self.bounds, self.counts, self._values = bounds, None, {}
        before = self._values.get(labels)
        self._values[labels] = counts
        if self.counts is None:
            self.counts = (0.0,) * len(counts)
        if before is None:
            return
        gained: Iterable[float] = tuple(map(sub, counts, before))
        if min(gained, default=0.0) < 0:
            gained = (max(count, 0.0) for count in counts)
        self.counts = tuple(map(add, self.counts, gained))


class Window(Generic[Value]):
    """What was seen in the last `length_s` seconds of one clock; a clock that is set back empties it."""

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._seen: deque[tuple[float, Value]] = deque()

    def feed(self, at: float, value: Value) -> None:
        seen = self._seen
        if seen and at < seen[-1][0]:
            seen.clear()
        seen.append((at, value))
        while seen[0][0] < at - self._length_s:
            seen.popleft()

    def clear(self) -> None:
        self._seen.clear()

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def span_s(self) -> float:
        """Between the oldest and the newest; 0 with fewer than two."""
        return self._seen[-1][0] - self._seen[0][0] if self._seen else 0.0

    @property
    def oldest(self) -> Value:
        return self._seen[0][1]
