"""Predicted against measured throughput of our own live server, every cell."""

import functools
import sys
from pathlib import Path

from founding import Rows, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))
import figures_live as live

HEADER = ("cell", "concurrency", "given", "measured", "predicted", "low", "high")
LOOKS = {"q4_1": ("o", "#0072B2"), "f16": ("s", "#D55E00"), "f32": ("^", "#009E73")}
BAND = 0.08
TICKS = (20, 30, 40, 60, 80, 120)


@functools.cache
def cells() -> tuple[live.Cell, ...]:
    """Fit and predict once."""
    return tuple(live.cells())


def rows() -> Rows:
    """Return the numbers of the figure."""
    return [
        (
            c.name,
            c.concurrency,
            float(c.given),
            c.row.measured,
            c.row.predicted,
            c.row.low,
            c.row.high,
        )
        for c in cells()
    ]


def figure() -> Figure:
    """Draw it: filled marks were predicted, hollow ones given to the fit."""
    result = Figure(figsize=(6.4, 5.6), layout="constrained")
    axes = result.subplots()
    for target in live.TARGETS:
        for given in (True, False):
            _draw(axes, target, given)
    measured = [c.row.measured for c in cells()]
    limits = (0.85 * min(measured), 1.15 * max(measured))
    axes.plot(limits, limits, color="0.4", linewidth=1)
    for factor in (1 - BAND, 1 + BAND):
        axes.plot(limits, [factor * x for x in limits], color="0.6", linewidth=0.8, linestyle="--")
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(TICKS, [str(tick) for tick in TICKS])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("measured throughput, tokens/s")
    axes.set_ylabel("predicted throughput, tokens/s")
    axes.legend(frameon=False, title=f"bars: central 90 %; dashed: {BAND:.0%} either way")
    return result


def _draw(axes: Axes, target: str, given: bool) -> None:
    some = [c.row for c in cells() if c.target == target and c.given == given]
    mark, colour = LOOKS[target]
    axes.errorbar(
        [r.measured for r in some],
        [r.predicted for r in some],
        yerr=([r.predicted - r.low for r in some], [r.high - r.predicted for r in some]),
        fmt=mark,
        color=colour,
        markerfacecolor="white" if given else colour,
        markersize=5,
        elinewidth=0.7,
        label=f"{target} {'given' if given else 'predicted'}",
    )


if __name__ == "__main__":
    save(__file__, HEADER, rows(), figure())
