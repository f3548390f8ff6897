"""Plots of cost and fit: break-even map, all-reduce over size, residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import accept_table
from specsim.analytic import solve
from specsim.calibrate.validate import Validation
from specsim.case import Case
from specsim.cost import CostModel
from specsim.decide.breakeven import blended
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.profile import Profile
from specsim.report.figure import STYLES, frame, load_ticks
from specsim.setting import SpecSetting
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from specsim.arrays import Floats

LEVELS = (-60, -40, -20, -10, 0, 10, 20, 40, 60, 100, 150)
"""Gains at which the break-even map has a line, per cent."""


@dataclass(frozen=True, slots=True)
class GainMap:
    """Gain of a setting over no speculation, over accept length and load.

    Parameters
    ----------
    name
        Of the setting.
    concurrency
        Columns.
    accept_length
        Rows: what the drafter might yield.
    gain
        (rows, columns), fractions.
    expected
        The accept length of the profile.
    """

    name: str
    concurrency: tuple[int, ...]
    accept_length: Floats
    gain: Floats
    expected: float


def gain_map(
    profile: Profile,
    plan: RunPlan,
    concurrency: Sequence[int],
    workload: Workload | None = None,
    rows: int = 25,
    dataset: str | None = None,
    temperature: float | None = None,
) -> GainMap:
    """Solve a plan for drafters from useless to perfect.

    Parameters
    ----------
    profile
        The server.
    plan
        A speculating setting as the engine runs it.
    concurrency
        Loads.
    workload
        Instead of the profile's.
    rows
        Drafters between nothing and all accepted.
    dataset, temperature
        Whose acceptance; None is the profile's first.

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
    work = workload or profile.setup.workload.workload
    acceptance = profile.acceptance(dataset, temperature)
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
    """Draw lines of equal gain over load and accept length; where it loses is shaded.

    Parameters
    ----------
    axes
        Where.
    gains
        From :func:`gain_map`.
    """
    x, y, percent = list(gains.concurrency), gains.accept_length, 100.0 * gains.gain
    load_ticks(axes, x)  # before the labels, which are put where the lines are on the screen
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(1.0, float(y.max()))
    axes.contourf(x, y, percent, levels=[-1e3, -20.0, 0.0], colors=["0.80", "0.91"])
    levels = [level for level in LEVELS if percent.min() < level < percent.max()]
    widths = [2.4 if level == 0 else 0.9 for level in levels]
    if levels:
        lines = axes.contour(x, y, percent, levels=levels, colors="#0072B2", linewidths=widths)
        lines.set(linestyle=["--" if level < 0 else "-" for level in levels])
        words = axes.clabel(lines, fmt=lambda v: f"{v:+.0f} %" if v else "0 %", fontsize=8)
        for word in words:
            word.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.9})
    axes.axhline(gains.expected, color="#D55E00", linestyle="-.", linewidth=1.6, zorder=1.5)
    axes.annotate(
        f"expected: {gains.expected:.2f}", (x[-1], gains.expected), (-4, 4), ha="right",
        textcoords="offset points", fontsize=8, color="#D55E00",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
    )  # fmt: skip
    frame(
        axes, f"{gains.name}: gain over no speculation", "clients in flight (requests)",
        "accept length, bonus included (tokens)", grid="none",
    )  # fmt: skip
    return axes


def plot_allreduce(
    axes: Axes,
    cost: CostModel,
    measured: Sequence[tuple[float, float]] = (),
    sizes: tuple[float, float] = (2.0**10, 2.0**24),
) -> Axes:
    """Draw the time of one all-reduce over the message, with its protocol switches.

    Parameters
    ----------
    axes
        Where.
    cost
        Of the server, with its fitted multipliers.
    measured
        (bytes, seconds) of a table, drawn as circles.
    sizes
        Bounds, bytes.
    """
    from matplotlib.ticker import NullLocator

    p, allreduce = cost.parameters, cost.allreduce
    switches = [piece.max_bytes for piece in allreduce.pieces[:-1]]
    switches = [s for s in switches if sizes[0] < s < sizes[1]]
    edges = [sizes[0], *switches, sizes[1]]
    for i in range(len(edges) - 1):
        colour, line, _ = STYLES[(i + 1) % len(STYLES)]
        size = np.geomspace(edges[i], edges[i + 1] * (1 - 1e-9), 60)
        us = 1e6 * allreduce.time_s(size, p.allreduce_latency, p.allreduce_bandwidth)
        axes.plot(size, us, color=colour, linestyle=line, label=f"protocol {i + 1}")
    for i, switch in enumerate(switches):
        axes.axvline(switch, color="0.5", linestyle=":", linewidth=1.0)
        place, down = (switch, 0.0), (3, 4 + 11 * (i % 3))
        axes.annotate(
            _bytes(switch), place, down, xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=8, color="0.3",
        )  # fmt: skip
    if measured:
        size, seconds = np.array(measured, dtype=np.float64).T
        axes.scatter(
            size, 1e6 * seconds, 28, facecolor="none", edgecolor="black", label="measured", zorder=3
        )
    frame(axes, "One all-reduce", "message (bytes)", "time (µs)")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = [2.0**e for e in range(8, 31, 2) if sizes[0] <= 2.0**e <= sizes[1]]
    axes.set_xticks(ticks, [_bytes(t) for t in ticks])
    hidden = cost.target.model.hidden * 2
    tokens = axes.secondary_xaxis(
        "top", functions=(lambda b: np.asarray(b) / hidden, lambda t: np.asarray(t) * hidden)
    )
    shown = [t for t in (1, 4, 16, 64, 256, 1024) if sizes[0] <= t * hidden <= sizes[1]]
    tokens.set_xticks(shown, [str(t) for t in shown])
    tokens.xaxis.set_minor_locator(NullLocator())
    tokens.set_xlabel("tokens of the forward", fontsize="small")
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0.0, 0.93))
    return axes


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
    """Draw the error of each cell with its 90 % interval, over what was measured.

    Parameters
    ----------
    axes
        Where.
    validation
        Predictions beside measurements.
    """
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    labels: dict[str, int] = {}
    for row in validation.rows:
        setting = row.observation.setting
        name = "no speculation" if not setting.speculates else setting.label
        style = STYLES[labels.setdefault(name, len(labels)) % len(STYLES)]
        error = 100 * row.error
        low, high = (100 * (edge / row.measured - 1) for edge in (row.low, row.high))
        first = f"_{name}" if name in axes.get_legend_handles_labels()[1] else name
        axes.errorbar(
            row.measured, error, [[error - low], [high - error]], color=style[0], marker=style[2],
            markersize=5, capsize=3, linewidth=0.9, linestyle="none", label=first,
        )  # fmt: skip
    axes.axhline(0.0, color="black", linewidth=1.0)
    quantities = {row.quantity for row in validation.rows}
    unit = {"output_tps": "tokens/s", "tpot_s": "s per token", "round_time_s": "s per round"}
    what = " or ".join(unit[q] for q in sorted(quantities))
    title = (
        f"mean absolute error {100 * validation.mape:.1f} %, "
        f"{100 * validation.coverage:.0f} % of {len(validation.rows)} inside their interval"
    )
    frame(axes, title, f"measured ({what})", "predicted against measured (%)")
    axes.set_xscale("log", subs=(2, 5))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    low, high = axes.get_xlim()
    decade = 10.0 ** np.floor(np.log10(low))
    ticks = [m * decade * 10**e for e in range(9) for m in (1, 2, 5)]
    axes.set_xticks([t for t in ticks if low <= t <= high])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False, fontsize="small")
    return axes
