"""What simulating ways to run a server under a changing load gave, and how it is compared.

What one way brings over another is a mean over repeats of ratios within a repeat, in which both
saw the same random numbers:

    gain = mean_r(score_r / score'_r) - 1,   se = sd_r / sqrt(R)                   (PAIRED-GAIN)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specsim.decide.schedule import SWITCH_GAIN, Schedule
from specsim.decide.slo import Target
from specsim.engine import RunPlan
from specsim.simulate import Policy

Role = Literal["none", "fixed", "table", "default", "idle"]
Score = Literal["goodput", "throughput", "request_time"]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to run the server.

    Parameters
    ----------
    role
        ``none``, a ``fixed`` setting, the best ``table``, the engine's ``default`` table, or
        ``idle``: the drafter loaded, nothing drafted.
    name
        For people.
    plan
        What it is launched with.
    policy
        None for a fixed setting.
    """

    role: Role
    name: str
    plan: RunPlan
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What one simulated run says; seconds, tokens and requests per second."""

    score: float
    output_tps: float
    tpot_s: float
    tpot_p99_s: float
    ttft_s: float
    ttft_p99_s: float
    request_s: float
    good_rps: float
    good_share: float
    batch_size: float
    accept_length: float
    switches: int
    requests: int
    steps_share: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A contender's runs, one for each repeat."""

    contender: Contender
    runs: tuple[Run, ...]

    def mean(self, name: str) -> float:
        """Mean over the repeats of a field of :class:`Run`."""
        return float(np.mean([getattr(run, name) for run in self.runs]))

    def error(self, name: str) -> float:
        """Return its standard error; NaN for a single repeat."""
        values = [getattr(run, name) for run in self.runs]
        if len(values) < 2:
            return math.nan
        return float(np.std(values, ddof=1) / math.sqrt(len(values)))

    def steps_share(self) -> dict[int, float]:
        """Share of the decoding time by draft steps."""
        total: dict[int, float] = {}
        for run in self.runs:
            for steps, share in run.steps_share:
                total[steps] = total.get(steps, 0.0) + share / len(self.runs)
        return dict(sorted(total.items()))


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """Contenders under one changing load.

    Parameters
    ----------
    profile, seed, repeats
        What was simulated, how often.
    load
        In words.
    score
        What they are compared by.
    targets
        Latency targets of the goodput.
    schedule
        The best table, in the engine's syntax.
    outcomes
        None first, then the fixed settings (the best one first), the table, the engine's table.
    notes
        What is assumed or missing.
    """

    profile: str
    seed: int
    repeats: int
    load: str
    score: Score
    targets: tuple[Target, ...]
    schedule: Schedule
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]

    def of(self, role: Role) -> Outcome | None:
        """Return the first contender of that role."""
        return next((o for o in self.outcomes if o.contender.role == role), None)

    @property
    def table(self) -> Outcome:
        """The best table's outcome."""
        found = self.of("table")
        assert found is not None
        return found

    @property
    def best_static(self) -> Outcome:
        """The best of no speculation and the fixed settings."""
        static = [o for o in self.outcomes if o.contender.role in ("none", "fixed")]
        return max(static, key=lambda o: o.mean("score"))

    def gain(self, one: Outcome, other: Outcome) -> tuple[float, float]:
        """Return by how much one scores above the other, and the standard error (PAIRED-GAIN)."""
        pairs = zip(one.runs, other.runs, strict=True)
        ratios = np.array([a.score / b.score if b.score > 0 else math.nan for a, b in pairs]) - 1.0
        error = float(ratios.std(ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
        return float(ratios.mean()), error

    @property
    def worth_it(self) -> bool:
        """Whether the table beats every setting without one, by more than noise and a percent."""
        gain, error = self.gain(self.table, self.best_static)
        noise = 0.0 if math.isnan(error) else 2.0 * error
        return gain > max(noise, SWITCH_GAIN)
