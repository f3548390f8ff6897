"""How well a few Hockney pieces carry an all-reduce to message sizes that were not measured.

Run: python benchmarks/figures_allreduce.py

Pieces are fitted to every other size of a measured table (calibration/tables/allreduce.csv); the
sizes between, 16 KiB to 4 MiB, are predicted. Beside it, on the same sizes: one piece for all
sizes, which is the model without protocol switches, and the fit to the other half of the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specsim.cost.allreduce import fit_allreduce

TABLE = Path(__file__).parents[1] / "calibration" / "tables" / "allreduce.csv"
LEAST_BYTES, MOST_BYTES = 16 * 1024, 4 * 1024**2
MEDIAN_TARGET, WORST_TARGET = 0.08, 0.20


def measured() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each measured table with its name."""
    for (gpu, path, num_gpus), rows in pd.read_csv(TABLE).groupby(["gpu", "path", "num_gpus"]):
        yield f"{num_gpus}x {gpu} {path}", rows.sort_values("bytes")


def held_out(rows: pd.DataFrame, start: int, max_pieces: int = 3) -> NDArray[np.float64]:
    """Return predicted/measured - 1 of the sizes between those that are fitted.

    Parameters
    ----------
    rows
        One table, in order of size.
    start
        0: every other size from the smallest is fitted; 1: from the second.
    max_pieces
        As for :func:`specsim.cost.fit_allreduce`.
    """
    size, time = rows["bytes"].to_numpy(float), rows["latency_s"].to_numpy(float)
    fitted = np.arange(len(size)) % 2 == start
    curve = fit_allreduce(size[fitted], time[fitted], max_pieces)
    asked = ~fitted & (size >= LEAST_BYTES) & (size <= MOST_BYTES)
    return curve.time_s(size[asked]) / time[asked] - 1.0


def main() -> None:
    """Print a table and the figure."""
    print(f"{'all-reduce':28}{'fitted':>14}{'one piece':>18}{'other half':>18}")
    print(f"{'':28}" + "    median  worst" * 3)
    errors: dict[str, list[NDArray[np.float64]]] = {"fitted": [], "one piece": [], "other half": []}
    for name, rows in measured():
        cells = (held_out(rows, 0), held_out(rows, 0, 1), held_out(rows, 1))
        line = ""
        for kind, error in zip(errors, cells, strict=True):
            errors[kind].append(np.abs(error))
            line += f"{np.median(np.abs(error)):9.1%} {np.abs(error).max():7.1%}"
        print(f"{name:28}{line}")
    for kind in ("one piece", "other half"):
        pooled = np.concatenate(errors[kind])
        print(f"{kind}: median {np.median(pooled):.1%}, worst {pooled.max():.1%}")
    worst_median = max(float(np.median(error)) for error in errors["fitted"])
    pooled = np.concatenate(errors["fitted"])
    print(
        f"FIGURE all-reduce, {pooled.size} held-out sizes: median {np.median(pooled):.1%} "
        f"(of a table at most {worst_median:.1%}, target {MEDIAN_TARGET:.0%}), "
        f"worst {pooled.max():.1%} (target {WORST_TARGET:.0%})"
    )


if __name__ == "__main__":
    main()
