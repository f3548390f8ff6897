"""Settings against each other at one load: who wins, how surely, what is lost otherwise.

A setting is dropped if another one beats it with a probability of at least 75 %. Of those that
stay the simplest is chosen, and among equally simple ones the fastest. Simplicity: no speculation,
what runs today, other chains, trees; whatever needs another release of the engine comes after all
that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.decide.outlook import Outlook, ratio_sd
from specsim.decide.recommendation import LoadChoice, MixChoice, Option
from specsim.decide.wish import Wish
from specsim.engine import RunPlan
from specsim.profile import Profile
from specsim.uncertainty import Interval, normal_cdf

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

SURE = 0.75
"""Probability from which one setting beats another: three to one.

On 200 simulated systems whose parameters are known as well as a dozen cells tell them, 75 % loses
0.6 % of the throughput on average, as 70 % does and 80 % nearly (benchmarks/figures_decide.py)."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Settings to choose from."""

    profile: Profile
    wish: Wish
    outlook: Outlook  # the joint Gaussian; its first setting is no speculation
    draws: Floats  # (draws, settings, loads) of it
    current: int | None  # index of what runs today, if that is known
    allowed: Flags  # (settings, loads): the engine runs it, and it meets the latency targets

    @property
    def plans(self) -> tuple[RunPlan, ...]:
        """Settings as the engine runs them."""
        return self.outlook.grid.plans

    def measured(self, i: int) -> bool:
        """Whether the profile rests on measurements of a setting, as far as is known."""
        named = self.plans[i].setting.key in {s.key for s in self.wish.measured}
        return self.profile.fit.observations > 0 and (named or i in (0, self.current))

    def rank(self, i: int) -> tuple[int, int]:
        """Return how simple a setting is: smaller is simpler."""
        plan, asked = self.plans[i], self.wish.engine_version or self.profile.setup.engine.version
        if not plan.setting.speculates:
            kind = 0
        elif i == self.current:
            kind = 1
        else:
            kind = 2 if plan.setting.topk == 1 else 3
        return (int(plan.version != asked), kind)

    def choose(self, j: int) -> LoadChoice:
        """Choose at load j; among all settings if none meets the targets."""
        view, allowed = self.outlook, self.allowed[:, j]
        mean, sd, total = view.mean[:, j], view.ratio_sd(j), view.sd()[:, j]
        probability, regret = wins(self.draws[:, :, j], allowed)
        gpus, price = self.profile.setup.hardware.gpu_count, self.wish.gpu_hour_price

        def gain(i: int, base: int) -> Interval:
            return Interval.of_change(float(mean[i] - mean[base]), float(sd[i, base]))

        def option(i: int) -> Option:
            tps = Interval.of_log(float(view.cells.output_tps[i, j]), float(total[i]))
            wins_with, loses = float(probability[i]), float(regret[i])
            return Option(
                plan=self.plans[i],
                measured=self.measured(i),
                output_tps=tps,
                output_tps_per_gpu=tps.value / gpus,
                tokens_per_money=None if price is None else tps.value * 3600.0 / (price * gpus),
                gain=gain(i, 0),
                gain_against_current=None if self.current is None else gain(i, self.current),
                probability_fastest=wins_with,
                regret=loses,
                regret_if_not_fastest=loses / (1.0 - wins_with) if wins_with < 1.0 else 0.0,
                accept_length=float(view.cells.accept_length[i, j]),
                batch_size=float(view.cells.batch_size[i, j]),
                tpot_s=float(view.cells.tpot_s[i, j]),
                ttft_s=float(view.cells.ttft_s[i, j]),
                limit=view.cells.limit(i, j),
            )

        pool = _pool(allowed)
        chosen, *tied = self.standing(pool, mean, sd)
        return LoadChoice(
            concurrency=view.grid.loads[j].concurrency,
            choice=option(chosen),
            fastest=option(int(pool[np.argmax(mean[pool])])),
            tied=tuple(option(i) for i in sorted(tied, key=lambda i: -float(mean[i]))),
            baseline=option(0),
            current=None if self.current is None else option(self.current),
            meets_targets=bool(allowed.any()) if self.wish.targets else None,
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

    def mixed(self, shares: dict[int, float]) -> MixChoice:
        """Choose one setting for a mix of loads: shares of the time by concurrency.

        The throughput over the mix is the weighted mean over the loads.
        """
        levels = [load.concurrency for load in self.outlook.grid.loads]
        used = np.array([j for j, level in enumerate(levels) if level in shares])
        share = np.array([shares[levels[j]] for j in used])
        share = share / np.sum(share)
        draws = np.log(np.exp(self.draws[:, :, used]) @ share)
        mean, sd = draws.mean(axis=0), ratio_sd(np.atleast_2d(np.cov(draws.T)))
        allowed = np.all(self.allowed[:, used], axis=1)
        i = self.standing(_pool(allowed), mean, sd)[0]
        probability, regret = wins(draws, allowed)
        return MixChoice(
            self.plans[i],
            weights={levels[j]: float(part) for j, part in zip(used, share, strict=True)},
            output_tps=float(np.exp(self.outlook.mean[i, used]) @ share),
            gain=Interval.of_change(float(mean[i] - mean[0]), float(sd[i, 0])),
            probability_fastest=float(probability[i]),
            regret=float(regret[i]),
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
    counted = np.full_like(draws, -np.inf)
    pool = _pool(allowed)
    counted[:, pool] = draws[:, pool]
    top = counted.max(axis=1)
    probability = np.bincount(counted.argmax(axis=1), minlength=draws.shape[1]) / len(draws)
    regret = np.maximum(1.0 - np.exp(draws - top[:, None]), 0.0).mean(axis=0)
    return probability, regret


def beats(difference: float, sd: float) -> float:
    """Return the probability that a normal of that mean is positive; 1/2 for twins."""
    if sd <= 1e-9:
        return 0.5 if abs(difference) < 1e-9 else float(difference > 0)
    return normal_cdf(difference / sd)


def _pool(allowed: Flags) -> Ints:
    """Return the settings that count: the allowed ones, or all if there is none."""
    return np.flatnonzero(allowed if allowed.any() else np.ones_like(allowed))
