"""Finding the mode of a fit, and with it the noise of cells and the spread of the corrections.

Physics is the prior mean, not the judge [1]_: over the parameters theta a discrepancy delta is
added, whose spread is learnt from the same cells,

    ln round = ln f(x; theta) + delta_tokens(x) + delta_speculating(x)              (DISCREPANCY)

    r' S^-1 r + ln det S,   S = J P J' + sum_k s_k^2 J_k C_k J_k' + N                (EVIDENCE)

with r the residuals at the prior means and J their slopes, both from the mode, C_k the correlation
of correction k's knots, s_k its spread, N the noise. Half-normal priors on the spreads let a
correction vanish where physics is right. Cells that stay far off weigh little in N, as Student's t
has it: so the search starts both from a Gaussian fit, which follows every cell, and from physics,
which may write one off; the better posterior wins.

References
----------
.. [1] M. Kennedy, A. O'Hagan, "Bayesian calibration of computer models", J. R. Stat. Soc. B 63
   (2001).
.. [2] J. More, "The Levenberg-Marquardt algorithm: implementation and theory", Lecture Notes in
   Mathematics 630 (1977).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.calibrate.problem import STUDENT_NU, Measured, Place, Problem
from specsim.calibrate.rows import Rows
from specsim.parameters import CORRECTIONS, Facts, correction_priors, knot_of
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Floats

NOISE, NOISE_SPREAD = 0.025, 0.5
"""Noise of a cell before the data speak: median, and standard deviation of its logarithm."""
LEAST = {"spread": 0.003, "noise": 0.008}
MOST = {"spread": 2.0, "noise": 0.2}
NEAR = 1e-3
"""Tolerance of a mode that only the evidence is taken at."""
ROUNDS = 4
"""Of mode and evidence in turn: the spreads then move by less than a twentieth."""
CLOSE, SAME = 1.0, 0.05
"""Difference of two objectives that the way from near a mode to it may turn; and of coordinates
whose ways end in one mode."""
TRIES = 60
"""Most steps that are tried on the way to a mode."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search ended."""

    problem: Problem
    place: Place
    noise: float
    spread: Mapping[str, float]  # of each correction
    objective: float  # -ln of the posterior of spreads and noise, by Laplace

    @property
    def mode(self) -> Floats:
        """Coordinates of the mode."""
        return self.place.at


def find(
    rows: Rows, data: Measured, physics: Sequence[Parameter], corrections: Sequence[str]
) -> Found:
    """Find mode, noise and spreads.

    Parameters
    ----------
    rows, data
        What was measured.
    physics
        Parameters but for the corrections' knots.
    corrections
        Which there are.
    """

    def start(spread: float) -> Found:
        spreads = dict.fromkeys(corrections, spread)
        priors = correction_priors(spreads)
        problem = Problem.of(rows, data, (*physics, *priors))
        place = problem.place(np.zeros(len(problem.parameters)))
        return Found(problem, place, NOISE, spreads, np.inf)

    gaussian = _climb(start(0.1), robust=False)
    found = (_climb(gaussian, robust=True), _climb(start(0.03), robust=True))
    best, other = sorted(found, key=lambda at: at.objective)
    same = float(np.abs(other.mode - best.mode).max()) < SAME
    near = [best] if same or other.objective > best.objective + CLOSE else [best, other]
    return min(map(_settled, near), key=lambda at: at.objective)


