"""Parameters and KV bytes per token of library models beside the published ones.

Run: python benchmarks/figures_models.py

Published figures are rounded, some to two digits, which is part of the difference. Active
parameters are counted with the embedding where the publisher counts it (calibration/tables/
models.csv); KV bytes are those of a bf16 cache, one copy, all layers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specsim.architecture import load_model

TABLE = Path(__file__).parents[1] / "calibration" / "tables" / "models.csv"
TARGET = 0.02


@dataclass(frozen=True)
class Figure:
    """One published number and ours, in 1e9 or bytes."""

    model: str
    what: str
    ours: float
    published: float

    @property
    def error(self) -> float:
        """Ours against the published."""
        return self.ours / self.published - 1.0


def figures() -> Iterator[Figure]:
    """Yield each published number with ours."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            model = load_model(row["model"])
            embedding = 0 if model.tied_embeddings else model.head_params
            active = model.active_params + (embedding if row["active_has_embedding"] == "1" else 0)
            ours = {
                "total_b": model.total_params / 1e9,
                "active_b": active / 1e9,
                "kv_bytes_per_token": model.kv_bytes_per_token(),
            }
            for key, number in ours.items():
                if row[key]:
                    yield Figure(row["model"], key, number, float(row[key]))


def main() -> None:
    """Print a table and the figure."""
    found = list(figures())
    names = list(dict.fromkeys(figure.model for figure in found))
    print(f"{'':24}{'total, 1e9':>20}{'active, 1e9':>20}{'KV bytes/token':>22}")
    for name in names:
        cells = {f.what: f for f in found if f.model == name}
        line = "".join(
            f"{f'{cells[key].ours:.4g}':>{width - 9}}{cells[key].error:+9.1%}"
            if key in cells
            else " " * width
            for key, width in (("total_b", 20), ("active_b", 20), ("kv_bytes_per_token", 22))
        )
        print(f"{name:24}{line}".rstrip())
    worst = max(found, key=lambda figure: abs(figure.error))
    print(
        f"FIGURE models: {len(names)}, published numbers: {len(found)}, worst {worst.error:+.1%}"
        f" ({worst.model}, {worst.what}; target {TARGET:.0%})"
    )


if __name__ == "__main__":
    main()
