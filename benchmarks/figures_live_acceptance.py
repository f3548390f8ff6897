"""Does the acceptance model's shape hold on rounds of our own server?

python benchmarks/figures_live_acceptance.py

The runs whose acceptance came as it is (SmolLM2-135M in F16, drafted by itself in Q4_0): every
round is a line of the server's log. Compared are acceptance by depth, the spread between requests
and the memory from round to round with what the acceptance model says for the same mean.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from specsim.acceptance import Acceptance, accept_table
from specsim.profile.priors import STANDALONE_DECAY, STANDALONE_SPREAD
from specsim.setting import SpecSetting

LOGS = Path(__file__).resolve().parent.parent / (
    "calibration/smollm2-135m-llama-server-2-core/logs"
)
ROUND = re.compile(r"task (\d+) \| accepted +(\d+)/ *(\d+) draft")
LEAST_ROUNDS = 10
"""Of a request, for its mean to say something."""

SHAPES = {
    "as EAGLE-3 drafters": Acceptance(),
    "standalone": Acceptance(decay=STANDALONE_DECAY, request_spread=STANDALONE_SPREAD),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Conditional acceptance by depth, and the spread of a request's mean of accepted drafts."""

    accept_prob: np.ndarray
    request_sd: float


def requests(steps: int) -> list[np.ndarray]:
    """Accepted drafts of every round that drafted in full, by request."""
    found: dict[tuple[str, str], list[int]] = {}
    for path in sorted(LOGS.glob(f"*-real{steps}-*.log.gz")):
        with gzip.open(path, "rt", errors="replace") as lines:
            for line in lines:
                match = ROUND.search(line)
                if match and int(match[3]) == steps:
                    found.setdefault((path.name, match[1]), []).append(int(match[2]))
    return [np.array(rounds) for rounds in found.values()]


def measured(rounds: list[np.ndarray], steps: int) -> Shape:
    """Shape of rounds; the noise of a finite number of them is taken off the spread."""
    everything = np.concatenate(rounds)
    reached = np.array([(everything >= depth).sum() for depth in range(steps + 1)])
    long = [r for r in rounds if len(r) >= LEAST_ROUNDS]
    means = np.array([r.mean() for r in long])
    noise = np.mean([r.var(ddof=1) / len(r) for r in long])
    return Shape(reached[1:] / reached[:-1], float(np.sqrt(max(means.var(ddof=1) - noise, 0.0))))


def modelled(acceptance: Acceptance, steps: int, accept_length: float) -> Shape:
    """Shape of the model at the same accept length."""
    setting = SpecSetting.of(1, steps)

    def excess(level: float) -> float:
        return accept_table(replace(acceptance, level=level), setting).accept_length - accept_length

    table = accept_table(replace(acceptance, level=float(brentq(excess, -5, 5))), setting)
    weight = 1.0 / table.per_request
    survival = (table.survival * (weight / weight.sum())[:, None]).sum(axis=0)
    return Shape(survival[1:] / survival[:-1], float(table.per_request.std()))


def memory(rounds: list[np.ndarray]) -> float:
    """Correlation of neighbouring rounds of a request."""
    long = [r - r.mean() for r in rounds if len(r) >= LEAST_ROUNDS]
    return float(sum((r[:-1] * r[1:]).sum() for r in long) / sum((r * r).sum() for r in long))


def main() -> None:
    """Print the comparison."""
    for steps in (3, 5):
        rounds = requests(steps)
        count = sum(len(r) for r in rounds)
        accept_length = 1.0 + float(np.concatenate(rounds).mean())
        print(
            f"chain of {steps}: {len(rounds)} requests, {count} rounds, "
            f"accept length {accept_length:.2f}"
        )
        shapes = {"measured": measured(rounds, steps)} | {
            name: modelled(shape, steps, accept_length) for name, shape in SHAPES.items()
        }
        for name, shape in shapes.items():
            depths = " ".join(f"{p:.2f}" for p in shape.accept_prob)
            print(f"  {name:20} by depth {depths}   between requests ±{shape.request_sd:.2f}")
        print(f"  correlation of neighbouring rounds {memory(rounds):.2f} (model: 0)")


if __name__ == "__main__":
    main()
