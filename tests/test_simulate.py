"""The simulator's records: same however they are made, and what they say of each mechanism."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from phase_machine import PhaseServer
from simulation_cases import (
    CHAIN,
    CHAIN_V1,
    NONE,
    PLAIN,
    TREE_V1,
    case_of,
    kimi,
    llama,
    llama_sglang,
)

from specsim.acceptance import Acceptance, accept_table
from specsim.case import Case
from specsim.cost.rounds import prefill_s
from specsim.metrics import REQUEST_DTYPE, Records
from specsim.server import setup_from_mapping
from specsim.server.system import System, assemble
from specsim.setting import SpecSetting
from specsim.simulate import SimulationResult, Trace, simulate
from specsim.simulate.pricing import PrefillPricer, RoundPricer, planned_time
from specsim.workload import Lengths, Load, Workload


def run(system: System, case: Case, seed: int = 1, **options: object) -> SimulationResult:
    return simulate(system.cost, case, rng=np.random.default_rng(seed), **options)  # type: ignore[arg-type]


def assert_same(one: Records, other: Records, rtol: float) -> None:
    """Whole numbers equal, times equal to `rtol` (NaN where the other has it)."""
    assert one.dtype == other.dtype
    assert one.dtype.names is not None
    for name in one.dtype.names:
        if one.dtype[name].kind == "f":
            np.testing.assert_allclose(one[name], other[name], rtol=rtol, atol=1e-15)
        else:
            np.testing.assert_array_equal(one[name], other[name])


CLOSED = Load(concurrency=12)
DRAINED = Load(concurrency=12, num_requests=40)
OPEN = Load("open_loop", request_rate=30.0)
HELD = Load("steady_decode", concurrency=6, context_len=2000.0, window_s=1.0)


# Pricing


@pytest.mark.parametrize(
    ("system", "setting"),
    [
        (kimi(), NONE),
        (kimi(), CHAIN),
        (kimi(), TREE_V1),
        (llama(), CHAIN),
        (llama_sglang("0.5.18"), CHAIN),
    ],
)
def test_prepared_prices_are_those_of_the_formula(system: System, setting: SpecSetting) -> None:
    plan = system.plan(setting)
    pricer = RoundPricer.of(system.cost, plan, 2.2, 150)
    assert pricer.linear
    for batch in (1, 2, 7, 33, 150):
        kv = np.array([0, 17, 4000, 123_456, 3_000_000])
        exact = planned_time(system.cost, plan, 2.2, np.full(5, batch), kv).round_s
        np.testing.assert_allclose(pricer.round_s(batch, kv), exact, rtol=1e-12)


def test_windowed_attention_is_priced_by_the_formula() -> None:
    """gpt-oss reads at most its window in half of the layers: not linear in the context."""
    system = assemble(
        setup_from_mapping(
            {
                "schema": "specsim.setup/1",
                "hardware": {"gpu": "h100-sxm"},
                "model": {"id": "gpt-oss-20b"},
                "engine": {"name": "vllm", "version": "0.20.2"},
            }
        )
    )
    plan = system.plan(NONE)
    pricer = RoundPricer.of(system.cost, plan, 1.0, 8)
    assert not pricer.linear
    kv = np.array([10, 400, 1000, 9000, 80_000])
    exact = planned_time(system.cost, plan, 1.0, np.full(5, 8.0), kv).round_s
    np.testing.assert_allclose(pricer.round_s(8, kv), exact, rtol=1e-12)
    result = run(system, case_of(system, NONE, 8))
    assert result.output_tps > 0


@pytest.mark.parametrize("beside", [None, 1, 64])
def test_prepared_prefill_prices_are_those_of_the_formula(beside: int | None) -> None:
    cost = kimi().cost
    pricer = PrefillPricer(cost, speculates=True)
    for tokens, context in ((0, 0.0), (1, 0.5), (255, 900.0), (256, 128.0), (8192, 4096.0)):
        exact = float(prefill_s(cost, tokens, context, True, beside))
        assert pricer.seconds(tokens, tokens * context, beside) == pytest.approx(exact, rel=1e-12)


# Stretches


@pytest.mark.parametrize("load", [CLOSED, DRAINED, OPEN], ids=lambda x: x.kind)
@pytest.mark.parametrize(
    ("system", "setting"),
    [
        (kimi(kv_tokens=6000), CHAIN),  # the pool holds a dozen: retractions
        (kimi(), TREE_V1),
        (llama(kv_tokens=5000), CHAIN),
        (llama_sglang("0.5.18"), CHAIN),
        (llama_sglang(), NONE),
    ],
    ids=["kimi-overlap", "kimi-sequential", "vllm-mixed", "sglang-run-ahead", "sglang-none"],
)
def test_stretches_give_the_records_of_single_rounds(
    system: System, setting: SpecSetting, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played phase by phase on GPU, CPU and link, every record is the same to 1e-12."""
    case = case_of(system, setting, load=load, cv=0.5)
    fast = run(system, case, requests=25)
    monkeypatch.setattr("specsim.simulate.run.Server", PhaseServer)
    slow = run(system, case, requests=25)
    for table in ("requests", "rounds", "prefills", "retractions"):
        assert_same(getattr(fast, table), getattr(slow, table), rtol=1e-12)
    assert fast.output_tps == pytest.approx(slow.output_tps, rel=1e-12)
    np.testing.assert_array_equal(fast.deliveries.tokens, slow.deliveries.tokens)


