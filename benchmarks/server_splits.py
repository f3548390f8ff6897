"""Servers that nobody here built, and the splits of their cells (see `figures_servers.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specsim.observations import Observation, read_observations
from specsim.server import Setup, read_setup

EVIDENCE = Path(__file__).resolve().parent.parent / "calibration"
MOST_CELLS, MOST_LEFT_OUT = 24, 12
CLEAR = 0.05
"""A measured gain below this has no sign to be right about."""


@dataclass(frozen=True, slots=True)
class Server:
    """One server: what it is, and its measured cells."""

    name: str
    setup: Setup
    cells: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Cells that are given, and those that are asked for."""

    given: tuple[Observation, ...]
    asked: tuple[Observation, ...]


def servers() -> Iterator[Server]:
    """All servers with evidence in this repository."""
    for path in sorted(EVIDENCE.rglob("setup.toml")):
        cells = read_observations(path.with_name("observations.csv")).rows
        name = str(path.parent.relative_to(EVIDENCE)).removeprefix("servers/")
        yield Server(name, read_setup(path), thinned(cells))


def thinned(cells: Sequence[Observation]) -> tuple[Observation, ...]:
    """Cells with a throughput; of a long sweep those of two contexts and two prompt lengths."""
    kept = [c for c in cells if c.output_tps is not None]
    for length in ("context_len", "input_len"):
        values = sorted({getattr(c, length) or 0.0 for c in kept})
        if len(kept) > MOST_CELLS and len(values) > 2:
            two = (values[0], values[len(values) // 2])
            kept = [c for c in kept if (getattr(c, length) or 0.0) in two]
    return tuple(kept)


def accept_lengths(cells: Sequence[Observation]) -> list[Observation]:
    """Rows that state the mean accept length of each setting and dataset, and nothing else."""
    groups: dict[object, list[Observation]] = {}
    for c in cells:
        if c.setting.speculates and c.accept_length is not None:
            groups.setdefault((c.setting.key, c.dataset), []).append(c)
    return [
        replace(
            group[0],
            **dict.fromkeys(("output_tps", "tpot_s", "itl_s", "round_time_s", "ttft_s")),
            survival=(),
            accept_length=float(np.mean([c.accept_length for c in group if c.accept_length])),
            accept_length_scope="run",
        )
        for group in groups.values()
    ]


def splits(server: Server, which: str) -> list[Split]:
    """Splits of one kind; none where the server does not have what it takes."""
    plain = [c for c in server.cells if not c.setting.speculates]
    drafting = [c for c in server.cells if c.setting.speculates]
    stated = accept_lengths(drafting)
    if which == "C":
        cells = server.cells
        step = max(len(cells) / MOST_LEFT_OUT, 1.0)
        chosen = [int(i * step) for i in range(min(len(cells), MOST_LEFT_OUT))]
        return [Split((*cells[:i], *cells[i + 1 :]), (cells[i],)) for i in chosen]
    if not plain or not drafting:
        return []
    if which == "A":
        known = {(c.setting.key, c.dataset) for c in stated}
        told = all((c.setting.key, c.dataset) in known for c in drafting)
        return [Split((*plain, *stated), tuple(drafting))] if told else []
    current = server.setup.current
    today = [c for c in drafting if current is None or c.setting.key == current.key] or drafting
    least = min((c.context_len or 0.0, c.input_len or 0.0) for c in today)
    near = [c for c in today if (c.context_len or 0.0, c.input_len or 0.0) == least]
    one = sorted(near, key=lambda c: c.concurrency or 0)[len(near) // 2]
    rest = tuple(c for c in drafting if c is not one)
    return [Split((*plain, *stated, one), rest)] if rest else []


@dataclass(frozen=True, slots=True)
class Prediction:
    """One asked cell: measured and predicted throughput, and the interval where there is one."""

    cell: Observation
    predicted: float
    inside: bool | None = None
    gain: float | None = None  # predicted over no speculation at the same load and lengths
    measured_gain: float | None = None

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / float(self.cell.output_tps or np.nan) - 1.0
