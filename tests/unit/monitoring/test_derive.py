"""Figures from samples: rates over a window, percentiles, trends, and what resets do to them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.domain.derive import Derivation, problem_of, total
from monitoring.domain.figures import (
    TREND_LENGTH,
    TREND_STEP_S,
    WINDOW_S,
    EngineFigures,
    NodeFigures,
    Quantiles,
    Trend,
    decode,
    encode,
)
from monitoring.domain.samples import Gpu, Gpus, Host, Metrics, Process, Sample

from .scrapes import counter, golden, histogram, scrape

NOW = 1_800_000_000.0


class Node:
    """A node that is sampled once a second, or when told."""

    def __init__(self) -> None:
        self.derivation = Derivation(7)
        self.at = NOW

    def hear(self, metrics: Metrics | None = None, after: float = 1.0, id: str = "p1", **parts: Any) -> NodeFigures:
        self.at += after
        processes = {id: Process(alive=True, metrics=metrics)}
        return self.derivation.feed(Sample(at=self.at, processes=processes, **parts), self.at)

    def scrape(self, after: float = 1.0, id: str = "p1", **series: Any) -> EngineFigures:
        return self.hear(scrape(self.at + after, series), after, id).engines[id]


def generated(value: float, **labels: str) -> dict[str, Any]:
    return {"generation_tokens_total": counter(value, **labels)}


def test_the_first_scrape_has_no_rates_but_gauges():
    figures = Node().scrape(num_requests_running=counter(3), **generated(1000))
    assert (figures.running, figures.generation_rate, figures.at) == (3, None, NOW + 1)


def test_a_counter_becomes_a_rate_over_the_window():
    node = Node()
    for second in range(10):
        figures = node.scrape(**generated(1000 + 50 * second))
    assert figures.generation_rate == pytest.approx(50)
    assert figures.window_s == 9


def test_what_is_older_than_the_window_no_longer_counts():
    node = Node()
    for second in range(WINDOW_S):
        node.scrape(**generated(100 * second))
    for _ in range(WINDOW_S + 1):
        figures = node.scrape(**generated(100 * WINDOW_S))
    assert figures.generation_rate == 0


def test_a_counter_that_falls_began_anew_and_the_rate_stays_true():
    node = Node()
    for value in (1000, 1100, 30, 130):
        figures = node.scrape(**generated(value))
    assert figures.generation_rate == pytest.approx((100 + 30 + 100) / 3)


def test_another_process_starts_without_the_first_ones_counts():
    node = Node()
    node.scrape(**generated(5000))
    node.scrape(**generated(5100))
    assert node.scrape(id="p2", **generated(40)).generation_rate is None


def test_cores_of_an_engine_are_summed_and_the_fullest_cache_counts():
    figures = Node().scrape(
        num_requests_running=(counter(3, engine="0"), counter(4, engine="1")),
        kv_cache_usage_perc=(counter(0.2, engine="0"), counter(0.7, engine="1")),
    )
    assert (figures.running, figures.kv_usage) == (7, 0.7)


def test_one_core_that_begins_anew_does_not_hide_in_the_sum():
    node = Node()
    node.scrape(generation_tokens_total=(counter(1000, engine="0"), counter(1000, engine="1")))
    figures = node.scrape(generation_tokens_total=(counter(1500, engine="0"), counter(10, engine="1")))
    assert figures.generation_rate == 510


def test_a_core_that_appears_adds_only_what_it_counts_from_then_on():
    node = Node()
    node.scrape(**generated(0))
    node.scrape(generation_tokens_total=(counter(10, engine="0"), counter(90_000, engine="1")))
    figures = node.scrape(generation_tokens_total=(counter(20, engine="0"), counter(90_010, engine="1")))
    assert figures.generation_rate == 15


def test_requests_are_counted_whatever_they_ended_by():
    node = Node()
    for n in range(3):
        ends = (counter(2 * n, finished_reason="stop"), counter(n, finished_reason="abort"))
        figures = node.scrape(request_success_total=ends)
    assert figures.requests_rate == 3


def test_percentiles_come_from_the_window_alone():
    node = Node()
    node.scrape(time_to_first_token_seconds=histogram(900, 900, 900, 900))
    figures = node.scrape(time_to_first_token_seconds=histogram(900, 910, 910, 910))
    assert figures.ttft.p50 == pytest.approx(0.3)
    for _ in range(WINDOW_S + 1):
        figures = node.scrape(time_to_first_token_seconds=histogram(900, 910, 910, 910))
    assert figures.ttft == Quantiles()


def test_a_histogram_that_falls_began_anew():
    node = Node()
    node.scrape(time_to_first_token_seconds=histogram(50, 60, 60, 60))
    figures = node.scrape(time_to_first_token_seconds=histogram(0, 0, 8, 8))
    assert 0.5 < figures.ttft.p50 < 1.0


def test_other_bounds_begin_anew():
    node = Node()
    node.scrape(time_to_first_token_seconds=histogram(50, 60, 60, 60))
    wider = (0.2, 2.0, 20.0, None)
    figures = node.scrape(time_to_first_token_seconds=histogram(0, 70, 70, 70, bounds=wider))
    assert figures.ttft == Quantiles()


def test_names_of_older_engines_are_understood_and_the_new_name_wins():
    node = Node()
    old = {"gpu_cache_usage_perc": counter(0.5), "gpu_prefix_cache_queries_total": counter(0)}
    assert node.scrape(**old).kv_usage == 0.5
    assert node.scrape(**old, kv_cache_usage_perc=counter(0.6)).kv_usage == 0.6
    node.scrape(time_per_output_token_seconds=histogram(0, 0, 0, 0))
    assert node.scrape(time_per_output_token_seconds=histogram(0, 9, 9, 9)).inter_token.p50 == pytest.approx(0.3)


def test_the_hit_rate_is_unknown_while_nothing_is_looked_up():
    node = Node()
    queries = {"prefix_cache_queries_total": counter(10), "prefix_cache_hits_total": counter(5)}
    node.scrape(**queries)
    assert node.scrape(**queries).prefix_hit_rate is None
    more = {"prefix_cache_queries_total": counter(110), "prefix_cache_hits_total": counter(30)}
    assert node.scrape(**more).prefix_hit_rate == pytest.approx(0.25)


def test_a_report_without_a_new_scrape_keeps_the_figures_and_their_age():
    node = Node()
    first = node.scrape(num_requests_running=counter(3))
    old = scrape(node.at, {"num_requests_running": counter(3)})
    assert node.hear(old).engines["p1"] == first
    assert node.hear(None).engines["p1"] == first


def test_an_engine_that_cannot_be_scraped_says_why_and_shows_no_figures():
    node = Node()
    node.scrape(num_requests_running=counter(3))
    figures = node.hear(Metrics(at=node.at + 1, error="refused")).engines["p1"]
    assert (figures.error, figures.running, figures.at) == ("refused", None, NOW + 1)


def test_an_engine_is_forgotten_with_its_process():
    node = Node()
    node.scrape(num_requests_running=counter(3))
    gone = node.derivation.feed(Sample(at=node.at, processes={"p1": Process(alive=False)}), node.at)
    assert gone.engines == {}


def test_a_process_without_metrics_is_no_engine():
    assert Node().hear(None).engines == {}


def test_a_clock_that_is_set_back_starts_a_new_window():
    node = Node()
    node.scrape(**generated(100))
    figures = node.hear(scrape(NOW - 3600, generated(200))).engines["p1"]
    assert figures.generation_rate is None
    assert node.hear(scrape(NOW - 3599, generated(230))).engines["p1"].generation_rate == 30


def test_a_real_engines_answer_becomes_figures():
    loaded = golden("vllm-under-load.txt", at=NOW + WINDOW_S)
    idle = msgspec.structs.replace(
        loaded,
        at=NOW,
        series={
            name: tuple(
                msgspec.structs.replace(
                    one, value=0.0, buckets=one.buckets and tuple((bound, 0.0) for bound, _ in one.buckets)
                )
                for one in series
            )
            for name, series in loaded.series.items()
        },
    )
    node = Node()
    node.hear(idle, after=0)
    figures = node.hear(loaded, after=WINDOW_S).engines["p1"]
    assert (figures.running, figures.waiting, figures.preemptions) == (128, 0, 0)
    assert figures.generation_rate == pytest.approx(683557 / 60)
    assert figures.requests_rate == pytest.approx(5404 / 60)
    assert figures.prefix_hit_rate == 0
    assert 0.25 < figures.ttft.p50 < 0.5 < figures.ttft.p99 < 0.75
    assert figures.inter_token.p50 < 0.01
    assert 1.0 < figures.e2e.p50 < 1.5


def test_trends_are_means_of_steps_and_silence_is_a_gap():
    node = Node()
    node.at = NOW - 1
    for second in range(2 * TREND_STEP_S):
        figures = node.hear(host=Host(cpu=float(second)))
    assert figures.cpu_trend.values[-2:] == (2.0, 7.0)
    figures = node.hear(host=Host(cpu=50.0), after=2 * TREND_STEP_S)
    assert figures.cpu_trend.values[-4:] == (2.0, 7.0, None, 50.0)
    assert len(figures.cpu_trend.values) == TREND_LENGTH


def test_after_a_long_silence_a_trend_holds_nothing_old():
    node = Node()
    node.hear(host=Host(cpu=50.0))
    figures = node.hear(host=Host(cpu=10.0), after=3600)
    assert figures.cpu_trend.values == (None,) * (TREND_LENGTH - 1) + (10.0,)


def test_a_value_that_was_never_known_has_no_trend():
    assert Node().hear(host=Host()).cpu_trend == Trend()


def test_accelerators_have_trends_of_their_own_and_lose_them_when_they_go():
    node = Node()
    one = Gpu(uuid="a", index=0, utilization=40.0, memory_used=25, memory_total=100)
    figures = node.hear(gpu=Gpus(source="nvml", devices=(one, Gpu(uuid="b", index=1))))
    assert figures.utilization_trends["a"].values[-1] == 40
    assert figures.memory_trends["a"].values[-1] == 25
    assert figures.utilization_trends["b"] == Trend()
    assert node.hear(gpu=Gpus(source="nvml", devices=(one,))).memory_trends.keys() == {"a"}


def test_telemetry_that_cannot_be_read_is_a_problem_and_no_figures():
    node = Node()
    node.scrape(num_requests_running=counter(3))
    lost = node.derivation.lost(node.at + 1, "`gpu` is a str")
    assert (lost.problem, lost.heard_at, lost.engines, lost.host) == ("`gpu` is a str", node.at + 1, {}, None)
    assert problem_of(lost) == "UNREADABLE"
    assert problem_of(node.hear(gpu=Gpus(source="nvml", problem="GPU_LOST"))) == "GPU_LOST"
    assert problem_of(node.hear()) is None


def test_figures_survive_the_way_through_the_cache():
    node = Node()
    node.scrape(num_requests_running=counter(3))
    figures = node.hear(host=Host(cpu=5.0), gpu=Gpus(source="nvml", devices=(Gpu(uuid="a", index=0),)))
    assert decode(encode(figures)) == figures


def test_a_deployments_figures_are_sums_and_the_worst():
    one = EngineFigures(
        at=20.0, running=1, kv_usage=0.2, prompt_rate=10, prefix_hit_rate=1.0, ttft=Quantiles(p50=0.1, p99=0.9)
    )
    other = EngineFigures(
        at=10.0, running=2, kv_usage=0.9, prompt_rate=30, prefix_hit_rate=0.0, ttft=Quantiles(p50=0.2, p99=0.3)
    )
    both = total([one, other, EngineFigures(error="refused")])
    assert (both.at, both.running, both.kv_usage, both.prompt_rate) == (10, 3, 0.9, 40)
    assert (both.waiting, both.error, both.prefix_hit_rate) == (None, "refused", 0.25)
    assert both.ttft == Quantiles(p50=0.2, p99=0.9)


def test_trends_of_a_deployment_are_added_from_the_newest_back():
    young = EngineFigures(generation_trend=Trend((1.0,)))
    old = EngineFigures(generation_trend=Trend((5.0, None, 7.0)))
    assert total([young, old]).generation_trend.values == (5.0, None, 8.0)


def test_no_engines_have_no_figures():
    assert total([]) == EngineFigures()


values = st.one_of(st.floats(0, 1e12), st.integers(0, 10**9).map(float))


@settings(max_examples=60)
@given(st.lists(st.tuples(values, st.floats(-5, 70)), min_size=1, max_size=20))
def test_rates_are_never_negative_whatever_counters_and_clocks_do(steps):
    node = Node()
    clock = NOW
    for value, passed in steps:
        clock += passed
        series = {"generation_tokens_total": counter(value), "prompt_tokens_total": counter(value)}
        figures = node.hear(scrape(clock, series)).engines["p1"]
        rates = (figures.generation_rate, figures.prompt_rate, *figures.generation_trend.values)
        assert all(rate is None or rate >= 0 for rate in rates)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 100), min_size=4, max_size=4), min_size=2, max_size=12))
def test_the_99th_percentile_is_never_below_the_median(scrapes):
    node = Node()
    for inside in scrapes:
        counts = [float(sum(inside[: i + 1])) for i in range(4)]
        e2e = node.scrape(e2e_request_latency_seconds=histogram(*counts)).e2e
        assert (e2e.p50 is None) == (e2e.p99 is None)
        assert e2e.p50 is None or 0 <= e2e.p50 <= e2e.p99 <= 1.0
