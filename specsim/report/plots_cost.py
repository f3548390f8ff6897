"""Plots of what a setting must yield, and of how well a profile fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.calibrate.validate import Validation
from specsim.decide.breakeven import GainMap
from specsim.report import figure as fig

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = (-60, -40, -20, -10, 0, 10, 20, 40, 60, 100, 150)
"""Gains at which the break-even map has a line, per cent."""

UNITS = {"output_tps": "tokens/s", "tpot_s": "s per token", "round_time_s": "s per round"}
"""Of what a validated cell has measured."""


def plot_gain_map(axes: Axes, gains: GainMap) -> Axes:
    """Draw lines of equal gain over load and accept length; where it loses is shaded."""
    x, y, percent = list(gains.concurrency), gains.accept_length, 100.0 * gains.gain
    fig.load_ticks(axes, x)  # before the labels, which are put where the lines are on the screen
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(1.0, float(y.max()))
    axes.contourf(x, y, percent, levels=[-1e3, -20.0, 0.0], colors=["0.80", "0.91"])
    levels = [level for level in LEVELS if percent.min() < level < percent.max()]
    if levels:
        widths = [2.4 if level == 0 else 0.9 for level in levels]
        lines = axes.contour(x, y, percent, levels=levels, colors=fig.BLUE, linewidths=widths)
        lines.set(linestyle=["--" if level < 0 else "-" for level in levels])
        for word in axes.clabel(lines, fmt=lambda v: f"{v:+.0f} %" if v else "0 %", fontsize=8):
            word.set_bbox(fig.BACKING)
    axes.axhline(gains.expected, color=fig.VERMILION, linestyle="-.", linewidth=1.6, zorder=1.5)
    words, place = f"expected: {gains.expected:.2f}", (x[-1], gains.expected)
    fig.note(axes, words, place, (-4, 4), ha="right", color=fig.VERMILION, bbox=fig.BACKING)
    fig.frame(
        axes,
        f"{gains.name}: gain over no speculation",
        "clients in flight (requests)",
        "accept length, bonus included (tokens)",
        grid="none",
    )
    return axes


def plot_residuals(axes: Axes, validation: Validation) -> Axes:
    """Draw the error of each cell with its 90 % interval, over what was measured."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    styles: dict[str, fig.Style] = {}
    for row in validation.rows:
        setting = row.observation.setting
        name = setting.label if setting.speculates else "no speculation"
        label = f"_{name}" if name in styles else name  # the legend names it once
        colour, _, marker = styles.setdefault(name, fig.Style.of(len(styles)))
        error, low, high = (
            100 * (x / row.measured - 1) for x in (row.predicted, row.low, row.high)
        )
        bars = [[error - low], [high - error]]
        looks: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": "none"}
        looks |= {"capsize": 3, "linewidth": 0.9, "markersize": 5}
        axes.errorbar(row.measured, error, bars, label=label, **looks)
    axes.axhline(0.0, color="black", linewidth=1.0)
    what = " or ".join(UNITS[q] for q in sorted({row.quantity for row in validation.rows}))
    title = (
        f"mean absolute error {100 * validation.mape:.1f} %, "
        f"{100 * validation.coverage:.0f} % of {len(validation.rows)} inside their interval"
    )
    fig.frame(axes, title, f"measured ({what})", "predicted against measured (%)")
    axes.set_xscale("log", subs=(2, 5))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    low, high = axes.get_xlim()
    decade = 10.0 ** np.floor(np.log10(low))
    ticks = [m * decade * 10**e for e in range(9) for m in (1, 2, 5)]
    axes.set_xticks([t for t in ticks if low <= t <= high])
    axes.xaxis.set_minor_formatter(NullFormatter())
    fig.legend(axes)
    return axes
