"""Do the decisions hold? The founding server, the EAGLE-3 paper, random simulated systems.

python benchmarks/figures_decide.py [SYSTEMS [FIRST]]    prints every figure; 200 take minutes

The systems are those of seeds FIRST (1000) and up: the threshold of dominance was chosen on 0-199.
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

import numpy as np
from random_systems import ORDERS, calibration_error, cells_needed, prior_profile, trial

from specsim.calibrate.fit import fit_profile
from specsim.decide.breakeven import break_even
from specsim.decide.recommend import recommend
from specsim.observations import Observation
from specsim.predict import predict
from specsim.profile import Profile, load_profile
from specsim.question import Question
from specsim.server import Setup, setup_from_mapping
from specsim.setting import SpecSetting, parse_algorithm

PAPER = Path(__file__).resolve().parent.parent / "calibration" / "tables" / "eagle3_paper.csv"
GIVEN = 2
"""Batch sizes of each series that the fit sees."""

LENGTHS = {"input_len": 100, "output_len": 200}
"""MT-Bench, assumed: the paper does not say."""


def paper_series() -> dict[tuple[str, str], list[dict[str, str]]]:
    """Rows of the paper by table and method."""
    series: dict[tuple[str, str], list[dict[str, str]]] = {}
    with PAPER.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            series.setdefault((row["table"], row["algorithm"]), []).append(row)
    return series


def paper_errors(rows: list[dict[str, str]]) -> tuple[list[int], list[float], list[float]]:
    """Batch sizes, predicted and published speed-ups; the first `GIVEN` are fitted.

    The paper gives ratios only, so throughput without speculation is the library's.
    """
    head = rows[0]
    setup = _paper_setup(head)
    steps = int(head["num_steps"])
    setting = SpecSetting(parse_algorithm(head["algorithm"]), 1, steps, steps + 1)
    batches = [int(row["batch_size"]) for row in rows]
    published = [float(row["speedup"]) for row in rows]
    plain = _speedups(prior_profile(setup, "library", 0.1), None, batches)
    cells = [
        Observation(kind="closed_loop", setting=s, concurrency=b, output_tps=tps * gain)
        for b, tps, ratio in list(zip(batches, plain, published, strict=True))[:GIVEN]
        for s, gain in ((SpecSetting.none(), 1.0), (setting, ratio))
    ]
    fitted = fit_profile(setup, cells).profile
    return batches, _speedups(fitted, setting, batches), published


def _paper_setup(head: dict[str, str]) -> Setup:
    algorithm = parse_algorithm(head["algorithm"])
    return setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {"gpu": head["gpu"]},
            "model": {"id": head["model"]},
            "draft": {"id": "eagle3" if algorithm == "EAGLE3" else "eagle"},
            "engine": {
                "name": head["engine"],
                "version": head["engine_version"],
                "max_running_requests": 128,
            },
            "workload": LENGTHS,
            "current": {"algorithm": algorithm, "topk": 1, "num_steps": int(head["num_steps"])},
        }
    )


def _speedups(profile: Profile, setting: SpecSetting | None, batches: list[int]) -> list[float]:
    """Throughput without speculation, or the speed-up of a setting."""
    asked = () if setting is None else (setting,)
    curve = predict(profile, Question(asked, tuple(batches)), solver="analytic")
    if setting is None:
        return [point.output_tps for point in curve.series[0].points]
    key = setting.key
    series = next(s for s in curve.series if s.points[0].setting.key == key)
    return [point.speedup or 0.0 for point in series.points]


def show_founding() -> None:
    """The founding server: choices, and topk=2 in both engine generations."""
    profile = load_profile()
    answer = recommend(profile, Question(concurrency=(1, 30, 100)))
    print("Founding server (measured: none at 1, topk=1 overlap at 30, a tie at 100):")
    for choice in answer.loads:
        tied = {o.plan.setting.speculates for o in (choice.choice, *choice.tied)}
        option = choice.choice
        print(
            f"  C={choice.concurrency:<4d} {option.label:26s} "
            f"gain {100 * option.gain.value:+.1f} %, regret {100 * option.regret:.1f} %"
            f"{', tied with and without speculation' if len(tied) == 2 else ''}"
        )
    for version in (None, "0.5.13"):
        question = Question((SpecSetting.of(2, 2),), (1, 30, 100), engine_version=version)
        asked = predict(profile, question, solver="analytic").of("asked")
        assert asked is not None
        cells = ", ".join(
            f"C={p.concurrency} {p.output_tps:.0f} tok/s ({100 * p.gain:+.0f} %)"
            for p in asked.points
        )
        print(f"  topk=2 steps=2 on {version or '0.5.9'}, {asked.points[0].scheduler}: {cells}")
    chain = profile.system().plan(SpecSetting.of(1, 2, scheduler="overlap"))
    curve = break_even(profile, chain, Question(concurrency=(1, 2, 5, 10, 20, 30, 50, 100)))
    print(
        f"  break-even of {chain.setting.name}: "
        + ", ".join(f"C={p.concurrency} {p.breakeven_accept_length:.2f}" for p in curve.points)
        + f" (expected {curve.points[0].expected_accept_length:.2f})"
    )


def show_paper() -> None:
    """EAGLE-3 paper, Tables 5 and 3."""
    print(
        f"\nEAGLE-3 paper, speed-up over batch size, first {GIVEN} given, mean error of the rest:"
    )
    for (table, algorithm), rows in paper_series().items():
        batches, found, published = paper_errors(rows)
        errors = [abs(a / b - 1) for a, b in zip(found, published, strict=True)][GIVEN:]
        cells = ", ".join(
            f"{b}: {a:.2f}/{c:.2f}" for b, a, c in zip(batches, found, published, strict=True)
        )
        print(f"  table {table} {algorithm:7s} {100 * np.mean(errors):.1f} %   {cells}")


def show_random(systems: int, first: int) -> None:
    """Random systems: regret of the recommendation, calibration of its probabilities."""
    print(f"\n{systems} random systems x 5 loads, 12 cells and three accept lengths measured:")
    for name, error, stated in (("the model is true", 0.0, 0.005), ("model error 3 %", 0.03, 0.03)):
        began = time.perf_counter()
        outcomes = [o for seed in range(first, first + systems) for o in trial(seed, error, stated)]
        regret = np.array([o.choice_regret for o in outcomes])
        best = np.array([o.best_regret for o in outcomes])
        odds = np.array([o.choice_probability for o in outcomes])
        hits = np.array([float(o.choice_wins) for o in outcomes])
        promised = np.mean([o.stated_regret for o in outcomes])
        print(
            f"  {name}: recommended within 2 % of the true best in {np.mean(regret <= 0.02):.1%} "
            f"(fastest expected {np.mean(best <= 0.02):.1%}), mean regret {regret.mean():.2%} "
            f"(stated {promised:.2%}), calibration error {calibration_error(odds, hits):.3f} "
            f"({time.perf_counter() - began:.0f} s)"
        )


def show_plans(systems: int, first: int) -> None:
    """Cells until the best guesses lose 1 %, by the order of the sweeps."""
    needed = [cells_needed(seed) for seed in range(first, first + systems)]
    means = ", ".join(f"{order} {np.mean([n[order] for n in needed]):.1f}" for order in ORDERS)
    print(f"\nCells until the choice loses at most 1 %, mean of {systems} systems: {means}")


def main() -> None:
    """Print every figure."""
    systems = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    show_founding()
    show_paper()
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    show_plans(max(1, systems // 4), first)
    show_random(systems, first)


if __name__ == "__main__":
    main()
