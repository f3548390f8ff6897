"""A round's length from its phases, on each of the engines' timelines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import kimi, with_prices

from specsim.cost.forward import draft_time, target_time
from specsim.cost.model import CostModel
from specsim.cost.rounds import (
    OVERLAP,
    RUN_AHEAD,
    SCHEDULE_SHARE,
    SEQUENTIAL,
    RoundTime,
    compose_s,
    host_s,
    round_time,
)

# Sums of five doubles.
ROUNDING = 1e-12

seconds = st.floats(0, 1)
TIMELINES = np.array([SEQUENTIAL, OVERLAP, RUN_AHEAD])


def priced(
    cost: CostModel,
    width: int,
    timeline: int,
    batch: float = 8.0,
    extend: float = 3.0,
    context: float = 4096.0,
) -> RoundTime:
    speculates = width > 1
    return round_time(
        cost,
        batch,
        width,
        batch * context,
        draft_forwards=1.0 * speculates,
        extend_tokens=batch * extend * speculates,
        timeline=timeline,
    )


def lengths(front: float, extend: float, host: float) -> list[float]:
    return compose_s(TIMELINES, np.array(front), np.array(extend), np.array(host)).tolist()


@given(front=seconds, extend=seconds, host=seconds)
def test_each_timeline_hides_more_of_the_cpu(front: float, extend: float, host: float) -> None:
    sequential, overlap, ahead = lengths(front, extend, host)
    slack = 1 + ROUNDING
    assert sequential * slack >= overlap
    assert overlap * slack >= ahead
    assert ahead * slack >= max(front + extend, host)
    assert sequential == pytest.approx(front + extend + host, rel=ROUNDING)


@given(front=seconds, extend=seconds, host=seconds)
def test_nothing_to_hide_nothing_gained(front: float, extend: float, host: float) -> None:
    """No CPU time: all timelines are one. No extend: overlap hides only what follows a launch."""
    assert lengths(front, extend, 0.0) == pytest.approx([front + extend] * 3, rel=ROUNDING)
    _, overlap, _ = lengths(front, 0.0, host)
    assert overlap == pytest.approx(max(front + SCHEDULE_SHARE * host, host), rel=ROUNDING)


def test_overlap_of_spec_v2_saves_what_was_published() -> None:
    """SGLang #11398: 246.8 -> 273.4 tok/s at about 3 tokens a round, 12.1 -> 11.0 ms, saved 1.1.

    The host's time is assumed to lie in 1-3 ms [@host-time]; overlap saves what of it follows a
    launch, and as much of the rest as the extend covers: a factor of two either way.
    """
    time = {t: priced(kimi().cost, 4, t, batch=1.0).round_s for t in TIMELINES.tolist()}
    saved = float(time[SEQUENTIAL] - time[OVERLAP])
    assert 1.1e-3 / 2 < saved < 1.1e-3 * 2


def test_a_round_is_made_of_its_phases() -> None:
    cost = kimi().cost
    time = priced(cost, 4, SEQUENTIAL)
    parts = draft_time(cost, 8, 1, 4, 1, 24, 8 * 4096)
    expected = target_time(cost, 8, 4, 8 * 4096).target_s + sum(parts) + host_s(cost, 8)
    assert time.round_s == pytest.approx(float(expected), rel=ROUNDING)


@pytest.mark.parametrize("timeline", TIMELINES.tolist())
def test_without_speculation_a_round_is_a_step(timeline: int) -> None:
    cost = kimi().cost
    step = float(target_time(cost, 8, 1, 8 * 4096).target_s)
    host = float(host_s(cost, 8))
    expected = {
        SEQUENTIAL: step + host,
        OVERLAP: step + SCHEDULE_SHARE * host,
        RUN_AHEAD: max(step, host),
    }[timeline]
    assert priced(cost, 1, timeline).round_s == pytest.approx(expected, rel=ROUNDING)


def test_a_slow_cpu_bounds_a_run_ahead_round() -> None:
    cost = with_prices(kimi().cost, host=1000.0)
    time = priced(cost, 4, RUN_AHEAD)
    assert time.round_s == time.host_s


def test_shapes_broadcast_like_single_rounds() -> None:
    """Batches in a row, settings in a column: every cell is the round on its own."""
    batch, width = np.array([1.0, 8.0, 64.0]), np.array([[1.0], [4.0], [16.0]])
    time = round_time(
        kimi().cost,
        batch,
        width,
        batch * 4096,
        draft_forwards=np.where(width > 1, 1.0, 0.0),
        extend_tokens=3 * batch * (width > 1),
        timeline=OVERLAP,
    )
    assert time.round_s.shape == (3, 3)
    for row, n in enumerate((1, 4, 16)):
        for column, b in enumerate(batch.tolist()):
            one = priced(kimi().cost, n, OVERLAP, batch=b)
            cell = float(time.round_s[row, column])
            assert cell == pytest.approx(float(one.round_s), rel=ROUNDING)


def test_a_verify_of_t_tokens_costs_a_step_of_t_tokens_and_a_little() -> None:
    """Plus a few ms (Kimi-K2.6), at short contexts and where tokens share no experts."""
    cost = with_prices(kimi().cost, expert_sharing=1.0)
    verify = float(priced(cost, 4, SEQUENTIAL, context=0.0).round_s)
    step = float(priced(cost, 1, SEQUENTIAL, batch=32.0, context=0.0).round_s)
    assert 0 < verify - step < 5e-3


@pytest.mark.parametrize(
    ("batch", "width", "factor"), [(1.0, 4, 1.0), (2.0, 4, 3.0), (8.0, 4, 3.0), (8.0, 1, 1.0)]
)
def test_several_slots_are_dearer_only_together_and_speculating(
    batch: float, width: int, factor: float
) -> None:
    cost = kimi().cost
    dearer = with_prices(cost, several_slots=3.0)
    before, after = (
        float(priced(c, width, SEQUENTIAL, batch=batch).round_s) for c in (cost, dearer)
    )
    assert after == pytest.approx(factor * before, rel=ROUNDING)
