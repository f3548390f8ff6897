"""The closed form: identities of queueing, limits, and what binds in constructed extremes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import kimi, llama, setup_of

from specsim.acceptance import Acceptance, accept_table
from specsim.analytic import Solution, solve
from specsim.case import Case
from specsim.cost.model import CostModel, cost_parameters, cost_values
from specsim.cost.rounds import SEQUENTIAL, round_time
from specsim.parameters import KNOT, SPECULATING_KNOT, correction_priors, cost_priors
from specsim.server.system import System, assemble
from specsim.setting import SpecSetting
from specsim.simulate import simulate
from specsim.workload import Lengths, Load, Workload

# Sums and products of a dozen doubles.
ROUNDING = 1e-12

NONE = SpecSetting.none()
CHAIN = SpecSetting.of(1, 3, scheduler="overlap")
TREE = SpecSetting.of(2, 2, scheduler="sequential")
CHAT = Workload(Lengths(1024), Lengths(512, 0.5))


def case(
    system: System,
    setting: SpecSetting,
    load: Load,
    workload: Workload = CHAT,
    acceptance: Acceptance | None = None,
    cap: int | None = None,
) -> Case:
    plan = system.plan(setting, max_running_requests=cap)
    table = accept_table(acceptance or Acceptance(), plan.setting)
    return Case.of(system, plan, table, workload, load)


def closed(concurrency: int) -> Load:
    return Load("closed_loop", concurrency)


def steady(concurrency: int, context: float, window: float | None = None) -> Load:
    return Load("steady_decode", concurrency, context_len=context, window_s=window)


def opened(rate: float) -> Load:
    return Load("open_loop", request_rate=rate)


def with_engine(system: System, **changes: object) -> System:
    return assemble(replace(system.setup, engine=replace(system.setup.engine, **changes)))


def one(cost: CostModel, point: Case) -> Solution:
    return solve(cost, [point])


def in_server_s(solution: Solution, point: Case) -> float:
    """Seconds from the prompt's arrival until the scheduler lets the request go."""
    decode = (point.workload.output_len.mean - 1) * float(solution.tpot_s[0])
    lag = point.plan.finish_lag_rounds * float(solution.round_s[0])
    return float(solution.ttft_s[0]) + decode + lag


# --- closed loop


@settings(max_examples=60)
@given(
    setting=st.sampled_from([NONE, CHAIN, TREE]),
    concurrency=st.integers(1, 300),
    input_len=st.floats(1, 8000),
    output_len=st.floats(2, 4000),
    name=st.sampled_from(["sglang", "vllm"]),
)
def test_clients_are_always_somewhere(
    setting: SpecSetting, concurrency: int, input_len: float, output_len: float, name: str
) -> None:
    """Little's law: C = X (queue + prefill + decode), prefill first or mixed into decode steps."""
    if name == "vllm" and setting.topk > 1:
        setting = CHAIN  # vLLM drafts chains only
    server = llama() if name == "sglang" else with_engine(llama(), name=name, version="0.14.0")
    workload = Workload(Lengths(input_len), Lengths(output_len))
    point = case(server, setting, closed(concurrency), workload)
    solution = one(server.cost, point)
    throughput = float(solution.output_tps[0]) / output_len
    assert throughput * in_server_s(solution, point) == pytest.approx(concurrency, rel=1e-9)


@pytest.mark.parametrize("setting", [NONE, CHAIN, TREE])
def test_a_single_client_waits_for_nobody(setting: SpecSetting) -> None:
    """At C = 1 throughput is tokens over TTFT plus decode; no token of it is queueing."""
    point = case(llama(), setting, closed(1))
    solution = one(llama().cost, point)
    assert solution.batch_size == [1.0]
    assert solution.output_tps[0] == pytest.approx(512 / in_server_s(solution, point), rel=1e-9)


def test_a_cap_holds_the_batch() -> None:
    capped = [case(llama(), NONE, closed(c), cap=8) for c in (8, 80, 800)]
    solution = solve(llama().cost, capped)
    assert solution.batch_size.tolist() == [8.0, 8.0, 8.0]
    assert np.ptp(solution.output_tps) <= ROUNDING * solution.output_tps[0]
    assert solution.ttft_s[0] < solution.ttft_s[1] < solution.ttft_s[2]
    assert solution.limit[1:] == ("cap", "cap")


def test_a_pool_holds_the_batch() -> None:
    """1024 + 0.7 x 512 x 1.25 tokens a request, as admission reserves; 20 of them fit."""
    need = 1024 + 0.7 * 512 * 1.25
    server = with_engine(kimi(), kv_tokens=math.ceil(20 * need + 10))
    solution = one(server.cost, case(server, NONE, closed(500)))
    # whole requests: on average half of one's room is left over
    assert 19 <= float(solution.batch_size[0]) <= 20
    assert solution.limit == ("kv",)


