"""Plots: throughput over load with intervals, legible in grey and to the colour-blind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from specsim.curve import Curve, CurvePoint, Series
from specsim.evidence import weakest
from specsim.report.figure import SIZE_INCHES, STYLES, Style, frame, load_ticks
from specsim.report.words import LoadAxis, described_requests, load_axis, series_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specsim.observations import Observation

Cells = tuple[tuple[float, float], ...]
"""Loads and tokens/s."""

TICK_GAP = 0.045
"""Loads nearer to each other than this share of the axis are not both labelled."""

SAME_LENGTH = 0.01
"""Requests that differ by more are other requests."""


def throughput_figure(
    curve: Curve,
    request_rate: float | None = None,
    measured: Sequence[Observation] = (),
) -> Figure:
    """Draw output tokens/s over load: a line and its 90 % band per setting.

    Parameters
    ----------
    curve
        What to draw.
    request_rate
        Of an open loop, 1/s.
    measured
        Measured cells; those that `measured_cells` finds for a setting are drawn in its colour.
    """
    from matplotlib.figure import Figure

    axis = load_axis(curve, request_rate)
    cells = measured_cells(curve, measured, request_rate)
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    if len(axis.values) == 1:
        _one_load(axes, curve, axis, cells)
    else:
        _many_loads(axes, curve, axis, cells)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize="small")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("output (tokens/s, all requests together)")
    axes.grid(True, color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(curve.profile, loc="left", fontsize="medium")
    words = caption(curve)
    if measured:
        words += f"\nHollow: measured, {sum(map(len, cells))} of {len(measured)} cells."
    figure.supxlabel(words, fontsize="x-small", x=0.01, ha="left")
    return figure


def measured_cells(
    curve: Curve, measured: Sequence[Observation], request_rate: float | None = None
) -> tuple[Cells, ...]:
    """Return loads and tokens/s of the measured cells that belong to each setting of a curve.

    A cell belongs where setting and kind of load are the same, and so are scheduler, engine
    version and lengths if it states them. At one load, cells of other loads are left out.

    Parameters
    ----------
    curve
        Predictions.
    measured
        Cells of any settings and loads.
    request_rate
        Of an open loop, 1/s.
    """
    axis = load_axis(curve, request_rate)
    found = []
    for series in curve.series:
        cells = []
        for cell in measured:
            load = cell.request_rate if cell.kind == "open_loop" else cell.concurrency
            if cell.output_tps is None or load is None or series.role == "alternative":
                continue
            shown = len(axis.values) > 1 or math.isclose(load, axis.values[0], rel_tol=1e-6)
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
        f"Profile {curve.profile}, {head.engine} {head.engine_version}; "
        f"{described_requests(curve)}.\n"
        f"Bands: central 90 % of the prediction (solver {curve.solver}, seed {curve.seed}). "
        f"Weakest evidence: {weak}."
    )


def _labels(curve: Curve) -> list[str]:
    """Names of the series, with what a reader must know of them."""
    labels = []
    for name, series in zip(series_names(curve), curve.series, strict=True):
        words = ["runs today"] if series.role == "current" else []
        words += ["what-if"] if series.points[0].what_if else []
        labels.append(f"{name} ({', '.join(words)})" if words else name)
    return labels


def _many_loads(axes: Axes, curve: Curve, axis: LoadAxis, measured: Sequence[Cells]) -> None:
    """Draw a line and a band per setting."""
    for i, label in enumerate(_labels(curve)):
        _draw_line(axes, curve.series[i], axis.values, label, STYLES[i % len(STYLES)])
    for i, cells in enumerate(measured):  # last, so that the legend ends with them
        _draw_measured(axes, cells, STYLES[i % len(STYLES)])
    _scale(axes, axis)
    axes.set_xlabel(axis.label)


def _one_load(axes: Axes, curve: Curve, axis: LoadAxis, measured: Sequence[Cells]) -> None:
    """Draw the settings side by side."""
    for i, series in enumerate(curve.series):
        colour, _, marker = style = STYLES[i % len(STYLES)]
        p = series.points[0]
        errors = [[p.output_tps - p.output_tps_low], [p.output_tps_high - p.output_tps]]
        axes.errorbar(i, p.output_tps, errors, color=colour, marker=marker, capsize=5)
        cells = [(float(i), tps) for _, tps in measured[i]]
        _draw_measured(axes, cells, style)
    labels = _labels(curve)
    for words in (" (", " on ", " tokens="):  # on a line of its own
        labels = [label.replace(words, "\n" + words.lstrip()) for label in labels]
    axes.set_xticks(range(len(labels)), labels, fontsize="small")
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_xlabel(axis.at(0))


def _draw_line(
    axes: Axes, series: Series, loads: Sequence[float], label: str, style: Style
) -> None:
    colour, line, marker = style
    low = [p.output_tps_low for p in series.points]
    high = [p.output_tps_high for p in series.points]
    axes.fill_between(loads, low, high, color=colour, alpha=0.12, linewidth=0)
    for edge in (low, high):
        axes.plot(loads, edge, color=colour, linestyle=line, linewidth=0.6)
    middle = [p.output_tps for p in series.points]
    axes.plot(loads, middle, color=colour, linestyle=line, marker=marker, markersize=4, label=label)


def _draw_measured(axes: Axes, cells: Sequence[tuple[float, float]], style: Style) -> None:
    """Draw hollow markers."""
    if not cells:
        return
    colour, _, marker = style
    already = "measured" in axes.get_legend_handles_labels()[1]
    axes.scatter(
        [load for load, _ in cells],
        [tps for _, tps in cells],
        s=70,
        facecolors="none",
        edgecolors=colour,
        linewidths=1.6,
        marker=marker,
        zorder=3,
        label=None if already else "measured",
    )


def _scale(axes: Axes, axis: LoadAxis) -> None:
    """Logarithmic loads where they span a decade, with the loads themselves as ticks."""
    from matplotlib.ticker import NullLocator

    values = axis.values
    if values[-1] >= 10 * values[0]:
        axes.set_xscale("log")
        places = [math.log(v) for v in values]
    else:
        places = list(values)
    shown, last = [], -math.inf
    for j, place in enumerate(places):
        if place - last >= TICK_GAP * (places[-1] - places[0]):
            shown.append(j)
            last = place
    axes.set_xticks([values[j] for j in shown], [axis.number(j) for j in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def plot_speedup(axes: Axes, curve: Curve, request_rate: float | None = None) -> Axes:
    """Draw the gain over no speculation over load, per cent, with 90 % bands.

    Parameters
    ----------
    axes
        Where.
    curve
        What; its baseline is the zero line.
    request_rate
        Of an open loop, 1/s.
    """
    axis = load_axis(curve, request_rate)
    axes.axhline(0.0, color="black", linewidth=1.2)
    for i, (name, series) in enumerate(zip(series_names(curve), curve.series, strict=True)):
        if series.role == "baseline":
            continue
        colour, line, marker = STYLES[i % len(STYLES)]
        rows = np.array([(c.gain, c.gain_low, c.gain_high) for c in series.comparisons]) * 100.0
        label = f"{name} (runs today)" if series.role == "current" else name
        axes.fill_between(axis.values, rows[:, 1], rows[:, 2], color=colour, alpha=0.12, lw=0)
        for edge in (1, 2):
            axes.plot(axis.values, rows[:, edge], color=colour, linestyle=line, linewidth=0.6)
        axes.plot(
            axis.values, rows[:, 0], color=colour, linestyle=line, marker=marker, markersize=4,
            label=label,
        )  # fmt: skip
    frame(axes, curve.profile, axis.label, "tokens/s against no speculation (%)")
    if len(axis.values) > 1:
        load_ticks(axes, axis.values)
    else:
        axes.set_xticks(list(axis.values), [axis.number(0)])
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize="small")
    return axes
