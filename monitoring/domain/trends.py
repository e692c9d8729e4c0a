"""The last minutes of one value, as means of equal steps; a step in which nothing was heard is a gap."""

from __future__ import annotations

from math import floor

from .figures import TREND_LENGTH, TREND_STEP_S, Trend

_NOTHING = Trend()
_GAPS: tuple[None, ...] = (None,) * (TREND_LENGTH - 1)


class TrendLine:
    """Collects one value. Times are seconds on one clock; when that is set back, the newest step goes on."""

    def __init__(self) -> None:
        self._past: tuple[float | None, ...] = _GAPS
        self._slot: int | None = None
        self._sum = 0.0
        self._count = 0

    def feed(self, at: float, value: float | None) -> Trend:
        """Takes a value (None = not known) heard at `at`; returns the trend up to then, all of TREND_LENGTH values."""
        slot = int(at // TREND_STEP_S)
        if slot != self._slot:
            self._move(slot)
        if value is not None:
            self._sum += value
            self._count += 1
        if not self._count and self._past == _GAPS:
            return _NOTHING
        return Trend((*self._past, self._mean()))

    def _mean(self) -> float | None:
        # round() takes ten times as long, and this is done for every value of every node.
        return floor(100.0 * self._sum / self._count + 0.5) / 100.0 if self._count else None

    def _move(self, slot: int) -> None:
        passed = 0 if self._slot is None else slot - self._slot
        if passed <= 0:
            self._slot = slot
            return
        gaps = _GAPS[: min(passed, TREND_LENGTH) - 1]
        self._past = (*self._past, self._mean(), *gaps)[1 - TREND_LENGTH :]
        self._slot, self._sum, self._count = slot, 0.0, 0
