"""A curve over load: throughput with intervals, and measured cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specsim.curve import Curve, CurvePoint
from specsim.report import described_requests, engine_of, load_axis, series_labels
from specsim.report import figure as fig
from specsim.uncertainty import weakest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specsim.observations import Observation

Cells = tuple[tuple[float, float], ...]  # loads and tokens/s

SAME_LENGTH = 0.01  # requests that differ by more are other requests


def throughput_figure(
    curve: Curve,
    request_rate: float | None = None,
    measured: Sequence[Observation] = (),
) -> Figure:
    """Draw output tokens/s over load: a line and its 90 % band per setting.

    The measured cells that `measured_cells` finds for a setting are drawn in its colour;
    `request_rate` is that of an open loop, 1/s.
    """
    axis = load_axis(curve, request_rate)
    cells = measured_cells(curve, measured, request_rate)
    told = f"\nHollow: measured, {sum(map(len, cells))} of {len(measured)} cells."
    figure, axes = fig.new_figure(caption(curve) + (told if measured else ""))
    labels = series_labels(curve)
    if len(axis.values) == 1:
        _one_load(axes, curve, labels, cells)
    else:
        for i, series in enumerate(curve.series):
            tps, low, high = zip(*map(_rate, series.points), strict=True)
            fig.draw_line(axes, axis.values, tps, fig.Style.of(i), labels[i], (low, high))
        for i, found in enumerate(cells):  # last, so that the legend ends with them
            _draw_measured(axes, found, fig.Style.of(i))
        fig.load_ticks(axes, axis.values, logarithmic=axis.values[-1] >= 10 * axis.values[0])
    fig.legend(axes)
    axes.set_ylim(bottom=0)
    where = axis.at(0) if len(axis.values) == 1 else axis.label
    fig.frame(axes, curve.profile, where, "output (tokens/s, all requests together)")
    return figure


def measured_cells(
    curve: Curve, measured: Sequence[Observation], request_rate: float | None = None
) -> tuple[Cells, ...]:
    """Return loads and tokens/s of the measured cells that belong to each setting of a curve.

    A cell belongs where setting and kind of load are the same, and so are scheduler, engine
    version and lengths if it states them. At one load, cells of other loads are left out.
    """
    loads = load_axis(curve, request_rate).values
    found = []
    for series in curve.series:
        cells = []
        for cell in measured:
            load = cell.request_rate if cell.kind == "open_loop" else cell.concurrency
            if cell.output_tps is None or load is None or series.role == "alternative":
                continue
            shown = len(loads) > 1 or math.isclose(load, loads[0], rel_tol=1e-6)
            if shown and _belongs(cell, series.points[0], request_rate is not None):
                cells.append((float(load), cell.output_tps))
        found.append(tuple(cells))
    return tuple(found)


def _belongs(cell: Observation, head: CurvePoint, open_loop: bool) -> bool:
    """Whether a cell was measured under the setting and the requests of a curve's point."""
    steady = head.context_len is not None
    kind = "open_loop" if open_loop else "steady_decode" if steady else "closed_loop"
    stated = [
        (cell.input_len, None if steady else head.input_len),
        (cell.output_len, None if steady else head.output_len),
        (cell.context_len or 0.0, head.context_len),
    ]
    return (
        cell.kind == kind
        and (cell.setting.key, cell.setting.algorithm) == (head.setting.key, head.algorithm)
        and cell.setting.scheduler in ("auto", head.scheduler)
        and cell.engine_version in (None, head.engine_version)
        and all(
            there is None or here is None or math.isclose(here, there, rel_tol=SAME_LENGTH)
            for here, there in stated
        )
    )


def caption(curve: Curve) -> str:
    """Say what the plot shows, and what it rests on."""
    head = curve.series[0].points[0]
    weak = weakest(point.evidence for point in curve.rows)
    return (
        f"Profile {curve.profile}, {engine_of(head)}; {described_requests(curve)}.\n"
        f"Bands: central 90 % of the prediction (solver {curve.solver}, seed {curve.seed}). "
        f"Weakest evidence: {weak}."
    )


def _rate(point: CurvePoint) -> tuple[float, float, float]:
    return point.output_tps, point.output_tps_low, point.output_tps_high


def _one_load(axes: Axes, curve: Curve, labels: Sequence[str], measured: Sequence[Cells]) -> None:
    for i, series in enumerate(curve.series):
        style = fig.Style.of(i)
        tps, low, high = _rate(series.points[0])
        errors = [[tps - low], [high - tps]]
        axes.errorbar(i, tps, errors, color=style.colour, marker=style.marker, capsize=5)
        _draw_measured(axes, [(float(i), cell) for _, cell in measured[i]], style)
    for words in (" (", " on ", " tokens="):  # on a line of its own
        labels = [label.replace(words, "\n" + words.lstrip()) for label in labels]
    axes.set_xticks(range(len(labels)), labels, fontsize="small")
    axes.set_xlim(-0.5, len(labels) - 0.5)


def _draw_measured(axes: Axes, cells: Sequence[tuple[float, float]], style: fig.Style) -> None:
    """Draw hollow markers, which the legend names once."""
    if not cells:
        return
    loads, tps = zip(*cells, strict=True)
    named = "measured" in axes.get_legend_handles_labels()[1]
    label = None if named else "measured"
    looks: dict[str, Any] = {"facecolors": "none", "edgecolors": style.colour}
    axes.scatter(
        loads, tps, 70, marker=style.marker, linewidths=1.6, zorder=3, label=label, **looks
    )
