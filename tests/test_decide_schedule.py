"""Tables of draft steps by running batch, in the engines' syntax."""

from __future__ import annotations

import json

import numpy as np
import pytest
from servers import with_prices

from specsim.decide.schedule import (
    Schedule,
    Step,
    best_schedule,
    zero_steps_tps,
)
from specsim.errors import InputError
from specsim.profile import load_profile
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_overrides
from specsim.setting import SpecSetting

CHAINS = Question(max_draft_tokens=8, max_steps=5)


def schedule(*steps: tuple[int, int], engine: str = "sglang") -> Schedule:
    rows = tuple(Step(b, s, 0.1, -0.1) for b, s in steps)
    return Schedule(engine, "1", "EAGLE3", rows, 48, 0.08, ())


def test_sglang_reads_its_table() -> None:
    """Keys are batch sizes as texts, candidate_steps a list (adaptive_spec_params.py, 0.5.23)."""
    table = json.loads(schedule((1, 5), (8, 3), (32, 0)).engine_config or "")
    assert table == {
        "1": {"candidate_steps": [5]},
        "8": {"candidate_steps": [3]},
        "32": {"candidate_steps": [0]},
    }


def test_vllm_reads_ranges_without_gaps() -> None:
    config = json.loads(schedule((1, 5), (8, 3), (32, 0), engine="vllm").engine_config or "")
    assert config == {
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [[1, 7, 5], [8, 31, 3], [32, 48, 0]],
    }


def test_a_founding_schedule() -> None:
    result = best_schedule(load_profile(), CHAINS)
    assert result.table[0].from_batch_size == 1
    batches = [s.from_batch_size for s in result.table]
    depths = [s.num_steps for s in result.table]
    assert batches == sorted(set(batches))
    assert depths == sorted(depths, reverse=True)  # more requests, less to gain from depth
    assert 0 < result.kv_pool_share_of_drafter < 0.2
    assert any("needs 0.5.1" in note for note in result.notes)  # 0.5.9 has no such table
    assert "adaptive.json" in "\n".join(result.config_lines)


def test_a_drafter_that_is_loaded_costs_even_if_it_drafts_nothing() -> None:
    """K = 0: the extend still runs, and the worker's overhead stays."""
    profile = load_profile()
    system = profile.system()
    plan = system.plan(SpecSetting.of(1, 2, scheduler="overlap"))
    zero = zero_steps_tps(system.cost, plan, [1, 8, 32], 4608)
    free = zero_steps_tps(
        with_prices(system.cost, round_overhead=1e-3, draft=1e-3), plan, [1, 8, 32], 4608
    )
    assert np.all(zero < free)
    assert all(row.gain_idle_drafter < 0 for row in best_schedule(profile, CHAINS).table)


def test_no_depth_pays_for_a_useless_drafter() -> None:
    bad = apply_overrides(load_profile(), parse_overrides(["accept_length=1.02"])).profile
    result = best_schedule(bad, Question(max_draft_tokens=8, max_steps=3, engine_version="0.5.23"))
    assert [s.num_steps for s in result.table] == [0]
    assert any("without speculation" in note for note in result.notes)


def test_the_table_keeps_what_runs_today_unless_another_depth_surely_beats_it() -> None:
    """The rule of every command: on the founding server 5 steps beat 2 at few requests only."""
    result = best_schedule(load_profile(), CHAINS)
    depths = [row.num_steps for row in result.table]
    assert depths[0] > 2
    assert depths[-1] == 2
    bad = apply_overrides(load_profile(), parse_overrides(["accept_length=1.8"])).profile
    poor = best_schedule(bad, CHAINS)
    assert poor.table[0].gain < 0
    assert any("1 and more clients no chain surely beats" in note for note in poor.notes)
    good = apply_overrides(load_profile(), parse_overrides(["accept_length=2.9"])).profile
    assert best_schedule(good, CHAINS).table[0].num_steps > 2


def test_a_server_without_a_drafter_has_no_schedule() -> None:
    profile = load_profile()
    from dataclasses import replace

    bare = replace(profile, setup=replace(profile.setup, draft=None, current=None))
    with pytest.raises(InputError):
        best_schedule(bare)
