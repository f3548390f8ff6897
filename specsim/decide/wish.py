"""What a decision is asked for, and the settings that could win it.

Every setting that the engine takes is solved in closed form. Those that could be the fastest
somewhere are compared in a joint Gaussian (`specsim.decide.outlook`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specsim.decide.candidates import (
    Limits,
    algorithm_of,
    candidate_plans,
    candidate_settings,
    with_current,
)
from specsim.decide.outlook import Grid, Outlook, outlook
from specsim.decide.slo import Target
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.profile import Profile
from specsim.question import MOST_CLIENTS, Question
from specsim.setting import SpecSetting

if TYPE_CHECKING:
    from specsim.arrays import Floats

KEEP = 40
"""Settings that are compared in detail."""

MARGIN = 0.3
"""In ln(throughput): what is further from the best at every load is not compared in detail."""


@dataclass(frozen=True, slots=True)
class Wish(Question):
    """A question about the best setting; `settings`, if any, stand instead of the candidates."""

    limits: Limits = field(default_factory=Limits)  # how far the candidates go
    targets: tuple[Target, ...] = ()  # latencies
    any_engine: bool = False  # later releases of the engine too
    mix: tuple[tuple[int, float], ...] = ()  # share of the time by load, for one setting for all
    measured: tuple[SpecSetting, ...] = ()  # what the profile was fitted to besides today's setting
    gpu_hour_price: float | None = None  # money per GPU and hour
    draft_model: str | None = None  # path of the drafter for the launch flags
    seed: int = 0  # of the Monte Carlo, and of simulations

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        for concurrency, share in self.mix:
            if not 1 <= concurrency <= MOST_CLIENTS or not share > 0:
                raise InputError(
                    f"mix {concurrency}:{share}",
                    "needs a load of at least 1 and a positive share",
                    "write e.g. 1:0.5,30:0.5",
                )
        if self.gpu_hour_price is not None and not self.gpu_hour_price > 0:
            raise InputError(
                f"GPU hour price {self.gpu_hour_price}", "must be positive", "or leave it out"
            )


def possible_plans(profile: Profile, wish: Wish) -> tuple[RunPlan, ...]:
    """Return no speculation and every candidate that the engine runs."""
    algorithm = algorithm_of(profile)
    settings = wish.settings
    if not settings and algorithm is not None:
        settings = tuple(candidate_settings(algorithm, wish.limits))
    return candidate_plans(profile, settings, wish, any_engine=wish.any_engine)


def promising(log_tps: Floats, must: Sequence[int], most: int = KEEP) -> list[int]:
    """Return the settings that could win somewhere: the nearest to the best, at most `most`."""
    gap = (log_tps.max(axis=0) - log_tps).min(axis=1)
    near = [i for i in gap.argsort(kind="stable").tolist() if gap[i] < MARGIN]
    return sorted({*must, *near[: most - len(must)]})


@dataclass(frozen=True, slots=True)
class Finalists:
    """No speculation, what runs today and the settings that could win, compared."""

    outlook: Outlook  # the first setting is no speculation
    current: int | None  # index of what runs today, if that is known and drafts
    considered: int  # settings that were looked at


def finalists(
    profile: Profile, wish: Wish, most: int = KEEP, refused_too: bool = True
) -> Finalists:
    """Compare the settings that could win at the loads of a wish, at most so many.

    What runs today is among them, unless the engine refuses it and `refused_too` is false.
    """
    plans, today = with_current(profile, possible_plans(profile, wish), wish.max_running_requests)
    if today is not None and not (refused_too or plans[today].allowed):
        plans, today = plans[:today], None
    whole = Grid.of(profile, wish, plans)
    kept = promising(whole.solve(profile).log_tps, [0] if today is None else [0, today], most)
    view = outlook(profile, whole.only(kept), wish.measured)
    return Finalists(view, None if today is None else kept.index(today), len(plans))
