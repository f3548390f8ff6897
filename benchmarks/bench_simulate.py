"""Speed of the simulator, in simulated output tokens per second.

    python -m pytest benchmarks/bench_simulate.py -s

512 requests of 512 + 512 tokens at C = 64 on Llama-3.1-8B (one H100, SGLang): as a run from start
to end (all start together and, without speculation, stay together: few changes of the batch), and
in steady state, where every request's end changes it. The curve is what `predict` simulates.
Timed in CPU seconds, the least of several: one thread is busy, and neighbours do not count.
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from specsim.acceptance import Acceptance, accept_table
from specsim.case import Case
from specsim.server import setup_from_mapping
from specsim.server.system import System, assemble
from specsim.setting import SpecSetting
from specsim.simulate import SimulationResult, simulate
from specsim.workload import Lengths, Load, Workload

NONE = SpecSetting.none()
CHAIN = SpecSetting.of(1, 3, scheduler="overlap")
CURVE = (
    NONE,
    SpecSetting.of(1, 2, scheduler="overlap"),
    SpecSetting.of(2, 2, scheduler="sequential"),
    SpecSetting.of(4, 2, 16, scheduler="sequential"),
)
CLIENTS = (1, 2, 5, 10, 20, 30, 50, 70, 100, 150, 200, 250)
REQUESTS = 512
RUN = Load(concurrency=64, num_requests=REQUESTS)
STEADY = Load(concurrency=64)

pytestmark = pytest.mark.benchmark(timer=time.process_time)


@pytest.fixture(scope="module")
def system() -> System:
    return assemble(
        setup_from_mapping(
            {
                "schema": "specsim.setup/1",
                "hardware": {"gpu": "h100-sxm"},
                "model": {"id": "llama-3.1-8b"},
                "draft": {"id": "eagle3"},
                "engine": {
                    "name": "sglang",
                    "version": "0.5.9",
                    "attention_backend": "triton",
                    "max_running_requests": 256,
                },
            }
        )
    )


def case_of(
    system: System, setting: SpecSetting, load: Load, input_len: float, output: Lengths
) -> Case:
    plan = system.plan(setting)
    table = accept_table(Acceptance(), plan.setting)
    return Case.of(system, plan, table, Workload(Lengths(input_len), output), load)


@pytest.mark.parametrize(
    ("setting", "cv", "bar"), [(NONE, 0.0, 3e6), (CHAIN, 0.5, 1.5e6)], ids=["none", "speculating"]
)
@pytest.mark.parametrize("load", [RUN, STEADY], ids=["run", "steady"])
def test_tokens_per_second(
    benchmark: BenchmarkFixture,
    system: System,
    setting: SpecSetting,
    cv: float,
    bar: float,
    load: Load,
) -> None:
    case = case_of(system, setting, load, 512, Lengths(512, cv))
    options = {} if load is RUN else {"requests": REQUESTS, "warmup": 0}

    def run() -> SimulationResult:
        return simulate(system.cost, case, rng=np.random.default_rng(0), **options)

    result = benchmark.pedantic(run, rounds=9, warmup_rounds=2)
    tokens = int(result.requests["tokens"].sum())
    rate = tokens / benchmark.stats.stats.min
    benchmark.extra_info["tokens_per_s"] = rate
    print(f"\n{tokens} tokens, {len(result.rounds)} rounds: {rate / 1e6:.1f} million tokens/s")
    assert rate >= bar


def test_curve(benchmark: BenchmarkFixture, system: System) -> None:
    """Four settings at twelve loads, 1024 + 512 tokens, each to 0.5 % of standard error."""
    output = Lengths(512)
    cases = [case_of(system, s, Load(concurrency=c), 1024, output) for s in CURVE for c in CLIENTS]

    def run() -> float:
        results = [
            simulate(system.cost, case, rng=np.random.default_rng(0), record_rounds=False)
            for case in cases
        ]
        return max(r.output_tps_se / r.output_tps for r in results)

    worst = benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    benchmark.extra_info["worst_relative_se"] = worst
    print(f"\nlargest standard error {worst:.2%}, {benchmark.stats.stats.min:.2f} s")
    assert worst <= 0.005
    assert benchmark.stats.stats.min <= 1.5


@pytest.mark.parametrize("requests", [20_000, 1_000_000])
def test_memory_of_long_runs(system: System, requests: int) -> None:
    """Of the whole process, which pytest and other tests have made larger before."""
    case = case_of(system, CHAIN, STEADY, 512, Lengths(16, 0.5))
    rng = np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    simulate(system.cost, case, rng=rng, requests=requests, record_rounds=False)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"\n{requests} requests: {after / 1e3:.0f} MB, {(after - before) / 1e3:.0f} more")
    assert (after - before) * 1024 <= 120e6
