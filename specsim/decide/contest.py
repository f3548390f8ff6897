"""Settings against each other at one load: who wins, how surely, what is lost otherwise.

A setting is dropped if another one beats it with a probability of at least 75 %. Of those that
stay the simplest is chosen, and among equally simple ones the fastest. Simplicity: no speculation,
what runs today, other chains, trees; whatever needs another release of the engine comes after all
that does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.decide.outlook import Outlook
from specsim.decide.recommendation import LoadChoice, MixChoice, Option, Range
from specsim.engine import RunPlan
from specsim.uncertainty import Z90, normal_cdf

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

SURE = 0.75
"""Probability from which one setting beats another: three to one.

On 200 simulated systems whose parameters are known as well as a dozen cells tell them, 75 % loses
0.6 % of the throughput on average, as 70 % does and 80 % nearly (benchmarks/figures_decide.py)."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Settings to choose from.

    Parameters
    ----------
    outlook
        Their joint Gaussian; the first setting is no speculation.
    draws
        (draws, settings, loads) of it.
    measured
        Per setting: whether the profile rests on measurements of it.
    current
        Index of what runs today; None if that is not known.
    version
        Release of the engine that runs today.
    allowed
        (settings, loads): whether the latency targets are met.
    """

    outlook: Outlook
    draws: Floats
    measured: tuple[bool, ...]
    current: int | None
    version: str
    allowed: Flags

    @property
    def plans(self) -> tuple[RunPlan, ...]:
        """Settings as the engine runs them."""
        return self.outlook.grid.plans

    def rank(self, i: int) -> tuple[int, int]:
        """Return how simple a setting is: smaller is simpler."""
        plan = self.plans[i]
        if not plan.setting.speculates:
            kind = 0
        elif i == self.current:
            kind = 1
        else:
            kind = 2 if plan.setting.topk == 1 else 3
        return (int(plan.version != self.version), kind)

    def wins(self, j: int) -> tuple[Floats, Floats]:
        """Return each setting's probability to be the fastest at a load, and its regret."""
        return wins(self.draws[:, :, j], self.allowed[:, j])

    def choose(self, j: int, concurrency: int) -> LoadChoice:
        """Choose at load j; among all settings if none meets the targets."""
        allowed = self.allowed[:, j]
        pool = np.flatnonzero(allowed) if allowed.any() else np.arange(len(self.plans))
        mean, sd = self.outlook.mean[:, j], self.outlook.ratio_sd(j)
        order = self.standing(pool, mean, sd)
        best = int(pool[np.argmax(mean[pool])])
        chosen = order[0]
        tied = sorted(order[1:], key=lambda i: -float(mean[i]))
        probability, regret = self.wins(j)

        def option(i: int) -> Option:
            return self._option(i, j, sd, float(probability[i]), float(regret[i]))

        return LoadChoice(
            concurrency=concurrency,
            choice=option(chosen),
            best=option(best),
            tied=tuple(option(i) for i in tied),
            baseline=option(0),
            current=None if self.current is None else option(self.current),
        )

    def standing(self, pool: Ints, mean: Floats, sd: Floats) -> list[int]:
        """Return the settings that no other one surely beats, simplest first."""
        stand = [
            int(i)
            for i in pool
            if not any(
                beats(float(mean[k] - mean[i]), float(sd[k, i])) >= SURE for k in pool if k != i
            )
        ]
        return sorted(stand, key=lambda i: (*self.rank(i), -float(mean[i])))

    def mixed(self, weights: Sequence[float]) -> tuple[int, MixChoice]:
        """Choose one setting for a mix of loads; weights are shares of the time.

        The throughput over the mix is the weighted mean over the loads.
        """
        share = np.asarray(weights) / np.sum(weights)
        used = np.flatnonzero(share > 0)
        draws = np.log(np.exp(self.draws[:, :, used]) @ share[used])
        mean = np.asarray(draws.mean(axis=0))
        sd = np.sqrt(np.maximum(_ratio_variance(np.cov(draws.T)), 0.0))
        allowed = np.asarray(self.allowed[:, used].all(axis=1), dtype=np.bool_)
        pool = np.flatnonzero(allowed) if allowed.any() else np.arange(len(self.plans))
        i = self.standing(pool, mean, sd)[0]
        probability, regret = wins(draws, allowed)
        gain = ratio_range(float(mean[i] - mean[0]), float(sd[i, 0]))
        tps = float(np.exp(self.outlook.mean[i, used]) @ share[used])
        loads = self.outlook.grid.loads
        return i, MixChoice(
            tuple((loads[k].concurrency, float(share[k])) for k in used),
            self.plans[i],
            tps,
            gain,
            float(probability[i]),
            float(regret[i]),
        )

    def _option(self, i: int, j: int, sd: Floats, probability: float, regret: float) -> Option:
        cells, mean = self.outlook.cells, self.outlook.mean[:, j]
        total = float(self.outlook.sd()[i, j])
        tps = math.exp(float(mean[i]))
        today = None
        if self.current is not None:
            today = ratio_range(float(mean[i] - mean[self.current]), float(sd[i, self.current]))
        return Option(
            plan=self.plans[i],
            measured=self.measured[i],
            output_tps=Range(tps, tps * math.exp(-Z90 * total), tps * math.exp(Z90 * total)),
            gain=ratio_range(float(mean[i] - mean[0]), float(sd[i, 0])),
            against_current=today,
            probability=probability,
            regret=regret,
            accept_length=float(cells.accept_length[i, j]),
            batch_size=float(cells.batch_size[i, j]),
            tpot_s=float(cells.tpot_s[i, j]),
            ttft_s=float(cells.ttft_s[i, j]),
            limit=cells.limit(i, j),
        )


def wins(draws: Floats, allowed: Flags) -> tuple[Floats, Floats]:
    """Return the probability to be the fastest, and the expected loss, of each setting.

    Parameters
    ----------
    draws
        (draws, settings): ln(throughput).
    allowed
        Settings that count; all if none does.

    Returns
    -------
    probability, regret
        Per setting; regret is E[1 - X / max X], a fraction. What is not allowed has probability
        0, and the regret that it would have.

    Examples
    --------
    >>> both = np.array([True, True])
    >>> wins(np.log(np.array([[1.0, 2.0], [1.0, 0.5]])), both)
    (array([0.5, 0.5]), array([0.25, 0.25]))
    """
    pool = allowed if allowed.any() else np.ones_like(allowed)
    counted = np.where(pool, draws, -np.inf)
    top = counted.max(axis=1)
    first = np.argmax(counted, axis=1)
    probability = np.bincount(first, minlength=draws.shape[1]) / len(draws)
    regret = np.maximum(1.0 - np.exp(draws - top[:, None]), 0.0).mean(axis=0)
    return probability, regret


def beats(difference: float, sd: float) -> float:
    """Return the probability that a normal of that mean is positive; 1/2 for twins."""
    if sd <= 1e-9:
        return 0.5 if abs(difference) < 1e-9 else float(difference > 0)
    return normal_cdf(difference / sd)


def ratio_range(log_ratio: float, sd: float) -> Range:
    """Return exp(log ratio) - 1 with its central 90 %."""
    return Range(
        math.expm1(log_ratio), math.expm1(log_ratio - Z90 * sd), math.expm1(log_ratio + Z90 * sd)
    )


def _ratio_variance(covariance: Floats) -> Floats:
    variance = np.diag(covariance)
    return np.asarray(variance[:, None] + variance[None, :] - 2 * covariance)
