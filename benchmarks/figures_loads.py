"""Whether the closed form holds under any load and at the edges: against long simulations.

    python benchmarks/figures_loads.py [OPEN EDGES]     # systems of each kind, 100 and 301

Servers, engines, parameters, settings, lengths and loads are drawn (`random_systems` has the
servers). Open loops run at 2 % to 95 % of the capacity and are simulated for `ARRIVALS`; standard
errors are of 20 batch means. Edges are one or a few output tokens, cached, empty and huge prompts,
a cap of one, pools smaller than a prompt, and answers with a coefficient of variation of 2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from random_systems import FAR, SETUPS, moved, prior_profile

from specsim.acceptance import accept_table
from specsim.analytic import solve
from specsim.case import Case
from specsim.cost.model import CostModel
from specsim.metrics import tpot_s, ttft_s
from specsim.server import setup_from_mapping
from specsim.setting import SpecSetting
from specsim.simulate import SimulationResult, simulate
from specsim.workload import Lengths, Load, Workload

ENGINES = (("sglang", "0.5.9"), ("sglang", "0.5.18"), ("vllm", "0.20.2"), ("tensorrt-llm", "main"))
ARRIVALS = 10_000
BATCHES = 20
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """A random server and what it is asked."""

    cost: CostModel
    case: Case


def draw(rng: np.random.Generator, workload: Workload, load: Load, **engine: Any) -> Drawn:
    """Draw everything but the workload, the load and the stated `engine` settings."""
    model, gpu, tp, link, draft, steps, *allreduce = SETUPS[rng.integers(len(SETUPS))]
    name, version = ENGINES[rng.integers(len(ENGINES))]
    algorithm = "MTP" if draft == "mtp" else "EAGLE3"
    attention = {"attention_backend": "triton"} if name == "sglang" else {}
    setup = setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {
                "gpu": gpu,
                "gpu_count": tp,
                "link": link,
                "allreduce": allreduce[0] if allreduce else "custom",
            },
            "model": {"id": model},
            "draft": {"id": draft},
            "engine": {"name": name, "version": version, "tp": tp} | attention | engine,
            "current": {
                "algorithm": algorithm,
                "topk": 1,
                "num_steps": steps,
                "num_draft_tokens": steps + 1,
            },
        }
    )
    prior = prior_profile(setup, "drawn", 0.0)
    normal = rng.standard_normal(len(prior.parameters))
    profile = moved(prior, np.clip(normal, -FAR, FAR))
    settings = (
        SpecSetting.none(),
        SpecSetting.of(1, int(rng.integers(1, 8)), algorithm=prior.default_algorithm),
        SpecSetting.of(4, 2, int(rng.integers(4, 17)), algorithm=prior.default_algorithm),
    )
    system = profile.system()
    plan = system.plan(settings[rng.integers(3)], what_if=True)
    table = accept_table(profile.acceptance(), plan.setting)
    return Drawn(system.cost, Case.of(system, plan, table, workload, load))


def open_loop(seed: int) -> tuple[Drawn, float]:
    """Draw a server under arrivals; its share of the capacity beside it."""
    rng = np.random.default_rng([1, seed])
    cv = float(rng.choice([0.0, 0.3, 0.6, 1.0]))
    prompt, answer = (
        float(round(np.exp(rng.uniform(*np.log(ends))))) for ends in ((16, 8192), (16, 1024))
    )
    cached = float(round(prompt * rng.choice([0.0, 0.0, 0.5, 0.9])))
    workload = Workload(Lengths(prompt, cv / 2), Lengths(answer, cv), cached)
    cap = int(rng.choice([4, 8, 16, 48, 128, 256]))
    drawn = draw(rng, workload, Load(), max_running_requests=cap)
    full = solve(drawn.cost, [drawn.case.at(Load("closed_loop", 10**6))], with_limit=False)
    share = float(rng.uniform(0.02, 0.95))
    rate = share * float(full.output_tps[0]) / answer
    return Drawn(drawn.cost, drawn.case.at(Load("open_loop", request_rate=rate))), share


def edge(seed: int) -> Drawn:
    """Draw a server at an edge; seeds go through the kinds of edges in turn."""
    rng = np.random.default_rng([2, seed])
    prompt = float(rng.choice([0, 1, 16, 100, 1000, 8000]))
    answer, cv = float(rng.choice([1, 2, 3, 5, 16, 100])), float(rng.choice([0, 0, 0.5, 1, 2]))
    cached = prompt * float(rng.choice([0.0, 0.5, 1.0]))
    engine: dict[str, Any] = {"max_running_requests": int(rng.choice([1, 2, 8, 64, 256]))}
    match seed % 7:
        case 0:
            answer = 1.0
        case 1:
            cached = prompt
        case 2:
            engine["max_running_requests"] = 1
        case 3:
            engine["kv_tokens"] = int(rng.choice([500, 2000, 10_000]))
        case 4:
            prompt, cached = 50_000.0, 0.0
        case 5:
            prompt, cached = 4000.0, 0.0
            engine["kv_tokens"] = 2500
        case 6:
            cv = 2.0
    workload = Workload(Lengths(prompt, cv / 2), Lengths(answer, cv), cached)
    clients = int(rng.choice([1, 2, 3, 8, 30, 100]))
    return draw(rng, workload, Load(concurrency=clients), **engine)


def standard_error(values: Values) -> float:
    """By batch means, of the mean of what is not NaN."""
    means = [np.nanmean(part) for part in np.array_split(values, BATCHES)]
    return float(np.std(means, ddof=1) / BATCHES**0.5)


def open_errors(count: int) -> Iterator[tuple[float, float, float, float, float]]:
    """Relative errors of throughput, TPOT and TTFT, and the standard errors of the last two.

    At the rate of the arrivals that the simulation happened to see.
    """
    for seed in range(count):
        drawn, _ = open_loop(seed)
        rng = np.random.default_rng(seed)
        run = simulate(drawn.cost, drawn.case, rng=rng, requests=ARRIVALS, record_rounds=False)
        arrived = run.measured["arrival_s"]
        rate = float((len(arrived) - 1) / (arrived[-1] - arrived[0]))
        case = drawn.case.at(Load("open_loop", request_rate=rate))
        closed = solve(drawn.cost, [case], with_limit=False)
        yield (
            float(closed.output_tps[0]) / run.output_tps - 1.0,
            float(closed.tpot_s[0]) / run.tpot_s - 1.0,
            float(closed.ttft_s[0]) / run.ttft_s - 1.0,
            standard_error(tpot_s(run.measured)) / run.tpot_s,
            standard_error(ttft_s(run.measured)) / run.ttft_s,
        )


def print_open(count: int) -> None:
    """Compare open loops."""
    output, tpot, ttft, tpot_se, ttft_se = np.array(list(open_errors(count))).T
    print(f"{count} open loops at 2 % to 95 % of the capacity, {ARRIVALS} arrivals each")
    for name, error, se, bar in (
        ("throughput", output, 0.0 * output, 0.02),
        ("TPOT", tpot, tpot_se, 0.05),
        ("TTFT", ttft, ttft_se, 0.15),
    ):
        size = np.abs(error)
        within = np.mean(size <= np.maximum(bar, 2.0 * se))
        print(
            f"FIGURE {name}: median {np.median(size):.1%}, 90 % below {np.quantile(size, 0.9):.1%},"
            f" worst {size.max():.1%}; {within:.0%} within {bar:.0%} or two standard errors"
        )


def simulated_edge(drawn: Drawn, seed: int) -> SimulationResult:
    """Simulate until lengths have been drawn often enough."""
    varied = drawn.case.workload.output_len.cv > 0
    requests = max(2000 if varied else 300, 8 * drawn.case.load.concurrency)
    rng = np.random.default_rng(seed)
    return simulate(drawn.cost, drawn.case, rng=rng, requests=requests, record_rounds=False)


def print_edges(count: int) -> None:
    """Compare edges of the workload in closed loop."""
    errors, not_finite = [], 0
    for seed in range(count):
        drawn = edge(seed)
        closed, run = solve(drawn.cost, [drawn.case]), simulated_edge(drawn, seed)
        values = (closed.output_tps, closed.tpot_s, closed.ttft_s, closed.round_s, closed.itl_s)
        not_finite += not np.isfinite([*np.ravel(values), run.output_tps, run.ttft_s]).all()
        errors.append(float(closed.output_tps[0]) / run.output_tps - 1.0)
    size = np.abs(errors)
    print(f"{count} systems at the edges of the workload, closed loop")
    print(
        f"FIGURE throughput: median {np.median(size):.1%}, 90 % below {np.quantile(size, 0.9):.1%}"
        f" (target 2%), worst {size.max():.1%} (target 8%); not finite: {not_finite}"
    )


def main(opened: str = "100", edges: str = "301") -> None:
    """Print all of it."""
    print_open(int(opened))
    print_edges(int(edges))


if __name__ == "__main__":
    main(*sys.argv[1:])
