"""Servers that run policies: tokens, times, switches, and the best table on steady loads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from phase_machine import PhaseServer
from policy_cases import BURSTS, MIXED, RAMP, adaptation, run, with_workload
from simulation_cases import CHAIN, CHAIN_V1, case_of, kimi, llama, llama_sglang

from specsim.acceptance import accept_table
from specsim.case import Case
from specsim.decide.schedule import SWITCH_GAIN, best_schedule, chain_plans
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.profile import load_profile
from specsim.question import Question
from specsim.report.timeline import timeline_of
from specsim.server.system import System
from specsim.setting import SpecSetting
from specsim.simulate import (
    Adaptation,
    Policy,
    SimulationResult,
    fixed,
    on_off,
    sglang_default,
    simulate,
)
from specsim.simulate.policy import Standing
from specsim.workload import Lengths, Load, VaryingLoad, Workload

# --- a server that runs a policy


@pytest.mark.parametrize("system", [kimi(kv_tokens=6000), llama(), llama_sglang("0.5.18")])
@pytest.mark.parametrize(
    "load",
    [Load(concurrency=12), Load(concurrency=12, num_requests=40), Load("open_loop", 1, 30.0)],
    ids=["steady", "run", "open"],
)
@pytest.mark.parametrize("setting", [CHAIN, CHAIN_V1], ids=["overlap", "sequential"])
def test_one_setting_is_the_plain_simulation(
    system: System, load: Load, setting: SpecSetting
) -> None:
    """Not within a tolerance: the same bytes."""
    plain = simulate(
        system.cost,
        case_of(system, setting, load=load, cv=0.5),
        rng=np.random.default_rng(1),
        requests=30,
    )
    adapted = adaptation(system, fixed(3), setting.scheduler)
    policy = run(system, adapted, load, requests=30)
    assert policy.requests.tobytes() == plain.requests.tobytes()
    assert policy.rounds.tobytes() == plain.rounds.tobytes()
    assert policy.output_tps == plain.output_tps
    assert policy.switches == 0


POLICIES = [MIXED, on_off(3, 9, 5), on_off(3, 9, 10), sglang_default(), fixed(0)]


@pytest.mark.parametrize("load", [RAMP, BURSTS, Load(concurrency=12, num_requests=40)])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize("system", [llama(kv_tokens=5000), llama_sglang("0.5.18")])
def test_tokens_are_conserved(system: System, policy: Policy, load: Load | VaryingLoad) -> None:
    """Every request gets its answer, whatever changed while it ran; retractions included."""
    result = run(system, adaptation(system, policy, cap=32), load)
    requests, rounds = result.requests, result.rounds
    np.testing.assert_array_equal(requests["tokens"], requests["output_len"])
    assert requests["tokens"].sum() == rounds["tokens"].sum() + result.prefills["prompts"].sum()
    assert result.deliveries.tokens.sum() == rounds["tokens"].sum()
    assert (rounds["tokens"] >= rounds["active"] * 0).all()
    most = np.array(policy.steps)[rounds["gear"]] + 1
    assert (rounds["accepted"] + rounds["active"] <= most * rounds["active"]).all()
    assert (rounds["start_s"][1:] >= rounds["end_s"][:-1] - 1e-9).all()
    ends = np.flatnonzero(np.diff(rounds["gear"]))
    assert len(ends) == result.switches


@pytest.mark.parametrize("policy", POLICIES[:4], ids=lambda p: p.name)
def test_stretches_give_the_records_of_single_rounds(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = llama_sglang("0.5.18")
    adapted = adaptation(system, policy, cap=32)
    fast = run(system, adapted, RAMP)
    monkeypatch.setattr("specsim.simulate.run.Server", PhaseServer)
    slow = run(system, adapted, RAMP)
    assert fast.switches == slow.switches
    for name in ("batch", "tokens", "gear", "kv_tokens"):
        np.testing.assert_array_equal(fast.rounds[name], slow.rounds[name])
    np.testing.assert_allclose(fast.rounds["end_s"], slow.rounds["end_s"], rtol=1e-11)
    np.testing.assert_array_equal(fast.requests["tokens"], slow.requests["tokens"])


def test_phases_of_every_gear_fill_their_rounds() -> None:
    system = llama_sglang("0.5.18")
    result = run(system, adaptation(system, MIXED, cap=32), RAMP)
    timeline = timeline_of(result, "")
    busy = timeline.spans[np.isin(timeline.spans["lane"], ("cpu", "gpu", "link"))]
    inside = busy[busy["round"] >= 0]
    last = np.zeros(len(result.rounds), dtype=np.int64)
    np.maximum.at(last, inside["round"], inside["end_ns"])
    np.testing.assert_array_equal(last, timeline.rounds["end_ns"])
    target = timeline.spans[timeline.spans["phase"] == "target"]
    assert target["accepted"].sum() == result.rounds["accepted"].sum()


def test_a_held_batch_leaves_nothing_to_choose() -> None:
    system = llama()
    with pytest.raises(InputError, match="held batch"):
        run(system, adaptation(system, MIXED), Load("steady_decode", 4, context_len=100.0))


# --- flapping


def test_hysteresis_does_not_flap() -> None:
    """Clients that swing between 13 and 19 around a threshold of 16, eight times."""
    system = llama_sglang("0.5.18")
    swing = VaryingLoad("ramp", "clients", tuple(range(17)), (13.0, 19.0) * 8 + (13.0,))

    def switches(policy: Policy) -> int:
        return run(system, adaptation(system, policy, cap=64), swing, output_len=24).switches

    flapping = switches(on_off(3, 16, 17))
    damped = switches(on_off(3, 16, 12))
    assert flapping >= 12  # at least the swings
    assert damped == 2  # off once, for clients never fall below 12; on again when all leave


# --- the best table on loads that do not change


@pytest.mark.parametrize("clients", [2, 8, 24])
def test_on_a_stationary_load_the_table_is_as_good_as_the_best_fixed(clients: int) -> None:
    """Within the noise of both (two standard errors) and what is not told apart (SWITCH_GAIN)."""
    workload = Workload(Lengths(1000, 0.3), Lengths(300, 0.5))
    profile = with_workload(load_profile(), workload)
    wish = Question(max_draft_tokens=6, max_steps=4, engine_version="0.5.23")
    system = profile.system()
    drafts = chain_plans(profile, wish)[1:]
    acceptance = profile.acceptance()

    def result(head: RunPlan, adapted: Adaptation | None) -> SimulationResult:
        case = Case.of(
            system,
            head,
            accept_table(acceptance, head.setting),
            workload,
            Load(concurrency=clients),
        )
        return simulate(
            system.cost, case, rng=np.random.default_rng(7), requests=400, adaptation=adapted
        )

    fixed_ones = [result(plan, None) for plan in drafts]
    best = max(fixed_ones, key=lambda r: r.output_tps)
    policy = best_schedule(profile, wish).policy
    adapted = Adaptation.of(policy, lambda steps: drafts[steps - 1], acceptance)
    table = result(adapted.head, adapted)
    noise = 2.0 * math.hypot(best.output_tps_se, table.output_tps_se)
    assert table.output_tps >= best.output_tps * (1.0 - SWITCH_GAIN) - noise


def test_a_standing_is_a_value() -> None:
    one, other = sglang_default().start(), sglang_default().start()
    assert one == other
    assert isinstance(one, Standing)
    assert sglang_default().observe(one, [0.0] * 40) != one
