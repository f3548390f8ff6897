"""Candidates are what an engine runs, each once; their accept tables equal those one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.decide.outlook import (
    algorithm_of,
    candidate_plans,
    candidate_settings,
    with_current,
)
from specsim.errors import InputError
from specsim.profile import load_profile
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_overrides
from specsim.tree import tree_capacity


@settings(max_examples=50)
@given(tokens=st.integers(2, 64), steps=st.integers(1, 8), topk=st.integers(1, 8))
def test_candidates_stay_within_their_limits(tokens: int, steps: int, topk: int) -> None:
    found = list(
        candidate_settings(
            "EAGLE3", Question(max_draft_tokens=tokens, max_steps=steps, max_topk=topk)
        )
    )
    assert len(found) == len(set(found))
    for s in found:
        assert s.num_draft_tokens <= min(tokens, tree_capacity(s.topk, s.num_steps))
        assert s.num_steps <= steps
        assert s.topk <= max(topk, 1)


def test_the_engine_of_the_founding_run_has_no_tree_with_overlap() -> None:
    profile = load_profile()
    some = tuple(
        candidate_settings("EAGLE3", Question(max_draft_tokens=16, max_steps=3, max_topk=4))
    )
    plans = candidate_plans(profile, Question(), some)
    assert not plans[0].setting.speculates
    trees = [p for p in plans if p.setting.topk > 1]
    assert trees
    assert all(p.setting.scheduler == "sequential" for p in trees)
    chains = [(p.setting.num_steps, p.setting.scheduler) for p in plans if p.setting.topk == 1][1:]
    assert len(chains) == len(set(chains)) == 6  # three depths under both schedulers
    later = candidate_plans(profile, Question(any_engine=True), some)
    overlapped = [p for p in later if p.setting.topk > 1 and p.setting.scheduler == "overlap"]
    assert {p.version for p in overlapped} == {"0.5.13", "0.5.23"}


def test_vllm_has_chains_only() -> None:
    profile = load_profile("kimi-k2.6-8x-rtx-pro-6000")
    plans = candidate_plans(profile, Question(max_draft_tokens=16, max_steps=3, max_topk=4))
    assert {p.setting.topk for p in plans} == {1}


def test_what_runs_today_is_found_among_the_candidates() -> None:
    for name in ("kimi-k2.5-int4-8x-rtx-pro-6000", "kimi-k2.6-8x-rtx-pro-6000"):
        profile = load_profile(name)
        plans = candidate_plans(profile, Question(max_draft_tokens=8, max_steps=3, max_topk=1))
        same, index = with_current(profile, plans)
        assert same == plans
        assert index is not None
        assert same[index].setting.key == profile.setup.current.key  # type: ignore[union-attr]
        assert len(with_current(profile, plans[:1])[0]) == 2


def test_how_a_server_drafts() -> None:
    founding = load_profile()
    assert algorithm_of(founding) == "EAGLE3"
    mtp = apply_overrides(
        founding, parse_overrides(["model=deepseek-v3 draft=mtp gpu=h200-sxm link=nvlink4"])
    )
    assert algorithm_of(mtp.profile) == "EAGLE3"  # what runs today was kept


def test_limits_are_checked() -> None:
    with pytest.raises(InputError):
        Question(max_draft_tokens=1)
    with pytest.raises(InputError):
        Question(max_topk=0)
