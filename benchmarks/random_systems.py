"""Simulated servers with random parameters: what was measured on them, and what is true.

A server is a setup, parameters drawn from its prior, and a model error drawn as `decide.outlook`
assumes it (or none, where the closed form is the truth). Some cells are measured with noise; the
parameters are fitted to them by Gauss-Newton on the same Gaussian prior, which is what the fit of
a real profile does less its Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance.prior import default_acceptance
from specsim.decide.contest import promising
from specsim.decide.outlook import (
    candidate_plans,
    load_likeness,
    outlook,
    root,
    setting_likeness,
    with_current,
)
from specsim.decide.plan import Belief, belief, worth
from specsim.decide.recommend import recommend
from specsim.engine import RunPlan
from specsim.parameters import acceptance_priors, cost_priors
from specsim.predict import Grid
from specsim.profile import FitRecord, Profile, acceptance_name
from specsim.question import Question
from specsim.server import Setup, setup_from_mapping
from specsim.server.system import assemble
from specsim.uncertainty import each
from specsim.workload import Load

Floats = NDArray[np.float64]

LOADS = (1, 4, 16, 64, 128)
MEASURED_AT = (1, 8, 32, 128)
"""Clients at which no speculation and the current chain are measured."""
EXTRA_AT = (1, 32)
"""And a deeper chain, and a tree."""
NOISE, ACCEPT_NOISE = 0.03, 0.02
PLANNED_AT, SWEEP_NOISE = (1, 8, 32, 128), 0.015
"""Loads and noise of the sweeps that a plan orders."""
WISH = Question(concurrency=LOADS, max_draft_tokens=16, max_steps=6, max_topk=4)
FINALISTS = 12
FAR = 2.5  # prior standard deviations at which draws are cut


def _setup(
    model: str, gpu: str, tp: int, link: str, draft: str, steps: int, allreduce: str = "custom"
) -> Setup:
    algorithm = "MTP" if draft == "mtp" else "EAGLE3"
    return setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {"gpu": gpu, "gpu_count": tp, "link": link, "allreduce": allreduce},
            "model": {"id": model},
            "draft": {"id": draft},
            "engine": {
                "name": "sglang",
                "version": "0.5.9",
                "tp": tp,
                "attention_backend": "fa3",
                "max_running_requests": 128,
            },
            "workload": {"input_len": 1024, "output_len": 512, "evidence": "measured"},
            "current": {
                "algorithm": algorithm,
                "topk": 1,
                "num_steps": steps,
                "num_draft_tokens": steps + 1,
                "scheduler": "overlap",
            },
        }
    )


SETUPS = (
    ("llama-3.1-8b", "h100-sxm", 1, "none", "eagle3", 3, "nccl"),
    ("qwen3-32b", "h100-sxm", 2, "nvlink4", "eagle3", 3),
    ("qwen3-30b-a3b", "h100-sxm", 2, "nvlink4", "eagle3", 3),
    ("llama-3.3-70b", "rtx-pro-6000", 4, "pcie5-x16", "eagle3", 3, "nccl"),
    ("kimi-k2.5", "rtx-pro-6000", 8, "pcie5-x16", "kimi-k2.5-eagle3", 2, "nccl"),
    ("deepseek-v3", "h200-sxm", 8, "nvlink4", "mtp", 3),
)
"""Dense and MoE, MLA and grouped-query, one to eight GPUs, NVLink and PCIe."""


def prior_profile(setup: Setup, name: str, model_error: float) -> Profile:
    """A server that nobody has measured."""
    system = assemble(setup)
    assert setup.current is not None
    acceptance = default_acceptance(system.engine.name, setup.current.algorithm)
    names = (acceptance_name(acceptance),)
    parameters = (*cost_priors(system.facts), *acceptance_priors(names))
    identity = tuple(map(tuple, np.eye(len(parameters)).tolist()))
    return Profile(
        name, setup, parameters, identity, (acceptance,), FitRecord(0, NOISE, model_error)
    )


def moved(profile: Profile, coordinates: Floats) -> Profile:
    """The same beliefs around other values."""
    return replace(
        profile,
        parameters=tuple(
            p.moved(float(z), p.sd / p.prior_sd, False)
            for p, z in zip(profile.parameters, coordinates, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True)
class World:
    """One simulated server: all candidates at all loads, and the truth about them."""

    prior: Profile
    grid: Grid
    current: int
    log_tps: Floats
    log_accept: Floats

    def column(self, concurrency: int) -> int:
        """Index of a load."""
        return [load.concurrency for load in self.grid.loads].index(concurrency)

    def row(self, plan: RunPlan) -> int:
        """Index of a plan, whatever its notes."""
        plans = [replace(p, notes=()) for p in self.grid.plans]
        return plans.index(replace(plan, notes=()))


def world(seed: int, model_error: float, stated_error: float) -> World:
    """Draw a server; its model error, and the one that its profile states."""
    rng = np.random.default_rng(seed)
    setup = _setup(*SETUPS[seed % len(SETUPS)])
    prior = prior_profile(setup, f"random {seed}", stated_error)
    truth = moved(prior, np.clip(rng.standard_normal(len(prior.parameters)), -FAR, FAR))
    plans, current = with_current(prior, candidate_plans(prior, WISH))
    assert current is not None
    loads = tuple(Load("closed_loop", c) for c in sorted({*LOADS, *MEASURED_AT}))
    grid = Grid(plans, loads, setup.workload)
    cells = grid.solve(truth)
    of_settings, of_loads = root(setting_likeness(plans)), root(load_likeness(loads))
    own = of_settings @ rng.standard_normal(grid.shape) @ of_loads.T
    shared = of_loads @ rng.standard_normal(len(loads))
    error = model_error * np.sqrt(0.5) * (own + shared)
    return World(prior, grid, current, cells.log_tps + error, np.log(cells.accept_length[:, 0]))


def _cells(w: World, extra: bool) -> tuple[list[tuple[int, int]], list[int]]:
    """Cells that are measured, and settings whose accept length is logged."""
    cells = [(i, w.column(c)) for i in (0, w.current) for c in MEASURED_AT]
    logged = [w.current]
    if extra:
        steps = w.grid.plans[w.current].setting.num_steps
        keys = [(steps + 2, 1, steps + 3), (3, 4, 16)]
        for key in keys:
            i = next(
                i
                for i, p in enumerate(w.grid.plans)
                if p.setting.key == key and (p.setting.topk > 1 or p.finish_lag_rounds)
            )
            cells += [(i, w.column(c)) for c in EXTRA_AT]
            logged.append(i)
    return cells, logged


def learnt(w: World, rng: np.random.Generator, extra: bool = True, rounds: int = 3) -> Profile:
    """The profile after a few measurements, by Gauss-Newton (the posterior is a Gaussian)."""
    cells, logged = _cells(w, extra)
    used = sorted({i for i, _ in cells})
    sub = w.grid.only(used)
    flat = [used.index(i) * len(sub.loads) + j for i, j in cells]
    ones = np.ones((len(used), len(used)))
    alike = np.kron(setting_likeness(sub.plans) + ones, load_likeness(sub.loads))
    size, count = len(cells) + len(logged), len(cells)
    noise = np.zeros((size, size))
    error = w.prior.fit.model_error
    noise[:count, :count] = NOISE**2 * np.eye(count) + 0.5 * error**2 * alike[np.ix_(flat, flat)]
    noise[count:, count:] = ACCEPT_NOISE**2 * np.eye(len(logged))
    values = np.array([w.log_tps[i, j] for i, j in cells] + [w.log_accept[i] for i in logged])
    values += rng.standard_normal(size) * np.repeat([NOISE, ACCEPT_NOISE], [count, len(logged)])

    def predicted(coordinates: Floats) -> Floats:
        found = sub.solve(w.prior, coordinates)
        lengths = [found.accept_length[used.index(i), 0] for i in logged]
        return np.append(found.log_tps.reshape(-1)[flat], np.log(lengths))

    z = np.zeros(len(w.prior.parameters))
    covariance = np.eye(len(z))
    for _ in range(rounds):
        here = moved(w.prior, z)
        z = here.coordinates  # held within the bounds
        steep = replace(
            here, parameters=tuple(replace(p, sd=0.3 * p.prior_sd) for p in here.parameters)
        )
        jacobian = steep.spread(each(predicted)).jacobian
        residual = values - predicted(z) + jacobian @ z
        gain = np.linalg.solve(jacobian @ jacobian.T + noise, jacobian).T
        z, covariance = gain @ residual, np.eye(len(z)) - gain @ jacobian
    return _posterior(w.prior, z, covariance, count)


def _posterior(prior: Profile, z: Floats, covariance: Floats, count: int) -> Profile:
    sd = np.sqrt(np.diag(covariance))
    correlation = np.clip((covariance + covariance.T) / 2 / np.outer(sd, sd), -1, 1)
    np.fill_diagonal(correlation, 1.0)
    parameters = tuple(
        p.moved(float(a), float(b), True) for p, a, b in zip(prior.parameters, z, sd, strict=True)
    )
    return replace(
        prior,
        parameters=parameters,
        correlation=tuple(map(tuple, correlation.tolist())),
        fit=replace(prior.fit, observations=count),
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One load of one system: true regret of the choice and of the best guess, and the odds."""

    choice_regret: float
    best_regret: float
    choice_probability: float
    choice_wins: bool
    stated_regret: float


