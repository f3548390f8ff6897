"""What must hold for any server and any question: one is changed, the answer may move one way only.

``SPECSIM_FUZZ=N`` tries N examples of each property instead of `EXAMPLES`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation_cases import kimi, llama, llama_sglang
from test_cost_cpu import server as cpu_server

from specsim.acceptance import Acceptance, accept_table
from specsim.analytic import Solution, solve
from specsim.case import Case
from specsim.cost.model import CostModel
from specsim.server.system import System
from specsim.setting import SpecSetting
from specsim.simulate import simulate
from specsim.workload import Lengths, Load, Workload

EXAMPLES = int(os.environ.get("SPECSIM_FUZZ", "8"))
any_server = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
few = settings(any_server, max_examples=max(1, EXAMPLES // 4))

ROUNDING = 1e-9  # of sums in another order

TYPICAL = Acceptance()

SLOWER = ("target_fixed", "attention", "prefill", "host", "round_overhead", "draft", "per_request")
"""Cost parameters that multiply a time."""

BETTER = {
    "bandwidth": ("mem_bandwidth", "read_bandwidth"),
    "flops": ("flops_bf16", "flops_fp8", "flops_fp4", "flops_int8", "gemm_flops_bf16"),
}
"""What a GPU may have more of."""


@cache
def server(name: str) -> System:
    """Every engine; one GPU, eight over PCIe, a CPU."""
    return {
        "sglang": llama_sglang,
        "sglang run-ahead": lambda: llama_sglang("0.5.18"),
        "kimi": kimi,
        "vllm": llama,
        "tensorrt-llm": lambda: llama(name="tensorrt-llm", version="main"),
        "llama.cpp": cpu_server,
    }[name]()


names = st.sampled_from(["sglang", "sglang run-ahead", "kimi", "vllm", "tensorrt-llm", "llama.cpp"])
chains = st.integers(0, 7).map(lambda s: SpecSetting.of(1, s) if s else SpecSetting.none())
trees = st.tuples(st.integers(2, 4), st.integers(1, 4)).map(lambda t: SpecSetting.of(*t))
prompts = st.sampled_from([0.0, 1.0, 100.0, 1000.0, 20_000.0])
workloads = st.builds(
    lambda prompt, hit, answer, cv: Workload(
        Lengths(prompt, cv / 2), Lengths(answer, cv), prompt * hit
    ),
    prompts,
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([1.0, 2.0, 7.0, 64.0, 500.0]),
    st.sampled_from([0.0, 0.5, 2.0]),
)
loads = st.one_of(
    st.integers(1, 300).map(lambda c: Load(concurrency=c)),
    st.floats(-2, 3).map(lambda x: Load("open_loop", request_rate=10**x)),
    st.integers(1, 64).map(lambda c: Load("steady_decode", c, context_len=2000.0)),
)
acceptances = st.builds(
    lambda alpha, spread: Acceptance(accept_prob=(alpha,), request_spread=spread),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)


def case_of(
    name: str,
    setting: SpecSetting,
    workload: Workload,
    load: Load,
    acceptance: Acceptance = TYPICAL,
) -> Case:
    system = server(name)
    plan = system.plan(setting, what_if=True)
    return Case.of(system, plan, accept_table(acceptance, plan.setting), workload, load)


def priced(cost: CostModel, **parameters: float) -> CostModel:
    return replace(cost, parameters={**cost.parameters, **parameters})


def one(cost: CostModel, case: Case) -> Solution:
    return solve(cost, [case], with_limit=False)


def not_slower(better: Solution, worse: Solution) -> None:
    """Compare throughput and, within what open loops are approximated to, time per token."""
    assert better.output_tps[0] >= worse.output_tps[0] * (1 - ROUNDING)
    if better.saturated[0] == worse.saturated[0]:
        assert better.tpot_s[0] <= worse.tpot_s[0] * 1.01


def improved(cost: CostModel, what: str, by: float) -> CostModel:
    """The same server with a better GPU, or with a parameter of `SLOWER` as much smaller."""
    if what in SLOWER:
        return priced(cost, **{what: float(cost.parameters[what]) / by})
    gpu = cost.gpu
    every = [name for name in BETTER[what] if getattr(gpu, name)]
    return replace(cost, gpu=replace(gpu, **{name: by * getattr(gpu, name) for name in every}))


@pytest.mark.parametrize("what", [*SLOWER, *BETTER])
@any_server
@given(
    name=names,
    setting=st.one_of(chains, trees),
    work=workloads,
    load=loads,
    by=st.floats(1, 10),
)
def test_a_better_server_is_never_slower(
    what: str, name: str, setting: SpecSetting, work: Workload, load: Load, by: float
) -> None:
    cost, case = server(name).cost, case_of(name, setting, work, load)
    not_slower(one(improved(cost, what, by), case), one(cost, case))


@any_server
@given(name=names, setting=chains, work=workloads, load=loads, low=acceptances, by=st.floats(0, 3))
def test_more_acceptance_is_never_slower(
    name: str, setting: SpecSetting, work: Workload, load: Load, low: Acceptance, by: float
) -> None:
    """But for the extend, which computes what is accepted: below a hundredth of the round."""
    better = replace(low, level=by)
    cost = server(name).cost
    worse, found = (one(cost, case_of(name, setting, work, load, a)) for a in (low, better))
    assert found.output_tps[0] >= 0.99 * worse.output_tps[0]
    assert found.accept_length[0] >= worse.accept_length[0] * (1 - ROUNDING)


@any_server
@given(topk=st.integers(2, 6), steps=st.integers(1, 5), acceptance=acceptances)
def test_siblings_that_are_never_right_leave_the_chain(
    topk: int, steps: int, acceptance: Acceptance
) -> None:
    """A whole tree whose second choices have no mass accepts what its first choices do."""
    only_first = replace(acceptance, rank_scale=0.0)
    tree = accept_table(only_first, SpecSetting.of(topk, steps))
    chain = accept_table(only_first, SpecSetting.of(1, steps))
    assert tree.accept_length == pytest.approx(
        chain.accept_length, rel=0.01
    )  # lattices of contexts


@any_server
@given(name=names, work=workloads, clients=st.integers(1, 300))
def test_no_drafts_of_a_free_drafter_are_no_speculation(
    name: str, work: Workload, clients: int
) -> None:
    """The drafter still takes memory, and its plan may cap the batch: compared below the caps."""
    cost = priced(server(name).cost, draft=1e-9, round_overhead=1e-9, drafting_per_request=1e-9)
    plain, idle = (
        case_of(name, setting, work, Load(concurrency=clients))
        for setting in (
            SpecSetting.none("sequential"),
            SpecSetting("EAGLE3", 1, 0, 1, "sequential"),
        )
    )
    least = min(plain.fitting, idle.fitting)
    load = Load(concurrency=min(clients, max(1, least - 1)))
    loose = [replace(case.at(load), pool_tokens=1e12) for case in (plain, idle)]
    found = solve(cost, loose, with_limit=False)
    if loose[0].plan.graph_batch_sizes == loose[1].plan.graph_batch_sizes:
        assert found.round_s[1] == pytest.approx(found.round_s[0], rel=1e-6)


@any_server
@given(
    name=names,
    some=st.lists(st.tuples(chains, workloads, loads), min_size=2, max_size=6),
    data=st.data(),
)
def test_order_and_company_do_not_matter(
    name: str, some: list[tuple[SpecSetting, Workload, Load]], data: st.DataObject
) -> None:
    given_cases = [case_of(name, *parts) for parts in some]
    order = data.draw(st.permutations(range(len(some))))
    cost = server(name).cost
    there = solve(cost, given_cases, with_limit=False)
    shuffled = solve(cost, [given_cases[i] for i in (*order, *order)], with_limit=False)
    for field in ("output_tps", "batch_size", "tpot_s", "ttft_s"):
        expected = getattr(there, field)[[*order, *order]]
        np.testing.assert_allclose(getattr(shuffled, field), expected, rtol=ROUNDING)


@any_server
@given(name=names, setting=st.one_of(chains, trees), work=workloads, load=loads)
def test_every_number_is_finite_and_positive(
    name: str, setting: SpecSetting, work: Workload, load: Load
) -> None:
    found = one(server(name).cost, case_of(name, setting, work, load))
    values = [found.output_tps, found.batch_size, found.round_s, found.tpot_s, found.itl_s]
    if load.kind != "steady_decode":
        values.append(found.ttft_s)
    assert all(0 < float(v[0]) < np.inf for v in values)


@any_server
@given(name=names, setting=chains, work=workloads, rate=st.floats(0.01, 100), more=st.floats(1, 3))
def test_more_arrivals_never_run_less(
    name: str, setting: SpecSetting, work: Workload, rate: float, more: float
) -> None:
    rates = (rate, more * rate)
    pair = [case_of(name, setting, work, Load("open_loop", request_rate=r)) for r in rates]
    found = solve(server(name).cost, pair, with_limit=False)
    assert found.output_tps[1] >= found.output_tps[0] * (1 - ROUNDING)
    assert found.batch_size[1] >= found.batch_size[0] * 0.98
    assert bool(found.saturated[1]) >= bool(found.saturated[0])


@few
@given(
    name=names,
    setting=st.one_of(chains, trees),
    prompt=st.sampled_from([1.0, 100.0, 2000.0]),
    answer=st.sampled_from([1.0, 3.0, 50.0]),
    clients=st.integers(1, 64),
)
def test_the_solvers_agree(
    name: str, setting: SpecSetting, prompt: float, answer: float, clients: int
) -> None:
    work = Workload(Lengths(prompt), Lengths(answer, 0.3))
    case = case_of(name, setting, work, Load(concurrency=clients))
    cost = server(name).cost
    run = simulate(cost, case, rng=np.random.default_rng(1), requests=4 * clients + 200)
    closed = one(cost, case)
    error = 0.08 * run.output_tps + 4 * np.nan_to_num(run.output_tps_se)
    assert closed.output_tps[0] == pytest.approx(run.output_tps, abs=error)
