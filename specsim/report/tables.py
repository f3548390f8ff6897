"""Tables for the terminal: a curve over its loads, settings side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specsim.curve import Curve, Series
from specsim.decide import Option, Verdict
from specsim.decide import whole_percent as percent
from specsim.report import LoadAxis, View, amount, engine_of, load_axis, series_names

if TYPE_CHECKING:
    from rich.table import Table

ROLES = {"baseline": "", "current": "runs today", "asked": "asked"}

GAP = 2  # spaces between columns

COLOURS = {r"\+\d+ %$": "green", r"-\d+ %$": "red"}
"""Of the gain at the end of a cell; its sign is printed all the same."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One setting: heading lines and a cell per load."""

    heading: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        return max(map(len, (*self.heading, *self.cells)))


def throughput_tables(
    curve: Curve, verdict: Verdict, width: int, request_rate: float | None = None
) -> list[Table]:
    """Lay out output tokens/s with interval and gain over no speculation.

    A row per load, a column per setting; more tables than one where the settings do not fit side
    by side into `width` characters. `request_rate` is that of an open loop, 1/s.
    """
    mixed = len({series.points[0].algorithm for series in curve.series} - {"none"}) > 1
    view = View.of(curve, verdict, request_rate)
    columns = [
        _throughput(series, _heading(series, mixed, view.option(i, 0)))
        for i, series in enumerate(curve.series)
    ]
    return _tables(columns, load_axis(curve, request_rate), width)


def batch_tables(curve: Curve, width: int, request_rate: float | None = None) -> list[Table]:
    """Lay out running requests, time per output token and what limits."""
    names = series_names(curve)
    columns = [
        _batch(series, _folded(name)) for series, name in zip(curve.series, names, strict=True)
    ]
    return _tables(columns, load_axis(curve, request_rate), width)


def _heading(series: Series, mixed: bool, option: Option) -> tuple[str, ...]:
    """Name, tokens and scheduler, role, accept length with its 90 %: what holds at every load."""
    head = series.points[0]
    role = ROLES.get(series.role, f"on {engine_of(head)}")
    if head.what_if:
        role = f"{role}, what-if".removeprefix(", ")
    if head.algorithm == "none":
        return "no speculation", head.scheduler, role, ""
    name = f"{head.algorithm} " if mixed else ""
    name += f"topk={head.topk} steps={head.num_steps}"
    tokens = f"{head.num_draft_tokens} tokens, {head.scheduler}"
    low, high = option.accept_length_low, option.accept_length_high
    accept = f"{amount(head.accept_length)} ({low:.1f}-{high:.1f})"
    return name, tokens, role, f"accepts {accept}"


def _folded(name: str) -> tuple[str, str]:
    """Put a name on two lines."""
    for separator in (", ", " on "):
        if separator in name:
            first, rest = name.split(separator, 1)
            return first, f"{separator.strip(', ')} {rest}".strip()
    return name, ""


def _throughput(series: Series, heading: tuple[str, ...]) -> _Column:
    """Lay out tokens/s, interval, gain."""
    rates = [p.output_tps for p in series.points]
    ends = [tps for p in series.points for tps in (p.output_tps_low, p.output_tps_high)]
    digits = 0 if max(rates) >= 9999.5 else _digits(min(rates), 99.95)
    rough = _digits(min(ends), 9.995)
    rows = [
        (
            f"{p.output_tps:.{digits}f}",
            f"({p.output_tps_low:.{rough}f}-{p.output_tps_high:.{rough}f})",
            "" if series.role == "baseline" else percent(p.gain),
        )
        for p in series.points
    ]
    return _Column(heading, tuple(_aligned(rows)))


def _batch(series: Series, heading: tuple[str, ...]) -> _Column:
    """Lay out running requests, milliseconds per output token, what limits."""
    digits = _digits(min(1e3 * p.tpot_s for p in series.points), 99.95)
    rows = [(f"{p.batch_size:.1f}", f"{1e3 * p.tpot_s:.{digits}f}", p.limit) for p in series.points]
    title, *lines = _aligned([("run", "TPOT ms", "limit"), *rows])
    return _Column((*heading, title), tuple(lines))


def _digits(smallest: float, enough: float) -> int:
    """Decimals that leave the smallest number of a column three digits (or two)."""
    return 0 if smallest >= enough else 1 if smallest >= enough / 10 else 2


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Pad the parts of each row so that they stand below each other."""
    widths = [max(map(len, part)) for part in zip(*rows, strict=True)]
    return [
        " ".join(text.rjust(w) for text, w in zip(row, widths, strict=True) if w) for row in rows
    ]


def _tables(columns: Sequence[_Column], axis: LoadAxis, width: int) -> list[Table]:
    """Lay the columns out, and go on in a further table where the width is used up."""
    numbers = [axis.number(j) for j in range(len(axis.values))]
    room = width - max(len(text) for text in (axis.heading, *numbers))
    groups: list[list[_Column]] = []
    free = 0
    for column in columns:
        if not groups or column.width + GAP > free:
            groups.append([])
            free = room
        groups[-1].append(column)
        free -= column.width + GAP
    return [_table(group, axis.heading, numbers) for group in groups]


def _table(columns: Sequence[_Column], heading: str, numbers: Sequence[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    lines = max(len(column.heading) for column in columns)
    table.add_column("\n" * (lines - 1) + heading, justify="right", no_wrap=True)
    for column in columns:
        table.add_column("\n".join(column.heading), justify="right", no_wrap=True)
    for j, number in enumerate(numbers):
        cells = [Text(column.cells[j]) for column in columns]
        for cell in cells:
            for pattern, colour in COLOURS.items():
                cell.highlight_regex(pattern, colour)
        table.add_row(number, *cells)
    return table
