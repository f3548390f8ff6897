"""The simulator against queueing theory and exact limits.

Statistical tests compare with the standard error that the run itself gives, at four of them: a
right model fails one run in 16,000.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from specsim.acceptance import Acceptance
from specsim.case import Case
from specsim.cost.rounds import prefill_s
from specsim.metrics import e2e_s
from specsim.server.system import System
from specsim.setting import SpecSetting
from specsim.simulate import SimulationResult, simulate
from specsim.simulate.pricing import RoundPricer
from specsim.workload import Load


def run(system: System, case: Case, seed: int = 1, **options: object) -> SimulationResult:
    return simulate(system.cost, case, rng=np.random.default_rng(seed), **options)  # type: ignore[arg-type]


def batch_means(values: np.ndarray, batches: int = 20) -> tuple[float, float]:
    """Mean and standard error of a correlated series."""
    means = np.array([part.mean() for part in np.array_split(values, batches)])
    return float(values.mean()), float(means.std(ddof=1) / math.sqrt(batches))


def steps_of_one(system: System, case: Case, input_len: int, output_len: int) -> float:
    """Time of a request that is alone on the server, from the cost model itself."""
    speculates = case.plan.setting.speculates
    first = float(prefill_s(system.cost, input_len, input_len / 2, speculates))
    pricer = RoundPricer.of(system.cost, case.plan, 1.0, 1)
    kv = np.arange(input_len + 1, input_len + output_len)
    return first + float(pricer.exact(np.ones(len(kv)), kv).round_s.sum())


@pytest.mark.parametrize("load_factor", [0.3, 0.7])
def test_one_slot_is_an_m_d_1_queue(load_factor: float) -> None:
    """Poisson arrivals, fixed service, one server: Wq = rho S / (2 (1 - rho))."""
    system = llama_sglang()
    plain = case_of(system, PLAIN, input_len=64, output_len=8, cap=1)
    service_s = steps_of_one(system, plain, 64, 8)
    load = Load("open_loop", request_rate=load_factor / service_s)
    case = case_of(system, PLAIN, input_len=64, output_len=8, cap=1, load=load)
    result = run(system, case, requests=8000)
    measured = result.measured
    served = measured["finished_s"] - measured["admitted_s"]
    np.testing.assert_allclose(served, service_s, rtol=1e-9)
    wait, error = batch_means(measured["admitted_s"] - measured["arrival_s"])
    expected = load_factor * service_s / (2 * (1 - load_factor))
    assert error < 0.1 * expected
    assert abs(wait - expected) < 4 * error


@pytest.mark.parametrize("setting", [NONE, CHAIN])
def test_littles_law_holds_between_slots_and_requests(setting: SpecSetting) -> None:
    """L = lambda W, with L from the steps' tables, W from the requests' and lambda as asked."""
    rate = 8.0
    system = llama()
    case = case_of(system, setting, load=Load("open_loop", request_rate=rate))
    result = run(system, case, requests=3000)
    stay, error = batch_means(result.measured["finished_s"] - result.measured["admitted_s"])
    arrived = np.diff(result.measured["arrival_s"])
    relative = math.hypot(error / stay, batch_means(arrived)[1] * rate)
    assert result.batch_size == pytest.approx(rate * stay, rel=4 * relative)


@pytest.mark.parametrize("clients", [8, 40])
def test_clients_are_throughput_times_time_in_a_closed_loop(clients: int) -> None:
    """C = X W: 40 clients share 16 slots, so most of W is waiting."""
    system = llama_sglang()
    case = case_of(system, CHAIN, clients, cap=16)
    result = run(system, case, requests=1500, warmup=100)
    time, error = batch_means(e2e_s(result.measured))
    requests_per_s = result.output_tps / case.workload.output_len.mean
    relative = math.hypot(error / time, result.output_tps_se / result.output_tps)
    assert requests_per_s * time == pytest.approx(clients, rel=4 * relative + 2e-3)


def test_a_short_run_knows_the_queue_that_was_there_before() -> None:
    """84 of 100 clients wait; the first of them have waited long when the run starts (C = X W)."""
    system = llama_sglang()
    case = case_of(system, CHAIN, 100, cap=16)
    result = run(system, case)
    queued = result.requests[16:100]
    assert (queued["arrival_s"] < 0).all()
    assert (np.diff(queued["arrival_s"]) > 0).all()
    assert len(result.measured) >= 96
    requests_per_s = result.output_tps / case.workload.output_len.mean
    assert requests_per_s * e2e_s(result.measured).mean() == pytest.approx(100, rel=0.03)


@pytest.mark.parametrize(("system", "lag"), [(llama_sglang(), 0), (kimi(), 0), (llama(), 1)])
def test_a_lone_client_without_speculation_is_exact(system: System, lag: int) -> None:
    """Baseline: output = O / (prefill + all steps), and a last idle step where the end lags."""
    case = case_of(system, PLAIN if lag == 0 else NONE, input_len=200, output_len=50)
    result = run(system, case)
    cycle_s = steps_of_one(system, case, 200, 50)
    if lag:
        pricer = RoundPricer.of(system.cost, case.plan, 1.0, 1)
        cycle_s += float(pricer.exact([1.0], [250.0]).round_s[0])
    assert result.output_tps == pytest.approx(50 / cycle_s, rel=1e-9)
    assert result.output_tps_se == pytest.approx(0.0, abs=1e-6)
    assert result.accept_length == 1.0
    assert (result.measured["rounds"] == 49).all()


@pytest.mark.parametrize(("setting", "most"), [(CHAIN, 4), (TREE_V1, 3), (CHAIN_V1, 4)])
def test_a_perfect_drafter_gives_all_it_can(setting: SpecSetting, most: int) -> None:
    """min(S, n - 1) + 1 tokens per round; the prefill gives the first, the last round is cut."""
    system = kimi()
    perfect = Acceptance(accept_prob=(1.0,), decay=1.0)
    result = run(system, case_of(system, setting, 4, output_len=50, acceptance=perfect))
    assert result.accept_length == most
    assert (result.measured["rounds"] == math.ceil(49 / most)).all()
    assert (result.measured["tokens"] == 50).all()


@pytest.mark.parametrize("setting", [CHAIN, TREE_V1])
def test_a_useless_drafter_gives_a_token_per_round(setting: SpecSetting) -> None:
    system = kimi()
    useless = Acceptance(accept_prob=(0.0,))
    result = run(system, case_of(system, setting, 4, output_len=50, acceptance=useless))
    assert result.accept_length == 1.0
    assert (result.measured["rounds"] == 49).all()
    rounds = result.rounds
    assert rounds["tokens"].max() <= 4


@pytest.mark.parametrize("setting", [CHAIN, TREE_V1])
def test_accept_length_is_that_of_the_table(setting: SpecSetting) -> None:
    """Requests differ; tokens over rounds is their harmonic mean (ACC-5)."""
    system = kimi()
    case = case_of(system, setting, 16, output_len=400)
    result = run(system, case, requests=400)
    assert result.accept_length == pytest.approx(case.table.accept_length, rel=0.01)


def test_throughput_error_is_what_repeated_runs_show() -> None:
    """The claimed standard error is that of repetition, within what 16 runs can tell.

    The claim may be too large (stratified requests), but not too small by more than the chi
    distribution of 16 runs allows.
    """
    system = llama()
    case = case_of(system, CHAIN, 16, input_len=512, output_len=128)
    results = [run(system, case, seed) for seed in range(16)]
    spread = float(np.std([r.output_tps for r in results], ddof=1))
    claimed = float(np.mean([r.output_tps_se for r in results]))
    assert 0.5 < claimed / spread < 3.0


@settings(max_examples=25, deadline=None)
@given(
    setting=st.sampled_from([NONE, PLAIN, CHAIN, CHAIN_V1]),
    mixed=st.booleans(),
    clients=st.integers(1, 24),
    cap=st.integers(1, 16),
    input_len=st.integers(0, 3000),
    output_len=st.integers(1, 60),
    cv=st.sampled_from([0.0, 1.0]),
    kv_tokens=st.sampled_from([4000, 1_000_000]),
    seed=st.integers(0, 99),
)
def test_nothing_is_lost_and_nothing_overflows(
    setting: SpecSetting,
    mixed: bool,
    clients: int,
    cap: int,
    input_len: int,
    output_len: int,
    cv: float,
    kv_tokens: int,
    seed: int,
) -> None:
    make = llama if mixed else llama_sglang
    system = make(kv_tokens=kv_tokens, chunked_prefill_size=2048)
    load = Load(concurrency=clients, num_requests=30)
    case = case_of(system, setting, clients, input_len, output_len, cv, cap=cap, load=load)
    result = run(system, case, seed)
    requests, rounds = result.requests, result.rounds
    assert (requests["tokens"] == requests["output_len"]).all()
    delivered = rounds["tokens"].sum() + result.prefills["prompts"].sum()
    assert delivered == requests["output_len"].sum()
    order = [requests[f"{n}_s"] for n in ("arrival", "admitted", "first_token", "last_token")]
    for earlier, later in zip(order, [*order[1:], requests["finished_s"]], strict=True):
        assert (earlier <= later + 1e-12).all()
    assert rounds["running"].max(initial=0) <= cap
    held = rounds["kv_tokens"] + rounds["running"] * case.plan.reserved_tokens_per_request
    unfinished = rounds["active"] > 1  # the last one is never thrown out
    assert (held[unfinished] <= case.pool_tokens + 1).all()
    assert (np.diff(rounds["end_s"]) > 0).all()
