"""The catalogue of metrics."""

from __future__ import annotations

import pytest

from monitoring.domain.metrics import ENGINE, WANTED, Kind

from .scrapes import golden


def test_no_name_belongs_to_two_metrics():
    assert len(set(WANTED)) == len(WANTED)


@pytest.mark.parametrize("metric", ENGINE, ids=lambda metric: metric.name)
def test_a_real_engine_exposes_every_metric_under_its_present_name(metric):
    assert metric.exposed_in(golden("vllm-under-load.txt", 0.0).series) == metric.name


@pytest.mark.parametrize("metric", ENGINE, ids=lambda metric: metric.name)
def test_names_and_units_follow_the_kind(metric):
    for name in (metric.name, *metric.aliases):
        assert name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert not name.endswith(("_bucket", "_sum", "_count"))
    assert metric.unit
    assert metric.source


@pytest.mark.parametrize("metric", [one for one in ENGINE if one.aliases], ids=lambda metric: metric.name)
def test_an_older_name_serves_where_the_present_one_is_missing(metric):
    assert metric.exposed_in({metric.aliases[0]}) == metric.aliases[0]
    assert metric.exposed_in({metric.name, *metric.aliases}) == metric.name
    assert metric.exposed_in(()) is None