def find_mode(
    problem: Problem, place: Place, noise: float, robust: bool = True, tolerance: float = 1e-8
) -> Place:
    """Minimise (MAP), or its Gaussian limit, until a step gains less than `tolerance` of it.

    A trust region, whose radius follows how well the slopes foretell a step's gain [2]_.
    """
    sigma, whiten = problem.data.sigmas(noise), np.linalg.inv(problem.root)

    def misfit(errors: Floats) -> Floats:
        r = errors / sigma
        if robust:
            r = np.sign(r) * np.sqrt((STUDENT_NU + 1) * np.log1p(r**2 / STUDENT_NU))
        return r

    def values(errors: Floats, at: Floats) -> Floats:
        return np.concatenate([misfit(errors), whiten @ at])

    radius, tries, settled = float(np.linalg.norm(place.at)) or 1.0, 1, False
    while tries < TRIES and not settled:
        at, here = place.at, values(place.errors[0], place.at)
        slopes = np.concatenate([place.slopes(misfit), whiten])
        left, size, right = np.linalg.svd(slopes, full_matrices=False)
        turned, cost, gain = left.T @ here, float(here @ here) / 2, 0.0
        settled = float(np.linalg.norm(size * turned)) < 1e-8
        while gain <= 0.0 and not settled and tries < TRIES:
            along = _step(size, turned, radius)
            step, length, tries = along @ right, float(np.linalg.norm(along)), tries + 1
            there = values(problem.errors((at + step)[None])[0], at + step)
            gain = cost - float(there @ there) / 2 if np.isfinite(there).all() else -np.inf
            ratio = -gain / float(size * along @ (turned + size * along / 2))  # to the foretold
            small = length < 1e-6 * (1e-6 + float(np.linalg.norm(at)))
            settled = small or (gain < tolerance * cost and ratio > 0.25)
            if ratio < 0.25:
                radius = length / 4
            elif ratio > 0.75 and length > 0.95 * radius:
                radius *= 2
        if gain > 0.0:
            place = problem.place(at + step)
    return place


def _step(size: Floats, turned: Floats, radius: float) -> Floats:
    """Return the best step within a radius, along the singular vectors."""
    step = -turned / size
    if np.linalg.norm(step) <= radius:
        return step
    low, high = 0.0, float(np.linalg.norm(size * turned)) / radius
    for _ in range(40):
        damping = (low + high) / 2
        step = -size * turned / (size**2 + damping)
        low, high = (damping, high) if np.linalg.norm(step) > radius else (low, damping)
    return step


def _climb(at: Found, robust: bool) -> Found:
    """Take mode and evidence in turn until they agree."""
    for _ in range(ROUNDS):
        at = replace(at, place=find_mode(at.problem, at.place, at.noise, robust, NEAR))
        spread, noise = _evidence(at, robust)
        change = [abs(np.log(spread[k] / at.spread[k])) for k in spread]
        settled = max([abs(np.log(noise / at.noise)), *change]) < 0.05
        at = _with_spread(at, spread, noise)
        if settled:
            break
    return replace(at, objective=_objective(at))


def _settled(at: Found) -> Found:
    """Return the mode itself rather than a place near it."""
    at = replace(at, place=find_mode(at.problem, at.place, at.noise))
    return replace(at, objective=_objective(at))


def _with_spread(at: Found, spread: Mapping[str, float], noise: float) -> Found:
    """Return the same place under other spreads: coordinates are in their units."""
    knots = {p.name: p for p in correction_priors(spread)}
    parameters = tuple(knots.get(p.name, p) for p in at.problem.parameters)
    scale = [
        old.prior_sd / new.prior_sd
        for old, new in zip(at.problem.parameters, parameters, strict=True)
    ]
    problem = Problem.of(at.problem.rows, at.problem.data, parameters)
    return Found(problem, at.place.scaled(np.array(scale)), noise, spread, np.inf)


def _evidence(at: Found, robust: bool) -> tuple[dict[str, float], float]:
    """Spreads and noise of the greatest (EVIDENCE).

    With S = N + A A', where A holds the slopes, ln det S = ln det N + ln det (1 + A' N^-1 A): so
    its size is that of the coordinates, however many cells there are.
    """
    problem, data, facts = at.problem, at.problem.data, at.problem.facts
    families = list(at.spread)
    error, slopes = at.place.errors[0], at.place.slopes(lambda errors: errors)
    weight = np.ones_like(error)
    if robust:
        weight = (STUDENT_NU + 1) / (STUDENT_NU + (error / data.sigmas(at.noise)) ** 2)
    of = [knot[0] if (knot := knot_of(p.name)) else "" for p in problem.parameters]
    member = np.array([[name == family for name in (*of, "")] for family in families])
    # A and r in one, of the cells whose error is the fitted noise (at a noise of 1), and of others
    both = np.column_stack([slopes @ problem.root, error - slopes @ at.mode])
    both *= (np.sqrt(weight) / data.sigma)[:, None]
    noisy, known = (both[rows].T @ both[rows] for rows in (data.noise, ~data.noise))
    count = int(data.noise.sum())

    def cost(logs: Floats) -> Floats:
        """-ln of (EVIDENCE) and priors, of each row of ln(spreads) and ln(noise)."""
        spread, noise = np.exp(logs[:, :-1]), np.exp(logs[:, -1])
        ratio = spread / np.array([at.spread[f] for f in families])
        scale = np.where(member, ratio[:, :, None], 1.0).prod(axis=1)
        inner = scale[:, :, None] * (noisy / noise[:, None, None] ** 2 + known) * scale[:, None, :]
        root = np.diagonal(np.linalg.cholesky(np.eye(len(noisy)) + inner), axis1=1, axis2=2)
        # the last of the root squared is 1 + r' S^-1 r
        volume = count * logs[:, -1] + np.log(root[:, :-1]).sum(axis=1)
        prior = _hyperprior(facts, dict(zip(families, spread.T, strict=True)), noise)
        return np.asarray((root[:, -1] ** 2 - 1.0) / 2 + volume + prior)

    here = np.log([*at.spread.values(), at.noise])
    starts = [here, *(np.log([*[s] * len(families), NOISE]) for s in (0.03, 0.3))]
    found = [_lowest(cost, start) for start in starts]
    *spread, noise = np.exp(min(found, key=lambda logs: float(cost(logs[None])[0])))
    return (
        {
            f: float(np.clip(s, LEAST["spread"], MOST["spread"]))
            for f, s in zip(families, spread, strict=True)
        },
        float(np.clip(noise, LEAST["noise"], MOST["noise"])),
    )


