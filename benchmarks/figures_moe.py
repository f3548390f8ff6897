"""How well expert coverage explains the time of a MoE layer over the tokens of a batch.

Run: python benchmarks/figures_moe.py

One layer of Kimi-K2's shape (384 experts, top 8, INT4, TP 8), 8 to 512 tokens, six GPUs
(calibration/tables/moe_k2_int4_tp8.csv). Three numbers are fitted to the logarithms:

    T(t) = fixed + read N(t) + compute t,     N(t) = specsim.cost.active_experts

Beside it, on the same rows: without coverage (fixed + compute t), and the textbook's constant
cost of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from specsim.cost.model import active_experts

TABLE = Path(__file__).parents[1] / "calibration" / "tables" / "moe_k2_int4_tp8.csv"
EXPERTS, EXPERTS_PER_TOKEN = 384, 8
JUDGED = "rtx-pro-6000"
MEDIAN_TARGET, WORST_TARGET = 0.05, 0.12

Floats = NDArray[np.float64]


def measured() -> Iterator[tuple[str, Floats, Floats]]:
    """Yield GPU, tokens and seconds of each table, the judged GPU first."""
    tables = dict(tuple(pd.read_csv(TABLE).groupby("gpu")))
    for gpu in sorted(tables, key=lambda name: (name != JUDGED, name)):
        rows = tables[gpu].sort_values("num_tokens")
        yield gpu, rows["num_tokens"].to_numpy(float), rows["latency_s"].to_numpy(float)


def terms(tokens: Floats, model: str) -> Floats:
    """Return (rows, numbers): what each fitted number is multiplied with."""
    one, touched = np.ones_like(tokens), active_experts(tokens, EXPERTS, EXPERTS_PER_TOKEN)
    columns = {"coverage": [one, touched, tokens], "linear": [one, tokens], "constant": [one]}
    return np.stack(columns[model], axis=1)


def fit(tokens: Floats, seconds: Floats, model: str = "coverage") -> tuple[Floats, Floats]:
    """Fit positive numbers to ln(seconds): (numbers, model/measured - 1)."""
    design = terms(tokens, model)
    share = seconds.min() / 2 / design.mean(axis=0)
    result = least_squares(lambda p: np.log(design @ np.exp(p) / seconds), np.log(share))
    numbers = np.exp(result.x)
    return numbers, design @ numbers / seconds - 1.0


def main() -> None:
    """Print a table and the figure."""
    print(f"{'':14}{'fixed':>9}{'read':>13}{'compute':>14}{'coverage':>19}{'linear':>18}", end="")
    print(f"{'constant':>18}")
    print(f"{'GPU':14}{'us':>9}{'us/expert':>13}{'us/token':>14}" + "     median  worst" * 3)
    for gpu, tokens, seconds in measured():
        numbers, error = fit(tokens, seconds)
        line = "".join(
            f"{np.median(np.abs(e)):11.1%}{np.abs(e).max():7.1%}"
            for e in (error, fit(tokens, seconds, "linear")[1], fit(tokens, seconds, "constant")[1])
        )
        fixed, read, compute = numbers * 1e6
        print(f"{gpu:14}{fixed:9.1f}{read:13.3f}{compute:14.3f}{line}")
        if gpu == JUDGED:
            figure = (
                f"FIGURE MoE layer on {gpu}, {len(tokens)} rows of 8..512 tokens: median "
                f"{np.median(np.abs(error)):.1%} (target {MEDIAN_TARGET:.0%}), worst "
                f"{np.abs(error).max():.1%} (target {WORST_TARGET:.0%})"
            )
    print(figure)


if __name__ == "__main__":
    main()
