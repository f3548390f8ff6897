"""Latency metrics from request records, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.errors import InputError
from specsim.metrics import (
    REQUEST_DTYPE,
    Records,
    Spread,
    e2e_s,
    goodput,
    itl_s,
    tpot_s,
    ttft_s,
)


def records() -> Records:
    """Three requests: five tokens, a single token, and one that has not finished."""
    table = np.zeros(3, dtype=REQUEST_DTYPE)
    table["arrival_s"] = 1.0, 2.0, 3.0
    table["admitted_s"] = 1.5, 2.0, 4.0
    table["first_token_s"] = 2.0, 2.5, math.nan
    table["last_token_s"] = 4.0, 2.5, math.nan
    table["finished_s"] = 4.2, 2.6, math.nan
    table["tokens"] = 5, 1, 0
    return table


def test_times_are_the_differences_that_the_names_say() -> None:
    table = records()
    np.testing.assert_allclose(ttft_s(table), [1.0, 0.5, math.nan])
    np.testing.assert_allclose(tpot_s(table), [0.5, math.nan, math.nan])
    np.testing.assert_allclose(e2e_s(table), [3.2, 0.6, math.nan])


def test_goodput_counts_requests_within_all_targets() -> None:
    table = records()
    assert goodput(table, {}, 2.0).requests_per_s == 1.0  # the unfinished one is not good
    assert goodput(table, {"ttft": 0.7}, 2.0).share == pytest.approx(1 / 3)
    # a single token has no TPOT, so no TPOT target excludes it
    assert goodput(table, {"tpot": 0.1}, 2.0).requests_per_s == 0.5
    assert goodput(table, {"tpot": 0.5, "e2e": 3.0}, 1.0).requests_per_s == 1.0


def test_bad_durations_are_refused() -> None:
    with pytest.raises(InputError, match="duration"):
        goodput(records(), {}, 0.0)


def test_spread_of_nothing_is_nan() -> None:
    nothing = Spread.of([math.nan])
    assert all(math.isnan(x) for x in (nothing.mean, nothing.p50, nothing.p90, nothing.p99))


@given(
    st.lists(
        st.tuples(st.floats(1e-4, 1.0), st.integers(1, 8)),
        min_size=1,
        max_size=30,
    )
)
def test_token_gaps_and_chunk_gaps_cover_the_same_time(chunks: list[tuple[float, int]]) -> None:
    gaps, tokens = zip(*chunks, strict=True)
    times = 1.0 + np.cumsum(gaps)
    per_token, per_chunk = itl_s(1.0, times, tokens), itl_s(1.0, times, tokens, per_chunk=True)
    assert len(per_token) == sum(tokens)
    assert len(per_chunk) == len(chunks)
    assert per_token.sum() == pytest.approx(times[-1] - 1.0)
    assert per_chunk.sum() == pytest.approx(times[-1] - 1.0)