@pytest.mark.parametrize(
    "system", [kimi(), llama(), llama_sglang()], ids=["kimi", "vllm", "sglang"]
)
def test_rounds_of_a_held_batch_take_what_the_formula_says(system: System) -> None:
    result = run(system, case_of(system, CHAIN, load=HELD), requests=25)
    rounds = result.rounds
    exact = result.pricers[0].exact(rounds["batch"], rounds["kv_tokens"].astype(float))
    taken = np.diff(rounds["end_s"], prepend=0.0)
    np.testing.assert_allclose(taken, exact.round_s, rtol=1e-9)


def test_same_seed_same_bytes() -> None:
    system = llama()
    case = case_of(system, CHAIN, 20, cv=0.5)
    one, other = run(system, case), run(system, case)
    assert one.requests.tobytes() == other.requests.tobytes()
    assert one.rounds.tobytes() == other.rounds.tobytes()
    assert one.requests.tobytes() != run(system, case, seed=2).requests.tobytes()


def test_compared_settings_see_the_same_requests() -> None:
    """Lengths and arrivals come from streams of their own, whatever is drawn beside them."""
    system = llama_sglang()
    tables = [
        run(system, case_of(system, setting, load=OPEN, cv=0.5), requests=200).requests[:200]
        for setting in (NONE, CHAIN, CHAIN_V1)
    ]
    for table in tables[1:]:
        for name in ("arrival_s", "input_len", "output_len"):
            np.testing.assert_array_equal(table[name], tables[0][name])
    deep = SpecSetting.of(1, 7, scheduler="overlap")
    rounds = [
        run(system, case_of(system, setting, load=OPEN), requests=200).requests["rounds"][:200]
        for setting in (CHAIN, deep)
    ]
    assert (rounds[1] <= rounds[0]).all()  # the same draws accept at least as much of more


def test_the_callers_generator_draws_nothing() -> None:
    system = llama()
    rng = np.random.default_rng(5)
    simulate(system.cost, case_of(system, CHAIN, 4), rng=rng)
    assert rng.random() == np.random.default_rng(5).random()


# Records


def test_gaps_between_tokens_add_up() -> None:
    system = llama()
    result = run(system, case_of(system, CHAIN, 5))
    measured = result.measured
    decode = (measured["last_token_s"] - measured["first_token_s"]).sum()
    per_token, per_chunk = result.itl_s(), result.itl_s(per_chunk=True)
    assert per_token.sum() == pytest.approx(decode)
    assert per_chunk.sum() == pytest.approx(decode)
    assert len(per_token) == (measured["tokens"] - 1).sum()
    assert len(per_chunk) == measured["rounds"].sum()


def test_without_records_the_summary_is_the_same() -> None:
    system = llama()
    case = case_of(system, CHAIN, 5)
    kept, bare = run(system, case), run(system, case, record_rounds=False)
    assert bare.output_tps == kept.output_tps
    assert bare.rounds.size == bare.prefills.size == 0
    assert kept.rounds.size > 0


@pytest.mark.parametrize(
    ("setting", "load"),
    [
        (CHAIN, Load(concurrency=20)),
        (CHAIN, OPEN),
        (PLAIN, Load(concurrency=16, num_requests=32)),  # with retractions
    ],
)
def test_a_run_that_is_summed_up_in_chapters_says_the_same(
    monkeypatch: pytest.MonkeyPatch, setting: SpecSetting, load: Load
) -> None:
    """Requests that are running when a chapter closes, lagging, retracted or in prefill, too."""
    system = llama_sglang(kv_tokens=10_000)
    case = case_of(system, setting, load=load, input_len=400, output_len=300)
    options = {} if load.num_requests else {"requests": 40}
    whole = run(system, case, **options)
    monkeypatch.setattr("specsim.simulate.server.CHAPTER", 7)
    parts = run(system, case, record_rounds=False, **options)
    assert len(whole.retractions) > 0 or setting is CHAIN
    assert_same(whole.requests, parts.requests, rtol=1e-12)
    for name in ("output_tps", "output_tps_se", "batch_size", "round_s", "accept_length"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-9, nan_ok=True)