def _lowest(cost: Callable[[Floats], Floats], at: Floats) -> Floats:
    """Minimise a smooth function of few numbers, that takes rows of them, by Newton's method."""
    size, h = len(at), 1e-3
    pairs = [(i, j) for i in range(size) for j in range(i + 1)]
    unit = h * np.eye(size)
    offsets = np.array([np.zeros(size), *unit, *-unit, *(unit[i] + unit[j] for i, j in pairs)])
    shorter = 0.5 ** np.arange(8.0)[:, None]
    for _ in range(30):
        values = cost(at + offsets)
        up = values[1 : size + 1]
        slope = (up - values[size + 1 : 2 * size + 1]) / (2 * h)
        bend = np.empty((size, size))
        for (i, j), both in zip(pairs, values[2 * size + 1 :], strict=True):
            bend[i, j] = bend[j, i] = (both - up[i] - up[j] + values[0]) / h**2
        curve, along = np.linalg.eigh(bend)
        step = -along @ (along.T @ slope / np.maximum(np.abs(curve), 1e-3))
        step *= min(1.0, 1.0 / float(np.abs(step).max(initial=1e-12)))
        tried = at + shorter * step
        costs = cost(tried)
        best = int(np.argmin(costs))
        if not costs[best] < values[0] - 1e-10:
            break
        at = tried[best]
    return at


def _hyperprior(
    facts: Facts, spread: Mapping[str, float | Floats], noise: float | Floats
) -> float | Floats:
    """-ln of the prior density of ln(spread) and ln(noise), up to a constant."""
    prior = {family: CORRECTIONS[family].on(facts) or (0.0, 1.0) for family in spread}
    half_normal = sum(0.5 * (s / prior[f][1]) ** 2 - np.log(s) for f, s in spread.items())
    return half_normal + 0.5 * (np.log(noise / NOISE) / NOISE_SPREAD) ** 2


def _objective(at: Found) -> float:
    """-ln posterior of spreads and noise with the coordinates integrated out (Laplace)."""
    problem, sigma = at.problem, at.problem.data.sigmas(at.noise)
    r, slopes = at.place.errors[0] / sigma, at.place.slopes(lambda errors: errors / sigma)
    inverse = np.linalg.inv(problem.prior + 1e-9 * np.eye(len(at.mode)))
    weight = (STUDENT_NU + 1) / (STUDENT_NU + r**2)
    bend = slopes.T @ (weight[:, None] * slopes) + inverse
    count = int(problem.data.noise.sum())
    return (
        0.5 * float(((STUDENT_NU + 1) * np.log1p(r**2 / STUDENT_NU)).sum())
        + count * float(np.log(at.noise))
        + 0.5 * float(at.mode @ inverse @ at.mode)
        + 0.5 * float(np.linalg.slogdet(bend)[1])
        - 0.5 * float(np.linalg.slogdet(inverse)[1])
        + float(_hyperprior(problem.facts, at.spread, at.noise))
    )
