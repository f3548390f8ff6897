"""Does the acceptance model's shape hold on rounds of our own server?

python benchmarks/figures_live_acceptance.py

The runs whose acceptance came as it is (SmolLM2-135M in F16, drafted by itself in Q4_0): every
round is a line of the server's log. Compared are acceptance by depth, the spread between requests
and the memory from round to round with what the acceptance model says for the same mean.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from specsim.acceptance import Acceptance, accept_table, rank_mass
from specsim.acceptance.prior import default_acceptance
from specsim.setting import SpecSetting

LOGS = Path(__file__).resolve().parent.parent / (
    "calibration/smollm2-135m-llama-server-2-core/logs"
)
ROUND = re.compile(r"task (\d+) \| accepted +(\d+)/ *(\d+) draft")
BINS = (0.3, 0.5, 0.7, 0.9, 0.99)
LEAST_ROUNDS = 10
"""Of a request, for its mean to say something."""

SHAPES = {
    "as EAGLE-3 drafters": Acceptance(),
    "standalone": replace(
        default_acceptance("llama.cpp", "STANDALONE"), accept_prob=Acceptance().accept_prob
    ),
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


def proposals() -> list[dict[str, Any]]:
    """Rounds with what the drafter thought of them (acceptance.py)."""
    with gzip.open(LOGS.parent / "rounds.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def confidence(rounds: list[dict[str, Any]]) -> list[tuple[float, float, int]]:
    """(mean probability the drafter gave, share accepted, drafts), by bins of that probability."""
    given, accepted = [], []
    for r in rounds:
        for depth, p in enumerate(r["p"][: r["accepted"] + 1]):  # judged: up to the first rejection
            given.append(p)
            accepted.append(depth < r["accepted"])
    p, hit = np.array(given), np.array(accepted)
    place = np.digitize(p, BINS)
    return [
        (float(p[place == b].mean()), float(hit[place == b].mean()), int((place == b).sum()))
        for b in range(len(BINS) + 1)
        if (place == b).any()
    ]


def ranks(rounds: list[dict[str, Any]]) -> tuple[np.ndarray, int]:
    """Where the drafter ranked the target's token at the first rejection: second, third, below."""
    found = np.array([r["target_rank"] for r in rounds if r["target_rank"] not in (None, 0)])
    return np.array([(found == rank).mean() for rank in (1, 2, 3)]), len(found)


def memory(rounds: list[np.ndarray]) -> float:
    """Correlation of neighbouring rounds of a request."""
    long = [r - r.mean() for r in rounds if len(r) >= LEAST_ROUNDS]
    return float(sum((r[:-1] * r[1:]).sum() for r in long) / sum((r * r).sum() for r in long))


def main() -> None:
    """Print the comparison."""
    h = rank_mass(3)
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
    everything = proposals()
    for temperature in sorted({r["temperature"] for r in everything}):
        rounds_at = [r for r in everything if r["temperature"] == temperature]
        print(f"temperature {temperature:g}, {len(rounds_at)} rounds: accepted by confidence")
        for said, accepted, count in confidence(rounds_at):
            print(f"  said {said:.2f}   accepted {accepted:.2f}   ({count} drafts)")
        share, count = ranks(rounds_at)
        print(
            f"  the target's token, where not the first: second {share[0]:.2f}, third "
            f"{share[1]:.2f} ({count} rejections; the model has {h[0]:.2f}, {h[1]:.2f})"
        )


if __name__ == "__main__":
    main()