def test_a_finite_run_drains() -> None:
    """Requests that differ end one by one: slots stay empty, the less so the longer the run."""
    loads = [replace(closed(32), num_requests=n) for n in (64, 640, 64_000)]
    points = [case(llama(), CHAIN, load) for load in (*loads, closed(32))]
    tps = solve(llama().cost, points).output_tps
    assert np.all(np.diff(tps[:3]) > 0)
    # half a residence in a thousand, and the first burst of prompts
    assert tps[2] == pytest.approx(tps[3], rel=3e-3)


@pytest.mark.parametrize("setting", [NONE, CHAIN], ids=["none", "chain"])
@pytest.mark.parametrize("clients", [1, 8, 24])
@pytest.mark.parametrize("more", [(1, 0), (1, 1), (2, 0), (10, 0)], ids=str)
def test_a_finite_run_agrees_with_the_simulator(
    setting: SpecSetting, clients: int, more: tuple[int, int]
) -> None:
    """DRAIN (`FiniteRun`) against a run played round by round.

    Answers of one length: what a few requests of the chain's differ in is what they accept, which
    four runs average to about 1.5 %.
    """
    load = replace(closed(clients), num_requests=more[0] * clients + more[1])
    point = case(llama(), setting, load, replace(CHAT, output_len=Lengths(512)))
    solution = one(llama().cost, point)
    runs = [
        simulate(llama().cost, point, rng=np.random.default_rng(seed), record_rounds=False)
        for seed in range(4)
    ]
    rel = 0.04 if setting.speculates else 0.005
    assert solution.output_tps[0] == pytest.approx(np.mean([r.output_tps for r in runs]), rel=rel)
    assert solution.tpot_s[0] == pytest.approx(np.mean([r.tpot_s for r in runs]), rel=0.04)


# --- open loop


@settings(max_examples=20)
@given(rate=st.floats(0.05, 5), setting=st.sampled_from([NONE, CHAIN, TREE]))
def test_open_loop_obeys_littles_law(rate: float, setting: SpecSetting) -> None:
    """B = rate x time in the batch, which is all but the wait for the running step."""
    point = case(llama(), setting, opened(rate))
    solution = one(llama().cost, point)
    if solution.saturated[0]:
        return
    inside = in_server_s(solution, point)
    assert solution.output_tps[0] == pytest.approx(512 * rate, rel=1e-9)
    assert rate * (inside - 0.2) < solution.batch_size[0] < rate * inside * 1.01
    assert solution.limit == ("client",)


@pytest.mark.parametrize("setting", [NONE, CHAIN, TREE])
def test_a_rare_request_is_alone(setting: SpecSetting) -> None:
    """TPOT and TTFT of one client, who never waits either (TPOT was -235 ms once)."""
    load = opened(1e-4)
    lone, rare = (one(llama().cost, case(llama(), setting, x)) for x in (closed(1), load))
    assert rare.tpot_s[0] == pytest.approx(lone.tpot_s[0], rel=2e-3)
    assert rare.ttft_s[0] == pytest.approx(lone.ttft_s[0], rel=2e-2)


def test_an_overrun_open_loop_is_a_full_closed_one() -> None:
    points = [case(llama(), CHAIN, load) for load in (opened(1e4), closed(100_000))]
    solution = solve(llama().cost, points)
    assert solution.saturated.tolist() == [True, False]
    for name in ("output_tps", "batch_size", "tpot_s"):
        overrun, full = getattr(solution, name)
        assert overrun == pytest.approx(full, rel=1e-12)
    assert solution.limit[0] == solution.limit[1]


def test_throughput_and_latency_do_not_jump_at_the_capacity() -> None:
    """A fit passes it: nothing that it compares is infinite, nan, or leaps."""
    full = one(llama().cost, case(llama(), CHAIN, closed(100_000)))
    capacity = float(full.output_tps[0]) / 512
    rates = [0.9999 * capacity, 1.0001 * capacity]
    found = solve(llama().cost, [case(llama(), CHAIN, opened(rate)) for rate in rates])
    assert found.saturated.tolist() == [False, True]
    for name in ("output_tps", "batch_size", "tpot_s", "ttft_s"):
        below, above = getattr(found, name)
        assert np.isfinite(above)
        assert above == pytest.approx(below, rel=0.03)


