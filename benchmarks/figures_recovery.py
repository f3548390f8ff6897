"""Recovery of known servers from their logs: are the stated intervals honest, is the unseen met?

python benchmarks/figures_recovery.py [--systems 50] [--engine sglang] prints both figures.

A server's numbers are drawn from the priors of its setup, all at once. Two of it are simulated, one
without speculation and one with a chain, each over a ramp of closed loops; they are printed as logs
of the engine with noise, read back, and fitted. Reported are how often the stated 90 % interval of
each parameter holds the truth, and how far off the throughput of settings is that were never shown.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from specsim.acceptance import Acceptance, accept_table
from specsim.acceptance.prior import at_accept_length, default_acceptance
from specsim.analytic import solve
from specsim.calibrate.fit import FitResult, fit_profile
from specsim.calibrate.log_setup import Sources, Stated
from specsim.calibrate.logs import gather
from specsim.case import Case
from specsim.cost.model import cost_parameters
from specsim.logs import read_file
from specsim.parameters import acceptance_priors, cost_priors
from specsim.profile import Profile, moved_acceptance
from specsim.server import Setup, setup_from_mapping
from specsim.server.system import System, assemble
from specsim.setting import SpecSetting
from specsim.simulate import simulate
from specsim.uncertainty import Z90, Parameter
from specsim.workload import Lengths, Load, Workload

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import log_writers as writers

RAMP = (1, 4, 16, 48)
INPUT, OUTPUT = 900.0, 400.0
LEVEL_S = 130.0
"""Simulated seconds of each load level: a dozen windows of vLLM; iterations are many sooner."""
STEPS = 3

Writer = Callable[[Sequence[writers.Level], np.random.Generator], str]


@dataclass(frozen=True)
class Engine:
    """How one engine is run, printed and asked about."""

    name: str
    version: str
    plain: Writer
    speculating: Writer
    algorithm: str = "EAGLE3"
    ramp: tuple[int, ...] = RAMP
    level_s: float = LEVEL_S


ENGINES = {
    "sglang": Engine("sglang", "0.5.15", writers.sglang_log, writers.sglang_log),
    "vllm": Engine("vllm", "0.20.2", writers.vllm_log, writers.vllm_log),
    "tensorrt-llm": Engine(
        "tensorrt-llm", "main", writers.trtllm_log, writers.trtllm_stats, level_s=20.0
    ),
    "llama.cpp": Engine(
        "llama.cpp", "main", writers.llamacpp_log, writers.llamacpp_log, "STANDALONE", (1,)
    ),
}


@dataclass(frozen=True)
class Truth:
    """A server: its setup, and every number of it."""

    engine: Engine
    setup: Setup
    parameters: tuple[Parameter, ...]
    acceptance: Acceptance

    @property
    def coordinates(self) -> np.ndarray:
        """Coordinates of all numbers."""
        return np.array([p.coordinate for p in self.parameters])

    @property
    def system(self) -> System:
        """The server with its numbers."""
        costs = cost_parameters(self.parameters, self.coordinates)
        return assemble(self.setup).with_parameters(costs)

    @property
    def moved(self) -> Acceptance:
        """What its drafter accepts."""
        return moved_acceptance(self.acceptance, self.parameters, self.coordinates)

    def case(self, setting: SpecSetting, clients: int) -> Case:
        """A closed loop on it."""
        system = self.system
        plan = system.plan(setting, what_if=True)
        work = Workload(Lengths(INPUT, 0.3), Lengths(OUTPUT, 0.3))
        table = accept_table(self.moved, plan.setting)
        return Case.of(system, plan, table, work, Load(concurrency=clients))


@lru_cache(maxsize=8)
def setup_of(engine: Engine) -> Setup:
    """Llama-3.1-8B on one H100 with an EAGLE-3 drafter."""
    section: dict[str, object] = {"name": engine.name, "version": engine.version, "tp": 1}
    if engine.name == "sglang":
        section |= {"kv_tokens": 400_000, "max_running_requests": 64, "attention_backend": "fa3"}
    return setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {"gpu": "h100-sxm", "gpu_count": 1, "link": "none"},
            "model": {"id": "llama-3.1-8b"},
            "draft": {"id": "eagle3"},
            "engine": section,
            "workload": {"input_len": INPUT, "output_len": OUTPUT, "evidence": "measured"},
        }
    )


def truths(engine: Engine, count: int, seed: int = 1) -> list[Truth]:
    """Draw servers from the joint prior: a Latin hypercube, so that few stand for many."""
    setup = setup_of(engine)
    system = assemble(setup)
    acceptance = default_acceptance(system.engine.name, engine.algorithm)
    priors = (*cost_priors(system.facts), *acceptance_priors(("default@0",)))
    rng = np.random.default_rng(seed)
    strata = np.array([rng.permutation(count) for _ in priors])
    uniform = (strata + rng.random(strata.shape)) / count
    z = np.vectorize(NormalDist().inv_cdf)(uniform)
    return [
        Truth(
            engine,
            setup,
            tuple(replace(p, value=p.at(c)) for p, c in zip(priors, column, strict=True)),
            acceptance,
        )
        for column in z.T
    ]


def levels_of(truth: Truth, setting: SpecSetting, rng: np.random.Generator) -> list[writers.Level]:
    """Simulate a ramp of closed loops on one server."""
    levels = []
    for clients in truth.engine.ramp:
        case = truth.case(setting, clients)
        cost = truth.system.cost
        tps = float(solve(cost, [case], with_limit=False).output_tps[0])
        requests = max(2 * clients, round(truth.engine.level_s * tps / OUTPUT))
        levels.append(writers.Level(case, simulate(cost, case, rng=rng, requests=requests)))
    return levels


def read_back(truth: Truth, rng: np.random.Generator) -> Sources:
    """Print both servers as logs, and read these."""
    engine = truth.engine
    chain = SpecSetting.of(1, STEPS, algorithm=engine.algorithm)
    both = ((SpecSetting.none(), engine.plain), (chain, engine.speculating))
    entries = []
    with tempfile.TemporaryDirectory() as folder:
        for i, (setting, writer) in enumerate(both):
            path = Path(folder) / f"{i}.log"
            path.write_text(writer(levels_of(truth, setting, rng), rng), encoding="utf-8")
            entries += read_file(path)
    stated = Stated(
        model="llama-3.1-8b",
        gpu="h100-sxm",
        tp=1,
        draft="eagle3",
        engine_version=engine.version,
        algorithm=engine.algorithm,
        num_steps=STEPS,
        input_len=INPUT,
        output_len=OUTPUT,
    )
    return gather(entries, stated)


@dataclass(frozen=True)
class Recovered:
    """A server, and the profile that was fitted to its logs."""

    truth: Truth
    result: FitResult

    @property
    def profile(self) -> Profile:
        """The fitted profile."""
        return self.result.profile

    def errors(self) -> dict[str, float]:
        """How far the truth is from the middle of the stated 90 %, in half-widths over 1.64.

        Where the log gave accept probabilities by depth, the level counts from these: the true one
        is then what brings the chain to its true accept length.
        """
        found = {}
        fitted = {p.name: p for p in self.profile.parameters}
        for p in self.truth.parameters:
            q, true = fitted[p.name], p.value
            if p.name.startswith("accept_level"):
                base, chain = self.profile.acceptances[0], SpecSetting.of(1, STEPS)
                tau = accept_table(self.truth.moved, chain).accept_length
                if len(base.accept_prob) > 1:
                    true = at_accept_length(base, chain, tau).level
                true -= base.level
            if p.name == "kv_pool" and self.profile.setup.engine.kv_tokens is not None:
                true = 1.0  # the log states the pool as it is
            place = math.log if q.scale == "log" else float
            least, most = (place(x) for x in q.stated)
            found[p.name] = ((least + most) / 2 - place(true)) / ((most - least) / 2 / Z90)
        return found

    def unseen(self) -> dict[str, float]:
        """ln(predicted / simulated) throughput of settings that were not in the logs."""
        algorithm, errors = self.truth.engine.algorithm, {}
        asked = {
            "chain of 5, C=8": (SpecSetting.of(1, 5, algorithm=algorithm), 8),
            "tree 4/3/16, C=2": (SpecSetting.of(4, 3, 16, algorithm=algorithm), 2),
            "chain of 3, C=32": (SpecSetting.of(1, STEPS, algorithm=algorithm), 32),
        }
        fitted = Truth(
            self.truth.engine,
            self.profile.setup,
            self.profile.parameters,
            self.profile.acceptances[0],
        )
        for name, (setting, clients) in asked.items():
            clients = min(clients, 3) if len(self.truth.engine.ramp) == 1 else clients
            true = self.truth.case(setting, clients)
            rng = np.random.default_rng(5)
            told = simulate(self.truth.system.cost, true, rng=rng, record_rounds=False).output_tps
            case = fitted.case(setting, clients)
            said = float(solve(fitted.system.cost, [case], with_limit=False).output_tps[0])
            errors[name] = math.log(said / told)
        return errors


def recover(truth: Truth, seed: int) -> Recovered:
    """Simulate, print, read and fit one server."""
    found = read_back(truth, np.random.default_rng(seed))
    return Recovered(truth, fit_profile(found.setup, found.observations, "recovered"))


def figure(engine: Engine, systems: int) -> None:
    """Print both figures of one engine."""
    begin = time.perf_counter()
    recovered = [recover(t, 100 + i) for i, t in enumerate(truths(engine, systems))]
    seconds = (time.perf_counter() - begin) / systems
    print(f"\n{engine.name} {engine.version}: {systems} systems, {seconds:.1f} s each")
    errors = [r.errors() for r in recovered]
    print("  parameter             inside 90 %   mean error   sd of error   driven by data")
    for p in recovered[0].truth.parameters:
        e = np.array([row[p.name] for row in errors])
        driven = sum(
            q.driven == "data" for r in recovered for q in r.profile.parameters if q.name == p.name
        )
        inside = int((np.abs(e) <= Z90).sum())
        mark = "" if inside >= 0.8 * systems else "   <-- below 80 %"
        print(
            f"  {p.name:22s} {inside:3d} of {systems}    {e.mean():+6.2f}      {e.std():6.2f}"
            f"        {driven:3d}{mark}"
        )
    unseen = [r.unseen() for r in recovered]
    for name in unseen[0]:
        e = np.expm1(np.array([row[name] for row in unseen]))
        print(
            f"  {name:18s} mean absolute error {np.abs(e).mean():.1%}, mean {e.mean():+.1%}, "
            f"worst {e[np.abs(e).argmax()]:+.1%}"
        )
    whole = np.array([[abs(math.expm1(v)) for v in row.values()] for row in unseen])
    print(f"  all three: {whole.mean():.1%}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--systems", type=int, default=50)
    parser.add_argument("--engine", choices=ENGINES)
    arguments = parser.parse_args()
    for name in [arguments.engine] if arguments.engine else ENGINES:
        figure(ENGINES[name], arguments.systems)


if __name__ == "__main__":
    main()
