"""The CPU's part of a round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import kimi, with_prices

from specsim.cost.rounds import host_s, round_time

# A sum and a product of doubles.
ROUNDING = 1e-12


def test_host_time_lies_where_it_was_published() -> None:
    """1-3 ms and 10-50 us per running request [@host-time]."""
    none, some = host_s(kimi().cost, [0.0, 100.0])
    assert 1e-3 <= none <= 3e-3
    assert 10e-6 <= (some - none) / 100 <= 50e-6


def test_what_a_request_adds_is_added_by_each_token_it_commits() -> None:
    """COMMIT: sampling on the GPU, results on the CPU; 15 and 20 us each."""
    cost = with_prices(kimi().cost, per_request=2.0)
    width = {"batch": 32, "width": 4, "context_tokens": 0.0, "extend_tokens": 96}
    one, three = (round_time(cost, **width, committed=a) for a in (1.0, 3.0))
    assert three.fixed_s - one.fixed_s == pytest.approx(2.0 * 32 * 2 * 15e-6)
    assert three.host_s - one.host_s == pytest.approx(32 * 2 * 20e-6)
    for part in ("dense_s", "experts_s", "allreduce_s", "draft_s", "overhead_s", "extend_s"):
        assert getattr(three, part) == getattr(one, part)


@given(batch=st.floats(0, 1000), more=st.floats(0, 1000), factor=st.floats(0.1, 10))
def test_host_time_is_a_scaled_line(batch: float, more: float, factor: float) -> None:
    none, one, two = host_s(kimi().cost, [0.0, batch, batch + more])
    assert one - none == pytest.approx(batch * float(host_s(kimi().cost, 1.0) - none), abs=1e-12)
    assert two >= one
    scaled = host_s(with_prices(kimi().cost, host=factor), batch)
    assert scaled == pytest.approx(factor * one, rel=ROUNDING)