def test_a_run_of_open_arrivals_takes_as_long_as_they_come_and_are_served() -> None:
    """Few in 100 s are served in little more; at once, as 100 clients of one request."""
    points = [case(llama(), CHAIN, replace(opened(rate), num_requests=100)) for rate in (1, 1e6)]
    points.append(case(llama(), CHAIN, replace(closed(100), num_requests=100)))
    slow, fast, together = solve(llama().cost, points).output_tps
    run = simulate(llama().cost, points[0], rng=np.random.default_rng(2))
    assert len(run.requests) == 100
    assert slow == pytest.approx(run.output_tps, rel=0.3)  # three standard errors of 1 / sqrt(100)
    assert fast == pytest.approx(together, rel=1e-3)


# --- steady decode


@pytest.mark.parametrize("setting", [NONE, CHAIN, TREE])
def test_steady_decode_is_rounds_and_nothing_else(setting: SpecSetting) -> None:
    solution = one(kimi().cost, case(kimi(), setting, steady(16, 4096)))
    round_s, accepted = float(solution.round_s[0]), float(solution.accept_length[0])
    assert solution.output_tps[0] == pytest.approx(16 * accepted / round_s, rel=ROUNDING)
    assert solution.tpot_s[0] == pytest.approx(round_s / accepted, rel=ROUNDING)
    assert math.isnan(solution.ttft_s[0])


def test_a_longer_window_has_longer_contexts() -> None:
    points = [case(kimi(), NONE, steady(16, 4096, window)) for window in (None, 10, 100)]
    short, middle, long = solve(kimi().cost, points).round_s
    assert short < middle < long
    # the middle of the window: 16 slots gained about 10 s / 30 ms / 2 tokens each
    grown = one(kimi().cost, case(kimi(), NONE, steady(16, 4096 + 5 / float(middle))))
    assert middle == pytest.approx(float(grown.round_s[0]), rel=1e-6)


def test_no_speculation_is_the_plain_step() -> None:
    """Speculation off is the baseline exactly: one target forward, whatever the drafter costs."""
    solution = one(kimi().cost, case(kimi(), NONE.with_scheduler("sequential"), steady(16, 4096)))
    step = round_time(kimi().cost, 16.0, 1.0, 16 * 4096.0, timeline=SEQUENTIAL).round_s
    assert solution.round_s[0] == pytest.approx(float(step), rel=ROUNDING)
    assert solution.output_tps[0] == pytest.approx(16 / float(step), rel=ROUNDING)
    dear = kimi().with_parameters(cost_values(draft=100.0, round_overhead=100.0))
    assert one(dear.cost, case(dear, NONE, closed(16))).output_tps == pytest.approx(
        float(one(kimi().cost, case(kimi(), NONE, closed(16))).output_tps[0]), rel=ROUNDING
    )


@pytest.mark.parametrize("setting", [CHAIN, TREE])
@pytest.mark.parametrize(("alpha", "accepted"), [(0.0, 1), (1.0, None)])
def test_limits_of_acceptance(setting: SpecSetting, alpha: float, accepted: int | None) -> None:
    """A useless drafter: a token per round. A perfect one: min(S, n - 1) + 1."""
    most = min(setting.num_steps, setting.num_draft_tokens - 1) + 1
    acceptance = Acceptance(accept_prob=(alpha,), decay=1.0)
    point = case(kimi(), setting, steady(4, 1000), acceptance=acceptance)
    solution = one(kimi().cost, point)
    tokens = most if accepted is None else accepted
    expected = 4 * tokens / float(solution.round_s[0])
    assert solution.output_tps[0] == pytest.approx(expected, rel=ROUNDING)


# --- many at once


def mixed_bag() -> list[Case]:
    loads: Sequence[Load] = [
        closed(1),
        closed(30),
        closed(250),
        replace(closed(30), num_requests=100),
        opened(0.5),
        steady(16, 4096),
        steady(16, 4096, 30.0),
    ]
    short = Workload(Lengths(128), Lengths(16), 64)
    return [
        case(kimi(), setting, load, workload)
        for setting in (NONE, CHAIN, TREE)
        for load in loads
        for workload in (CHAT, short)
    ]


def test_all_at_once_is_one_by_one() -> None:
    """Cases do not see each other; bisection and window iterations run alike for all."""
    cases = mixed_bag()
    together = solve(kimi().cost, cases)
    for i, point in enumerate(cases):
        alone = one(kimi().cost, point)
        assert alone.limit[0] == together.limit[i]
        for name in ("output_tps", "batch_size", "round_s", "tpot_s", "ttft_s"):
            expected = float(getattr(alone, name)[0])
            got = float(getattr(together, name)[i])
            assert got == pytest.approx(expected, rel=1e-9, nan_ok=True), (i, name)


