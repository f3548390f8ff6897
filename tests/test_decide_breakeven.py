"""Break-even: closed forms, and the solved system against them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.acceptance import AcceptTable
from specsim.acceptance.prior import at_accept_length
from specsim.decide.breakeven import blended, break_even, breakeven_accept_length
from specsim.errors import InputError
from specsim.predict import predict
from specsim.profile import load_profile
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_overrides
from specsim.setting import SpecSetting


def test_bounds_of_the_closed_form() -> None:
    assert breakeven_accept_length(2.0, 1.0) == 2.0
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError):
            breakeven_accept_length(bad, 1.0)


def at(*concurrency: int) -> Question:
    return Question(concurrency=concurrency)


@given(share=st.floats(-1.0, 1.0))
def test_blending_moves_the_accept_length_one_way(share: float) -> None:
    table = AcceptTable(np.array([[1.0, 0.6, 0.3], [1.0, 0.4, 0.1]]), 1.0)
    here = blended(table, 2, share).accept_length
    more = blended(table, 2, min(1.0, share + 0.1)).accept_length
    assert 1.0 <= here <= more <= 3.0


def test_at_the_break_even_length_the_gain_is_zero() -> None:
    """The solved length put into the profile: throughput equals no speculation's.

    2 %: a shifted level spreads acceptance over depths and requests otherwise than the blend.
    """
    profile = load_profile()
    plan = profile.system().plan(SpecSetting.of(1, 3, scheduler="overlap"))
    point = break_even(profile, plan, at(30)).points[0]
    assert point.reachable
    needed = point.breakeven_accept_length
    level = at_accept_length(profile.acceptance(), plan.setting, needed).level
    shift = level - profile.acceptance().level
    first = profile.acceptances[0]
    moved = replace(
        profile,
        acceptances=(replace(first, level=first.level + shift), *profile.acceptances[1:]),
    )
    curve = predict(moved, Question((plan.setting,), (30,)), solver="analytic")
    asked = curve.of("asked")
    assert asked is not None
    assert asked.points[0].gain == pytest.approx(0.0, abs=0.02)


def test_gain_and_break_even_agree_in_sign() -> None:
    profile = load_profile()
    for setting in (SpecSetting.of(1, 2, scheduler="overlap"), SpecSetting.of(2, 2)):
        curve = break_even(profile, profile.system().plan(setting), at(1, 8, 30, 100))
        for p in curve.points:
            assert p.most_accept_length == 3.0
            assert (p.breakeven_accept_length < p.expected_accept_length) == (p.gain > 0)


def test_unreachable_is_infinite_and_said() -> None:
    """Topk 4 with 16 tokens on the founding box: 354 of 773 tok/s measured at saturation."""
    profile = load_profile()
    curve = break_even(profile, profile.system().plan(SpecSetting.of(4, 2, 16)), at(1, 100))
    assert math.isinf(curve.points[1].breakeven_accept_length)
    assert not curve.points[1].reachable
    assert curve.points[1].limit == "kv"


def test_where_speculation_stops_paying() -> None:
    """A drafter that is good for one client only: the crossover lies between two loads."""
    good = apply_overrides(
        load_profile("kimi-k2.6-8x-rtx-pro-6000"), parse_overrides(["draft.cost=*1"])
    ).profile
    plan = good.system().plan(SpecSetting.of(1, 8))
    curve = break_even(good, plan, at(1, 4, 16, 64, 128))
    gains = [p.gain for p in curve.points]
    assert gains[0] > 0 > gains[-1]
    (crossing,) = curve.crossovers
    assert crossing.pays_below
    below = max(p.concurrency for p in curve.points if p.gain > 0)
    above = min(p.concurrency for p in curve.points if p.gain < 0)
    assert below < crossing.concurrency < above


def test_what_does_not_draft_has_no_break_even() -> None:
    profile = load_profile()
    with pytest.raises(InputError):
        break_even(profile, profile.system().plan(SpecSetting.none()), at(1))
    with pytest.raises(InputError):
        at()
