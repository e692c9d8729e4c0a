"""One engine's figures from its `/metrics`, and those of several engines together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from math import floor, isfinite
from operator import sub
from typing import NamedTuple

from . import metrics as catalogue
from .figures import WINDOW_S, EngineFigures, Quantiles, Trend
from .increases import Bounds, Rising, RisingBuckets, Window
from .metrics import Metric
from .quantiles import quantile
from .samples import Metrics, Series
from .trends import TrendLine

_NONE: tuple[Series, ...] = ()


class _Seen(NamedTuple):
    """What had been counted at one scrape: totals by metric name, and bounds and totals of histograms."""

    counts: dict[str, float | None]
    buckets: dict[str, tuple[Bounds, tuple[float, ...] | None]]

    def comparable(self, other: _Seen) -> bool:
        """Both know the same metrics, with the same bounds."""
        return all((mine is None) == (other.counts[name] is None) for name, mine in self.counts.items()) and all(
            mine[0] == other.buckets[name][0] for name, mine in self.buckets.items()
        )


class Engine:
    """Collects the scrapes of one process."""

    def __init__(self) -> None:
        kinds = catalogue.Kind
        self._counters = {m.name: Rising() for m in catalogue.ENGINE if m.kind is kinds.COUNTER}
        self._histograms = {m.name: RisingBuckets() for m in catalogue.ENGINE if m.kind is kinds.HISTOGRAM}
        self._window: Window[_Seen] = Window(WINDOW_S)
        self._generation = TrendLine()
        self._scraped_at: float | None = None
        self._last_generated: float | None = None
        self._figures = EngineFigures()

    def feed(self, scrape: Metrics | None, heard_at: float) -> EngineFigures:
        """Figures after one more report; without a new scrape in it they stay as they were, with their age."""
        if scrape is None or (scrape.error is None and scrape.at is not None and scrape.at == self._scraped_at):
            return self._figures
        if scrape.error is not None:
            trend = self._generation.feed(heard_at, None)
            self._figures = EngineFigures(at=self._figures.at, error=scrape.error, generation_trend=trend)
        else:
            self._figures = self._derive(scrape, heard_at)
        return self._figures

    def _derive(self, scrape: Metrics, heard_at: float) -> EngineFigures:
        found = {m.name: scrape.series.get(m.exposed_in(scrape.series) or "", _NONE) for m in catalogue.ENGINE}
        now = self._count(found)
        at = heard_at if scrape.at is None else scrape.at
        generated = self._since_last_scrape(now, at)
        if self._window and not now.comparable(self._window.oldest):
            self._window.clear()
        self._window.feed(at, now)
        past, span_s = self._window.oldest, self._window.span_s
        return EngineFigures(
            at=heard_at,
            running=_gauge(found, catalogue.RUNNING, sum),
            waiting=_gauge(found, catalogue.WAITING, sum),
            kv_usage=_gauge(found, catalogue.KV_USAGE, max),
            prompt_rate=_rate(past, now, catalogue.PROMPT_TOKENS, span_s),
            generation_rate=_rate(past, now, catalogue.GENERATION_TOKENS, span_s),
            requests_rate=_rate(past, now, catalogue.REQUESTS, span_s),
            preemptions=_increase(past, now, catalogue.PREEMPTIONS),
            prefix_hit_rate=_part(past, now, catalogue.PREFIX_HITS, catalogue.PREFIX_QUERIES),
            ttft=_quantiles(past, now, catalogue.TTFT),
            inter_token=_quantiles(past, now, catalogue.INTER_TOKEN),
            e2e=_quantiles(past, now, catalogue.E2E),
            window_s=floor(10.0 * span_s + 0.5) / 10.0,
            generation_trend=self._generation.feed(heard_at, generated),
        )

    def _count(self, found: dict[str, tuple[Series, ...]]) -> _Seen:
        counts = {name: rising.feed(found[name]) for name, rising in self._counters.items()}
        totals = {name: rising.feed(found[name]) for name, rising in self._histograms.items()}
        return _Seen(counts, {name: (self._histograms[name].bounds, of_it) for name, of_it in totals.items()})

    def _since_last_scrape(self, now: _Seen, at: float) -> float | None:
        """Tokens per second since the scrape before."""
        before, self._last_generated = self._last_generated, now.counts[catalogue.GENERATION_TOKENS.name]
        passed = 0.0 if self._scraped_at is None else at - self._scraped_at
        self._scraped_at = at
        if before is None or self._last_generated is None or passed <= 0:
            return None
        return (self._last_generated - before) / passed


def _gauge(
    found: dict[str, tuple[Series, ...]], metric: Metric, combine: Callable[[list[float]], float]
) -> float | None:
    values = [one.value for one in found[metric.name] if one.value is not None and isfinite(one.value)]
    return combine(values) if values else None


def _increase(past: _Seen, now: _Seen, metric: Metric) -> float | None:
    old, new = past.counts[metric.name], now.counts[metric.name]
    return None if old is None or new is None or past is now else new - old


def _rate(past: _Seen, now: _Seen, metric: Metric, span_s: float) -> float | None:
    increase = _increase(past, now, metric)
    return None if increase is None or span_s <= 0 else increase / span_s


def _part(past: _Seen, now: _Seen, part: Metric, whole: Metric) -> float | None:
    some, all_of_it = _increase(past, now, part), _increase(past, now, whole)
    return None if some is None or not all_of_it else min(1.0, some / all_of_it)


def _quantiles(past: _Seen, now: _Seen, metric: Metric) -> Quantiles:
    (_, old), (bounds, new) = past.buckets[metric.name], now.buckets[metric.name]
    if old is None or new is None or old is new:
        return Quantiles()
    counted = tuple(map(sub, new, old))
    return Quantiles(p50=quantile(0.5, bounds, counted), p99=quantile(0.99, bounds, counted))


def total(engines: Iterable[EngineFigures]) -> EngineFigures:
    """A deployment's figures: sums over its engines, and the worst of what cannot be summed.

    What no engine knows is None; what some do not know is the sum of the others. `at` is the oldest engine's,
    `prefix_hit_rate` is weighed by prompt tokens, `error` is the first.
    """
    all_of_them = list(engines)
    return EngineFigures(
        at=_of(min, [one.at for one in all_of_them]),
        error=next((one.error for one in all_of_them if one.error), None),
        running=_of(sum, [one.running for one in all_of_them]),
        waiting=_of(sum, [one.waiting for one in all_of_them]),
        kv_usage=_of(max, [one.kv_usage for one in all_of_them]),
        prompt_rate=_of(sum, [one.prompt_rate for one in all_of_them]),
        generation_rate=_of(sum, [one.generation_rate for one in all_of_them]),
        requests_rate=_of(sum, [one.requests_rate for one in all_of_them]),
        preemptions=_of(sum, [one.preemptions for one in all_of_them]),
        prefix_hit_rate=_hit_rate(all_of_them),
        ttft=_worst([one.ttft for one in all_of_them]),
        inter_token=_worst([one.inter_token for one in all_of_them]),
        e2e=_worst([one.e2e for one in all_of_them]),
        window_s=max((one.window_s for one in all_of_them), default=float(WINDOW_S)),
        generation_trend=_sum_of_trends([one.generation_trend for one in all_of_them]),
    )


def _of(combine: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return combine(known) if known else None


def _worst(quantiles: Sequence[Quantiles]) -> Quantiles:
    return Quantiles(p50=_of(max, [q.p50 for q in quantiles]), p99=_of(max, [q.p99 for q in quantiles]))


def _hit_rate(engines: Sequence[EngineFigures]) -> float | None:
    known = [
        (one.prefix_hit_rate, one.prompt_rate)
        for one in engines
        if one.prefix_hit_rate is not None and one.prompt_rate is not None
    ]
    weight = sum(rate for _, rate in known)
    return sum(part * rate for part, rate in known) / weight if weight else None


def _sum_of_trends(trends: Sequence[Trend]) -> Trend:
    """Added from the newest value back."""
    columns = list(zip_longest(*(reversed(trend.values) for trend in trends)))
    return Trend(tuple(_of(sum, column) for column in reversed(columns)))