@pytest.mark.parametrize("corrected", [False, True])
def test_stacked_parameters_are_one_set_after_the_other(corrected: bool) -> None:
    """What derivatives are taken with: every field differs between the sets."""
    parameters = cost_priors(kimi().facts)
    if corrected:
        parameters += correction_priors({KNOT: 0.1, SPECULATING_KNOT: 0.2})
    sets = np.random.default_rng(1).normal(0.0, 0.3, (3, len(parameters)))
    cases = mixed_bag()
    stacked = kimi().cost.stacked(parameters, sets, len(cases))
    flat = solve(stacked, cases * len(sets), with_limit=False)
    for k, row in enumerate(sets):
        server = kimi().with_parameters(cost_parameters(parameters, row))
        alone = solve(server.cost, cases, with_limit=False)
        part = flat.output_tps[k * len(cases) : (k + 1) * len(cases)]
        assert part == pytest.approx(alone.output_tps, rel=1e-9)


def test_the_limit_is_worked_out_only_if_asked() -> None:
    cases = mixed_bag()
    plain, limited = solve(kimi().cost, cases, with_limit=False), solve(kimi().cost, cases)
    assert plain.limit == ()
    assert plain.output_tps.tolist() == limited.output_tps.tolist()


# --- what binds


@pytest.mark.parametrize(
    ("limit", "changes", "setting", "load", "workload"),
    [
        ("verify", {}, NONE, closed(1), CHAT),
        ("verify", {"attention": 100.0}, CHAIN, steady(16, 10_000), CHAT),
        ("draft", {"draft": 100.0}, CHAIN, closed(4), CHAT),
        ("draft", {"round_overhead": 100.0}, TREE, closed(4), CHAT),
        ("allreduce", {"allreduce_latency": 50.0}, NONE, closed(4), CHAT),
        ("host", {"host": 1000.0}, NONE, closed(4), CHAT),
        ("prefill", {}, NONE, closed(4), Workload(Lengths(32_000), Lengths(8))),
    ],
)
def test_what_binds_in_an_extreme(
    limit: str, changes: dict[str, float], setting: SpecSetting, load: Load, workload: Workload
) -> None:
    server = kimi().with_parameters(cost_values(**changes))
    assert one(server.cost, case(server, setting, load, workload)).limit == (limit,)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [({}, NONE), ({"draft": 100.0}, CHAIN), ({"allreduce_latency": 50.0}, NONE)],
)
def test_halving_what_binds_gains_most(changes: dict[str, float], setting: SpecSetting) -> None:
    """The label against a real halving of the cost parameters, at one client."""
    halves = {
        "verify": {"target_fixed": 0.5, "bandwidth": 2.0, "compute": 2.0},
        "draft": {"draft": 0.5, "round_overhead": 0.5},
        "allreduce": {"allreduce_latency": 0.5, "allreduce_bandwidth": 2.0},
        "host": {"host": 0.5},
    }

    def tps(extra: dict[str, float]) -> float:
        values = {k: changes.get(k, 1.0) * extra.get(k, 1.0) for k in {*changes, *extra}}
        server = kimi().with_parameters(cost_values(**values))
        return float(one(server.cost, case(server, setting, closed(1))).output_tps[0])

    server = kimi().with_parameters(cost_values(**changes))
    label = one(server.cost, case(server, setting, closed(1))).limit[0]
    assert label == max(halves, key=lambda name: tps(halves[name]))


@pytest.mark.parametrize("clients", [16, 64, 200])
@pytest.mark.parametrize("setting", [NONE, CHAIN], ids=["none", "chain"])
def test_prompts_that_fill_every_step_queue(clients: int, setting: SpecSetting) -> None:
    """(BUDGET): no more decode than D, and both solvers agree on what the others wait.

    Tolerances: 2 % of throughput and 5 % of times; the run is of three waves of clients.
    """
    own = setup_of("llama-3.1-8b", "h100-sxm", draft="eagle3", name="vllm", version="0.24.0")
    system = with_engine(assemble(own), chunked_prefill_size=512)
    workload = Workload(Lengths(2000), Lengths(100))
    plan = system.plan(setting, what_if=True)
    point = Case.of(
        system, plan, accept_table(Acceptance(), plan.setting), workload, closed(clients)
    )
    found = one(system.cost, point)
    run = simulate(system.cost, point, rng=np.random.default_rng(3), requests=3 * clients)
    assert found.output_tps[0] == pytest.approx(run.output_tps, rel=0.02)
    assert found.tpot_s[0] == pytest.approx(run.tpot_s, rel=0.05)
    rounds = point.table.mean_rounds(99.0) + plan.finish_lag_rounds
    bound = 512 / (2000 / rounds + plan.verified_per_request)
    assert point.decoding == int(bound)
    if clients > 2 * bound:  # well beyond, nearly all wait
        assert found.ttft_s[0] == pytest.approx(run.ttft_s, rel=0.05)
        assert run.batch_size < bound + 2  # with the prompt that is computed
