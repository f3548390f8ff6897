"""The edges of a workload: both solvers agree there, and nothing is nan, negative or infinite."""

from __future__ import annotations

import numpy as np
import pytest
from simulation_cases import CHAIN, CHAIN_V1, NONE, PLAIN, case_of, llama, llama_sglang

from specsim.acceptance import FEW_TOKENS, Acceptance, accept_table
from specsim.analytic import solve
from specsim.errors import InputError
from specsim.predict import predict
from specsim.profile import load_profile
from specsim.question import Question
from specsim.server.system import System
from specsim.setting import SpecSetting
from specsim.simulate import simulate
from specsim.workload import Lengths, Load

SERVERS = {
    "sglang": llama_sglang(),
    "vllm": llama(),
    "trtllm": llama(name="tensorrt-llm", version="main"),
}
EDGES = {  # input, cached, output, cv, clients, cap
    "one token": (100, 0, 1, 0.0, 1, 64),
    "one token, many": (100, 0, 1, 0.0, 30, 64),
    "one token, capped": (100, 0, 1, 0.0, 30, 8),
    "one token said to vary": (100, 0, 1, 2.0, 3, 2),
    "two tokens": (1000, 0, 2, 0.0, 8, 64),
    "few tokens, varied": (16, 8, 3, 1.0, 3, 2),
    "all cached": (8000, 8000, 16, 0.0, 3, 64),
    "all cached, one token": (1000, 1000, 1, 0.0, 30, 8),
    "empty": (0, 0, 16, 0.3, 8, 8),
    "empty, one token": (0, 0, 1, 0.0, 8, 8),
    "lone": (1000, 0, 5, 0.0, 1, 1),
    "huge": (50_000, 0, 3, 0.0, 3, 8),
    "wide": (100, 50, 16, 2.0, 8, 8),
}


@pytest.mark.parametrize("setting", [NONE, PLAIN, CHAIN, CHAIN_V1], ids=lambda s: s.label)
@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("system", SERVERS.values(), ids=SERVERS)
def test_the_solvers_agree_at_the_edges(
    system: System, edge: tuple[float, float, float, float, int, int], setting: SpecSetting
) -> None:
    input_len, cached, output_len, cv, clients, cap = edge
    case = case_of(system, setting, clients, input_len, output_len, cv, cached=cached, cap=cap)
    closed = solve(system.cost, [case])
    run = simulate(system.cost, case, rng=np.random.default_rng(5), requests=500)
    error = (0.06 if cv else 0.02) * run.output_tps + 4 * np.nan_to_num(run.output_tps_se)
    assert closed.output_tps[0] == pytest.approx(run.output_tps, abs=error)
    for values in (closed.output_tps, closed.tpot_s, closed.ttft_s, closed.round_s):
        assert 0 < values[0] < np.inf


@pytest.mark.parametrize("solver", ["analytic", "simulate"])
def test_a_curve_of_single_tokens_has_numbers(solver: str) -> None:
    question = Question((SpecSetting.of(1, 2),), (1, 8), input_len=0.0, output_len=1.0)
    curve = predict(
        load_profile(), question, solver="analytic" if solver == "analytic" else "simulate"
    )
    for point in curve.rows:
        for name in ("output_tps", "output_tps_low", "output_tps_high", "tpot_s", "round_time_s"):
            assert 0 < getattr(point, name) < 1e6


def test_few_tokens_are_counted_and_many_are_renewal_theory() -> None:
    """A round gives 1 or 2 tokens with 0.5 each: one round for 1, and 1.5 for 2."""
    half = Acceptance(accept_prob=(0.5,), decay=1.0, context_spread=0.0, request_spread=0.0)
    table = accept_table(half, SpecSetting.of(1, 1))
    assert [table.mean_rounds(n) for n in (0, 1, 1.5, 2)] == pytest.approx([0, 1, 1.25, 1.5])
    below, above = (table.mean_rounds(FEW_TOKENS + d) for d in (0.0, 1e-6))
    assert above == pytest.approx(below, rel=1e-5)


@pytest.mark.parametrize("mean", [1.0, 1.3, 2.0, 50.0])
@pytest.mark.parametrize("cv", [0.0, 0.5, 2.0])
def test_whole_lengths_have_the_stated_mean(mean: float, cv: float) -> None:
    from specsim.simulate.demand import drawn, stratified

    for draw in (drawn, stratified):
        found = draw(Lengths(mean, cv), np.random.default_rng(1), 40_000)
        assert found.min() >= 1
        assert found.mean() == pytest.approx(mean, rel=0.05 if cv else 0.01)


@pytest.mark.parametrize(
    "given",
    [{"request_rate": 20.0}, {"context_len": 5.0}, {"window_s": 3.0}],
    ids=lambda g: next(iter(g)),
)
def test_what_a_kind_of_load_would_ignore_is_refused(given: dict[str, float]) -> None:
    """`Load(request_rate=20)` was one client of a closed loop."""
    with pytest.raises(InputError, match="would be ignored"):
        Load(**given)  # type: ignore[arg-type]