def trial(seed: int, model_error: float, stated_error: float) -> list[Outcome]:
    """Measure a random system, ask for a recommendation, and look at the truth."""
    w = world(seed, model_error, stated_error)
    profile = learnt(w, np.random.default_rng(seed + 1_000_000))
    _, logged = _cells(w, extra=True)
    wish = replace(WISH, measured=tuple(w.grid.plans[i].setting for i in logged))
    result = []
    for choice in recommend(profile, wish).loads:
        truth = w.log_tps[:, w.column(choice.concurrency)]
        i, best = w.row(choice.choice.plan), w.row(choice.fastest.plan)
        result.append(
            Outcome(
                float(1 - np.exp(truth[i] - truth.max())),
                float(1 - np.exp(truth[best] - truth.max())),
                choice.choice.probability_fastest,
                bool(truth[i] >= truth.max() - 1e-9),
                choice.choice.regret,
            )
        )
    return result


def calibration_error(probability: Floats, hit: Floats, bins: int = 10) -> float:
    """Expected calibration error: mean |stated - observed| over bins of equal width, weighted."""
    index = np.minimum((probability * bins).astype(int), bins - 1)
    total = 0.0
    for k in range(bins):
        inside = index == k
        if inside.any():
            total += inside.mean() * abs(probability[inside].mean() - hit[inside].mean())
    return float(total)