def test_memory_does_not_grow_with_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request leaves a row of the table behind, and what `enter` keeps ready for the next."""
    monkeypatch.setattr("specsim.simulate.server.CHAPTER", 256)
    monkeypatch.setattr("specsim.simulate.course.MOST_STEPS", 1024)
    system = llama_sglang()
    case = case_of(system, CHAIN, 32, cv=0.5, input_len=100, output_len=30)

    def peak_bytes(requests: int) -> int:
        tracemalloc.start()
        run(system, case, record_rounds=False, requests=requests)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    few, many = peak_bytes(600), peak_bytes(2600)
    assert (many - few) / 2000 < 2.5 * REQUEST_DTYPE.itemsize


def test_joined_steps_keep_rate_and_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    system = llama_sglang()
    case = case_of(system, CHAIN, 20, cv=0.5, output_len=100)
    fine = run(system, case, record_rounds=False, requests=200)
    monkeypatch.setattr("specsim.simulate.course.MOST_STEPS", 400)
    coarse = run(system, case, record_rounds=False, requests=200)
    assert coarse.output_tps == pytest.approx(fine.output_tps, rel=5e-3)
    assert coarse.batch_size == pytest.approx(fine.batch_size, rel=1e-3)
    assert coarse.accept_length == pytest.approx(fine.accept_length, rel=1e-2)


def test_a_deep_chain_that_always_accepts_emits_all_of_it() -> None:
    """Tokens of a round were counted in eight bits: 200 accepted drafts were a negative number."""
    system = llama_sglang("0.5.18")
    setting = SpecSetting.of(1, 200, algorithm="NGRAM")
    perfect = Acceptance(accept_prob=(1.0,), decay=1.0, context_spread=0.0, request_spread=0.0)
    plan = system.plan(setting)
    table = accept_table(perfect, plan.setting)
    case = Case.of(system, plan, table, Workload(Lengths(50), Lengths(1000)), Load(concurrency=2))
    assert run(system, case).accept_length == pytest.approx(table.accept_length)
    assert table.accept_length > 127


# Admission and prefill


def test_slots_cap_the_batch() -> None:
    system = kimi()
    result = run(system, case_of(system, CHAIN, 100))
    assert result.rounds["batch"].max() == 48  # SGLang's default while speculating
    assert result.batch_size == pytest.approx(48, rel=1e-3)


def test_the_pool_caps_the_batch() -> None:
    system = kimi(kv_tokens=20_000)
    case = case_of(system, NONE, 100, input_len=1000, output_len=500)
    result = run(system, case)
    assert result.batch_size == pytest.approx(int(case.pool_tokens / case.request_kv_tokens), 0.02)


def test_prompts_of_one_moment_share_a_step_up_to_the_chunk() -> None:
    system = llama_sglang(chunked_prefill_size=1000)
    load = Load(concurrency=5, num_requests=5)
    result = run(system, case_of(system, PLAIN, input_len=400, output_len=4, load=load))
    assert result.prefills["tokens"].tolist() == [1000, 1000]  # 2.5 prompts each
    assert result.prefills["prompts"].tolist() == [2, 3]
    assert (result.rounds["start_s"] >= result.prefills["end_s"].max()).all()


def test_mixed_chunks_join_the_rounds_of_others() -> None:
    system = llama(chunked_prefill_size=300)
    trace = Trace.of([0.0, 0.05], [100, 1000], [200, 3])
    result = run(system, case_of(system, NONE), trace=trace)
    mixed = result.prefills[result.prefills["mixed"]]
    assert mixed["tokens"].tolist() == [299, 299, 299, 103]  # one token of the other decodes
    joined = result.rounds[result.rounds["prefill_s"] > 0]
    assert (joined["batch"] == 1).all()
    assert (joined["running"] == 2).all()
    np.testing.assert_allclose(joined["end_s"], mixed["end_s"], rtol=1e-12)


def test_cached_prompt_tokens_are_not_computed() -> None:
    system = llama_sglang()
    case = case_of(system, PLAIN, input_len=1000, cached=600)
    result = run(system, case)
    assert set(result.prefills["tokens"].tolist()) == {400}
    # each of the 400 sees the 600 and on average half of the 400
    assert set(result.prefills["pairs"].tolist()) == {400 * 800.0}


def test_an_end_is_noticed_a_round_late_under_overlap() -> None:
    system = llama_sglang()
    late = run(system, case_of(system, NONE, output_len=10)).measured
    prompt = run(system, case_of(system, PLAIN, output_len=10)).measured
    assert (late["finished_s"] > late["last_token_s"]).all()
    assert (prompt["finished_s"] == prompt["last_token_s"]).all()


def test_a_full_pool_throws_out_the_last_and_computes_it_again() -> None:
    """All start together, so at their ends they need input + output, more than was reserved."""
    system = llama_sglang(kv_tokens=10_000)
    load = Load(concurrency=16, num_requests=16)
    case = case_of(system, PLAIN, input_len=400, output_len=300, load=load)
    result = run(system, case)
    assert len(result.retractions) > 0
    again = result.requests["retractions"]
    assert again.sum() == len(result.retractions)
    assert set(np.flatnonzero(again)) <= set(range(8, 16))
    assert (result.requests["tokens"] == 300).all()
    assert result.prefills["prompts"].sum() == 16 + len(result.retractions)
    recomputed = result.retractions["kv_tokens"].sum()
    assert result.prefills["tokens"].sum() == 16 * 400 + recomputed
