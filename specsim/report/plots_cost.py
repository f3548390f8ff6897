"""Plots of cost and fit: break-even map, all-reduce over size, residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.acceptance import accept_table
from specsim.analytic import solve
from specsim.calibrate.validate import Validation
from specsim.case import Case
from specsim.cost.model import CostModel
from specsim.decide.breakeven import blended
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.profile import Profile
from specsim.report import figure as fig
from specsim.setting import SpecSetting
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from specsim.arrays import Floats

LEVELS = (-60, -40, -20, -10, 0, 10, 20, 40, 60, 100, 150)
"""Gains at which the break-even map has a line, per cent."""

UNITS = {"output_tps": "tokens/s", "tpot_s": "s per token", "round_time_s": "s per round"}
"""Of what a validated cell has measured."""


@dataclass(frozen=True, slots=True)
class GainMap:
    """Gain of a setting over no speculation, over accept length and load."""

    name: str  # of the setting
    concurrency: tuple[int, ...]  # columns
    accept_length: Floats  # rows: what the drafter might yield
    gain: Floats  # (rows, columns), fractions
    expected: float  # the accept length of the profile


def gain_map(
    profile: Profile,
    plan: RunPlan,
    concurrency: Sequence[int],
    workload: Workload | None = None,
    rows: int = 25,
    dataset: str | None = None,
    temperature: float | None = None,
) -> GainMap:
    """Solve a plan at two loads or more, for `rows` drafters from useless to perfect.

    A workload is taken instead of the profile's; dataset and temperature say whose acceptance.

    Raises
    ------
    InputError
        If there are less than two loads.
    """
    if len(concurrency) < 2:
        raise InputError(
            f"concurrency of {len(concurrency)} loads", "makes no map", "give two loads or more"
        )
    system, setting = profile.system(), plan.setting
    work = workload or profile.setup.workload
    acceptance = profile.acceptance(dataset, temperature, algorithm=setting.algorithm)
    table = accept_table(acceptance, setting)
    depth = min(setting.num_steps, setting.num_draft_tokens - 1)
    tables = [blended(table, depth, share) for share in np.linspace(-1.0, 1.0, rows).tolist()]
    plain = system.plan(SpecSetting.none(), engine_version=plan.version)
    alone = accept_table(acceptance, plain.setting)
    loads = [Load("closed_loop", c) for c in concurrency]
    cases = [Case.of(system, plain, alone, work, load) for load in loads]
    cases += [Case.of(system, plan, t, work, load) for t in tables for load in loads]
    tps = solve(system.cost, cases, with_limit=False).output_tps.reshape(rows + 1, len(loads))
    lengths = np.array([t.accept_length for t in tables])
    name = f"{setting.label}, {setting.scheduler}"
    return GainMap(name, tuple(concurrency), lengths, tps[1:] / tps[0] - 1.0, table.accept_length)


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


def plot_allreduce(
    axes: Axes,
    cost: CostModel,
    measured: Sequence[tuple[float, float]] = (),
    sizes: tuple[float, float] = (2.0**10, 2.0**24),
) -> Axes:
    """Draw the time of one all-reduce over the message, with its protocol switches.

    Fitted multipliers count; `measured` (bytes, seconds) are circles; `sizes` are bounds in bytes.
    """
    p, allreduce, (low, high) = cost.parameters, cost.allreduce, sizes
    switches = [piece.max_bytes for piece in allreduce.pieces[:-1] if low < piece.max_bytes < high]
    edges = [low, *switches, high]
    for i in range(len(edges) - 1):
        size = np.geomspace(edges[i], edges[i + 1] * (1 - 1e-9), 60)
        us = 1e6 * allreduce.time_s(size, p["allreduce_latency"], p["allreduce_bandwidth"])
        style = fig.Style.of(i + 1)
        axes.plot(size, us, color=style.colour, linestyle=style.line, label=f"protocol {i + 1}")
    for i, switch in enumerate(switches):
        axes.axvline(switch, color="0.5", linestyle=":", linewidth=1.0)
        place, offset = (switch, 0.0), (3, 4 + 11 * (i % 3))
        fig.note(
            axes, _bytes(switch), place, offset, xycoords=("data", "axes fraction"), color="0.3"
        )
    if measured:
        size, seconds = np.array(measured).T
        looks: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "zorder": 3}
        axes.scatter(size, 1e6 * seconds, 28, label="measured", **looks)
    fig.frame(axes, "One all-reduce", "message (bytes)", "time (µs)")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = [2.0**e for e in range(8, 31, 2) if low <= 2.0**e <= high]
    axes.set_xticks(ticks, [_bytes(t) for t in ticks])
    _tokens_above(axes, cost.target.model.hidden * 2, sizes)
    fig.legend(axes, loc="upper left", bbox_to_anchor=(0.0, 0.93))
    return axes


def _tokens_above(axes: Axes, token_bytes: float, sizes: tuple[float, float]) -> None:
    """Show at the top how many tokens a message is the activations of."""
    from matplotlib.ticker import NullLocator

    there_and_back = (lambda b: np.divide(b, token_bytes), lambda n: np.multiply(n, token_bytes))
    tokens = axes.secondary_xaxis("top", functions=there_and_back)
    shown = [t for t in (1, 4, 16, 64, 256, 1024) if sizes[0] <= t * token_bytes <= sizes[1]]
    tokens.set_xticks(shown, [str(t) for t in shown])
    tokens.xaxis.set_minor_locator(NullLocator())
    tokens.set_xlabel("tokens of the forward", fontsize="small")


def _bytes(size: float) -> str:
    """Write a message size.

    >>> _bytes(65536), _bytes(2.0**20)
    ('64 KiB', '1 MiB')
    """
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


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