ORDERS = ("plan", "random", "grid")


def cells_needed(seed: int, model_error: float = 0.03) -> dict[str, int]:
    """Cells until the best guesses lose 1 % on average over the loads, and stay so, by order.

    Starts from two cells of no speculation and two of the current chain. Each step sweeps one
    setting over all loads: the one that `worth` ranks first (`plan`), a random one, or the next of
    the list (`grid`).
    """
    w = world(seed, model_error, model_error)
    columns = [w.column(c) for c in PLANNED_AT]
    loads = tuple(w.grid.loads[j] for j in columns)
    whole = Grid(w.grid.plans, loads, w.grid.workload)
    kept = sorted({w.current, *promising(whole.solve(w.prior).log_tps, FINALISTS - 1)})
    truth = w.log_tps[np.ix_(kept, columns)]
    rng = np.random.default_rng(seed + 2_000_000)
    start = belief(outlook(w.prior, whole.only(kept)))
    for k in (0, kept.index(w.current)):
        start = _swept(start, truth, k, np.arange(len(loads))[::2], rng)
    return {order: _followed(start, truth, order, seed) for order in ORDERS}


def _followed(start: Belief, truth: Floats, order: str, seed: int) -> int:
    """Cells that one order needs, those of the start included."""
    rng = np.random.default_rng(seed + 3_000_000)
    settings, loads = truth.shape
    every, noise = np.arange(loads), np.full(loads, SWEEP_NOISE)
    weights = np.full(loads, 1 / loads)
    normal = rng.standard_normal((1000, loads))
    left = list(range(settings))
    if order == "random":
        rng.shuffle(left)
    now = start
    reached: int | None = 0 if _decided(now, truth) else None
    for step in range(settings):
        chosen = left[0]
        if order == "plan":
            value = [worth(now, now.cell_rows(k, every), noise, normal, weights) for k in left]
            chosen = left[int(np.argmax(value))]
        left.remove(chosen)
        now = _swept(now, truth, chosen, every, rng)
        if not _decided(now, truth):
            reached = None
        elif reached is None:
            reached = (step + 1) * loads
    return 4 + (settings * loads if reached is None else reached)


def _swept(
    now: Belief, truth: Floats, k: int, loads: NDArray[np.int64], rng: np.random.Generator
) -> Belief:
    noise = np.full(len(loads), SWEEP_NOISE)
    values = truth[k, loads] - now.base[k, loads] + SWEEP_NOISE * rng.standard_normal(len(loads))
    return updated(now, now.cell_rows(k, loads), values, noise)


def updated(now: Belief, rows: Floats, values: Floats, noise: Floats) -> Belief:
    """Return the belief after a measurement (UPDATE).

    `rows` (m, state) and `noise` (m,) as `Belief.foreseen` takes them; `values` (m,): what was
    measured, less what it is at state zero.
    """
    gain = now.covariance @ rows.T
    total = rows @ gain + np.diag(noise**2)
    mean = now.mean + gain @ np.linalg.solve(total, values - rows @ now.mean)
    covariance = now.covariance - gain @ np.linalg.solve(total, gain.T)
    return replace(now, mean=mean, covariance=(covariance + covariance.T) / 2)


def _decided(now: Belief, truth: Floats) -> bool:
    guess = now.cells.argmax(axis=0)
    found = np.take_along_axis(truth, guess[None, :], axis=0)[0]
    return float(np.mean(truth.max(axis=0) - found)) <= 0.01
