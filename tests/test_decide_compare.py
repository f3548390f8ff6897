"""Two servers side by side."""

from __future__ import annotations

import pytest

from specsim.decide.compare import compare
from specsim.profile import load_profile
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_overrides
from specsim.setting import SpecSetting


def test_a_server_against_itself_is_no_change() -> None:
    profile = load_profile()
    result = compare(profile, profile, Question((SpecSetting.of(1, 3),), (1, 30)))
    assert len(result.rows) == 3 * 2  # none, what runs today, the chain of 3
    for pair in result.rows:
        assert pair.change is not None
        assert pair.change.value == pytest.approx(0.0, abs=1e-12)
        assert pair.change.high == pytest.approx(0.0, abs=1e-6)  # the same numbers move together


def test_half_the_latency_is_surely_no_loss() -> None:
    before = load_profile()
    after = apply_overrides(before, parse_overrides(["allreduce.latency=*0.5"])).profile
    result = compare(before, after, Question(concurrency=(1, 30)))
    for pair in result.rows:
        assert pair.change is not None
        assert pair.change.value > 0
        wide = pair.change.high - pair.change.low
        assert pair.first_output_tps is not None
        assert (
            wide
            < 2
            * (pair.first_output_tps.high - pair.first_output_tps.low)
            / pair.first_output_tps.value
        )
    for best in result.best:
        assert best.second.output_tps >= best.first.output_tps


def test_what_one_engine_refuses_is_left_open() -> None:
    founding, other = load_profile(), load_profile("kimi-k2.6-8x-rtx-pro-6000")
    result = compare(founding, other, Question((SpecSetting.of(2, 2),), (8,)))
    tree = [pair for pair in result.rows if pair.setting.topk == 2]
    assert tree[0].first_output_tps is not None
    assert tree[0].second_output_tps is None  # vLLM drafts chains only
    assert tree[0].change is None
    plain = result.rows[0].change
    assert plain is not None
    assert plain.low < plain.value < plain.high
