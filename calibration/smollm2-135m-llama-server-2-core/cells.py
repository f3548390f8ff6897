"""The cells of the measurement: targets, drafters, pinned acceptance, concurrency."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

CONDITIONAL = {
    "high": (0.80, 0.75, 0.70, 0.65, 0.60),
    "low": (0.50, 0.45, 0.40, 0.35, 0.30),
}
"""P(draft d is accepted | drafts before it were), by level and depth; the server takes products."""

NGRAM_KEY = 3
"""Tokens that must repeat before ngram-simple drafts what followed them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting under one load.

    Parameters
    ----------
    target
        ``q4_1`` (the file as it comes), ``f16`` or ``f32``.
    kind
        ``none``, ``chain`` (10-layer draft, pinned acceptance), ``real`` (requantised draft of
        full depth, acceptance as it comes) or ``ngram``.
    steps
        Tokens drafted per round.
    level
        Level of pinned acceptance.
    concurrency
        Closed-loop clients.
    """

    target: str
    kind: str
    steps: int
    level: str
    concurrency: int

    @property
    def name(self) -> str:
        """Name, used for files."""
        setting = {"none": "none", "ngram": f"ngram{self.steps}", "real": f"real{self.steps}"}
        middle = setting.get(self.kind, f"chain{self.steps}-{self.level}")
        return f"{self.target}-{middle}-c{self.concurrency}"

    @property
    def rates(self) -> tuple[float, ...]:
        """P(at least d drafts accepted), d = 1 .. steps, where acceptance is pinned."""
        if self.kind != "chain":
            return ()
        return tuple(round(p, 6) for p in accumulate(CONDITIONAL[self.level][: self.steps], mul))


def all_cells() -> list[Cell]:
    """Return the 72 cells."""
    cells = [Cell(t, "none", 0, "", c) for t in ("q4_1", "f16") for c in (1, 2, 4, 8, 16)]
    cells += [Cell("f32", "none", 0, "", c) for c in (1, 4, 8)]
    for target, level, depths in (
        ("q4_1", "high", (1, 2, 3, 5)),
        ("q4_1", "low", (1, 3)),
        ("f16", "high", (1, 2, 3, 5)),
        ("f16", "low", (1, 2, 3, 5)),
        ("f32", "high", (1, 3, 5)),
    ):
        cells += [Cell(target, "chain", s, level, c) for s in depths for c in (1, 4, 8)]
    cells += [Cell("f16", "real", 3, "", c) for c in (1, 4, 8)]
    cells += [Cell("f16", "real", 5, "", c) for c in (1, 8)]
    cells += [Cell("f16", "ngram", 5, "", c) for c in (1, 4, 8)]
    return cells


def chosen_cells(names: str) -> list[Cell]:
    """Return the cells of these names, commas between; all of them for ``all``."""
    cells = {cell.name: cell for cell in all_cells()}
    return list(cells.values()) if names == "all" else [cells[name] for name in names.split(",")]


def smoke_cells() -> list[Cell]:
    """Return three cells: one of no speculation, one pinned, one real."""
    return [
        Cell("q4_1", "none", 0, "", 1),
        Cell("f16", "chain", 2, "high", 2),
        Cell("f16", "real", 3, "", 1),
    ]


def anchors(number: int) -> list[Cell]:
    """Return the cells that are repeated to see the machine drift: the targets take turns."""
    target = "q4_1" if number % 2 == 0 else "f16"
    return [Cell(target, "none", 0, "", c) for c in (1, 8)]


def schedule(cells: list[Cell], passes: int) -> Iterator[tuple[int, Cell]]:
    """Yield (pass, cell), each pass in an order of its own."""
    for number in range(passes):
        order = list(cells)
        random.Random(f"order {number}").shuffle(order)
        yield from ((number, cell) for cell in order)
