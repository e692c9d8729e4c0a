"""Quantiles as Prometheus computes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.domain.quantiles import quantile

BOUNDS = (0.1, 0.5, 1.0, None)


@pytest.mark.parametrize(
    ("q", "counts", "expected"),
    [
        (0.5, (0, 10, 10, 10), 0.3),
        (0.5, (10, 10, 10, 10), 0.05),
        (0.99, (0, 0, 100, 100), 0.995),
        (0.25, (2, 4, 8, 8), 0.1),
        (0.5, (2, 2, 8, 8), 0.5 + 0.5 * (4 - 2) / 6),
    ],
)
def test_a_quantile_is_linear_within_its_bucket(q, counts, expected):
    assert quantile(q, BOUNDS, counts) == pytest.approx(expected)


def test_what_lies_above_all_finite_bounds_shows_the_highest_of_them():
    assert quantile(0.99, BOUNDS, (0, 0, 1, 100)) == 1.0


def test_nothing_counted_gives_nothing():
    assert quantile(0.5, BOUNDS, (0, 0, 0, 0)) is None


@pytest.mark.parametrize(("bounds", "counts"), [((), ()), ((None,), (3,)), ((0.1, 0.5), (1, 2)), (BOUNDS, (1, 2))])
def test_buckets_that_tell_nothing_give_nothing(bounds, counts):
    assert quantile(0.5, bounds, counts) is None


def test_a_first_bucket_below_zero_shows_its_bound():
    assert quantile(0.5, (-1.0, 0.0, None), (5, 6, 6)) == -1.0


def test_a_count_that_falls_is_taken_as_level():
    assert quantile(0.9, BOUNDS, (5, 3, 10, 10)) == quantile(0.9, BOUNDS, (5, 5, 10, 10))


histograms = st.lists(st.integers(0, 1000), min_size=4, max_size=4).map(
    lambda inside: tuple(sum(inside[: i + 1]) for i in range(4))
)


@given(histograms, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_quantile_is_never_lower(counts, one, other):
    low, high = sorted((one, other))
    below, above = quantile(low, BOUNDS, counts), quantile(high, BOUNDS, counts)
    assert (below is None) == (above is None) == (counts[-1] == 0)
    if below is not None and above is not None:
        assert 0 <= below <= above <= 1.0
