"""Plots of trees, rounds, gains, errors, and of loads that change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.acceptance import Acceptance, accept_prob_at, draft_beam
from specsim.analytic import Solution, solve
from specsim.arrays import Flags, Floats, Ints
from specsim.calibrate.validate import Validation
from specsim.decide.adaptive import LoadAnswer, Score
from specsim.decide.breakeven import GainMap
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.report import figure as fig
from specsim.setting import SpecSetting
from specsim.tree import Beam
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NODES = 40  # a pool with more candidates is too crowded to draw
CHOSEN, REJECTED = "#9ECAE1", "white"  # nodes that are verified, and the other candidates


@dataclass(frozen=True, slots=True)
class DrawnTree:
    """The pool of one typical context, and the tree that the engine makes of it."""

    beam: Beam  # of one context
    setting: SpecSetting  # that was asked for

    @property
    def verified(self) -> Flags:
        """Which candidates of the pool are verified."""
        verified: Flags = self.beam.selected(self.setting.num_draft_tokens)[:, 0]
        return verified


def typical_tree(acceptance: Acceptance, setting: SpecSetting) -> DrawnTree:
    """Build the tree of a context whose accept probabilities are the mean ones at every depth.

    Raises
    ------
    InputError
        If nothing is drafted.
    """
    if not setting.speculates:
        raise InputError("no speculation", "has no draft tree", "give topk and steps")
    alpha = accept_prob_at(acceptance, setting.num_steps)
    odds = np.log(alpha.clip(1e-9, 1 - 1e-9) / (1 - alpha).clip(1e-9)) + acceptance.level
    widths = [setting.topk if depth else 1 for depth in range(setting.num_steps)]
    steps = [np.full((w, 1, 1), at) for w, at in zip(widths, odds.tolist(), strict=True)]
    return DrawnTree(draft_beam(acceptance, steps, setting.topk), setting)


def plot_tree(axes: Axes, drawn: DrawnTree) -> Axes:
    """Draw the pool from left to right: verified nodes filled, the others hollow.

    The number in a node is the probability that the whole path to it is accepted, per cent.

    Raises
    ------
    InputError
        If the pool has more than `MOST_NODES` candidates.
    """
    beam, setting = drawn.beam, drawn.setting
    count = len(beam.depth)
    if count > MOST_NODES:
        raise InputError(f"pool of {count} nodes", "is too crowded to draw", "ask for a small topk")
    parent, chosen, accepted = beam.parent[:, 0], drawn.verified, beam.p[:, 0]
    depth = [*beam.depth.tolist(), 0]  # the root last, where parent -1 finds it
    height = _heights(parent, beam.rank)
    for node in range(count):
        above = int(parent[node])
        colour, line, width = ("black", "-", 1.4) if chosen[node] else ("0.6", ":", 0.9)
        x, y = [depth[above], depth[node]], [height[above], height[node]]
        axes.plot(x, y, color=colour, linestyle=line, linewidth=width, zorder=1)
        percent = 100.0 * float(accepted[node])
        words = f"{percent:.0f}" if percent >= 0.5 else "<1"
        _draw_node(axes, depth[node], height[node], words, bool(chosen[node]))
    _draw_node(axes, 0.0, height[-1], "root", True)
    title = (
        f"topk={setting.topk} steps={setting.num_steps}: {setting.num_draft_tokens} of "
        f"{count + 1} nodes verified, {1.0 + accepted[chosen].sum():.2f} tokens expected"
    )
    fig.frame(axes, title, "depth (drafted tokens)", "", grid="none")
    axes.set_xticks(range(setting.num_steps + 1))
    axes.set_xlim(-0.3, setting.num_steps + 0.3)
    axes.set_ylim(min(height) - 0.7, max(height) + 0.7)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    for label, colour in (("verified", CHOSEN), ("drafted, not verified", REJECTED)):
        axes.scatter([], [], s=90, facecolor=colour, edgecolor="black", label=label)
    fig.legend(axes, ncols=2, loc="upper left", bbox_to_anchor=(0.0, -0.12))
    return axes


def _heights(parent: Ints, rank: Ints) -> list[float]:
    """Vertical places: leaves one below the other, parents amid their children; root last."""
    children: dict[int, list[int]] = {}
    for node, above in enumerate(parent.tolist()):
        children.setdefault(above, []).append(node)
    height = [0.0] * (len(parent) + 1)
    lowest = 0.0

    def place(node: int) -> float:
        nonlocal lowest
        below = sorted(children.get(node, []), key=lambda n: int(rank[n]))
        if below:
            places = [place(n) for n in below]
            height[node] = (places[0] + places[-1]) / 2
        else:
            height[node] = lowest
            lowest -= 1.0
        return height[node]

    place(-1)
    return height


def _draw_node(axes: Axes, x: float, y: float, text: str, chosen: bool) -> None:
    face, edge = (CHOSEN, "black") if chosen else (REJECTED, "0.6")
    box = {"boxstyle": "round,pad=0.3", "facecolor": face, "edgecolor": edge}
    axes.text(x, y, text, ha="center", va="center", fontsize=8, bbox=box, zorder=2)


class Part(NamedTuple):
    """A part of a round, as it is drawn."""

    words: str
    colour: str
    hatch: str


PARTS = {
    "weights": Part("weights: dense, experts, head", fig.BLUE, ""),
    "attention": Part("attention: KV cache", fig.SKY, "///"),
    "allreduce": Part("all-reduce", fig.VERMILION, "xxx"),
    "fixed": Part("launches, sampling", "#DDDDDD", ""),
    "draft": Part("draft, tree", fig.YELLOW, "\\\\\\"),
    "overhead": Part("sync, small kernels", "#999999", "..."),
    "extend": Part("draft extend", fig.PURPLE, "|||"),
    "host": Part("CPU that is not hidden", fig.ORANGE, "---"),
}
"""Parts of a round from the bottom of the stack."""


def rounds_at(
    profile: Profile, plans: Sequence[RunPlan], concurrency: int, workload: Workload | None = None
) -> Solution:
    """Solve plans at one load in closed form; a workload is taken instead of the profile's."""
    work = workload or profile.setup.workload
    cost, cases = Grid(tuple(plans), (Load("closed_loop", concurrency),), work).cases(profile)
    return solve(cost, cases, with_limit=False)


def parts_of(solution: Solution) -> Floats:
    """Split each round of a solution into `PARTS`; the CPU counts where it is not hidden."""
    time = solution.time
    parts = np.stack(
        np.broadcast_arrays(
            time.dense_s + time.experts_s + time.head_s,
            time.attention_s,
            time.allreduce_s,
            time.fixed_s,
            time.draft_s + time.tree_s,
            time.overhead_s,
            time.extend_s,
        ),
        axis=-1,
    )
    rest = solution.round_s - parts.sum(axis=-1)
    return np.concatenate([parts, rest[..., None].clip(0.0)], axis=-1)


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


SHOWN: dict[Score, tuple[str, str]] = {
    "throughput": ("output_tps", "output (tokens/s, all requests together)"),
    "goodput": ("goodput_rps", "requests that meet the targets (1/s)"),
    "request_time": ("request_time_s", "mean time of a request, shorter is better (s)"),
}
"""What is drawn where ways are compared by a score: field of a run, words with unit."""

ROLE_PAINT = {
    "none": ("#FFFFFF", ""),
    "fixed": ("#BBBBBB", ""),
    "table": (fig.BLUE, ""),
    "default": (fig.SKY, "///"),
    "given": ("#CC79A7", "xx"),
    "idle": ("#FFFFFF", "..."),
}
"""Colour and hatch by role."""


def outcomes_figure(answer: LoadAnswer) -> Figure:
    """Draw the ways to run the server, with standard errors, and say what was simulated."""
    targets = "".join(f" Target: {target.label}." for target in answer.targets)
    times = f"{answer.repeats} time{'s' * (answer.repeats > 1)}"
    caption = (
        f"Profile {answer.profile}, {answer.engine} {answer.engine_version}; simulated "
        f"{times} (seed {answer.seed}).{targets} Whiskers: one standard error; all see the same "
        "requests, so differences are surer than that."
    )
    figure, axes = fig.new_figure(caption, (7.5, 1.6 + 0.42 * len(answer.outcomes)))
    plot_outcomes(axes, answer)
    return figure


def plot_outcomes(axes: Axes, answer: LoadAnswer) -> Axes:
    """Draw a bar per way to run the server, by what they are compared by."""
    name, words = SHOWN[answer.score]
    ends, labels = [], []
    for row, outcome in enumerate(answer.outcomes):
        colour, hatch = ROLE_PAINT[outcome.role]
        value, error = getattr(outcome, name), outcome.error(name)
        error = 0.0 if math.isnan(error) else error
        looks: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "black"}
        axes.barh(row, value, 0.7, xerr=error or None, linewidth=0.6, capsize=3, **looks)
        text = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
        fig.note(axes, text, (value + error, row), (5, 0), va="center")
        ends.append(value + error)
        labels.append(outcome.name + " (best fixed)" * (outcome.name == answer.best_static))
    fig.frame(axes, answer.load, words, "", grid="x")
    fig.name_rows(axes, labels, fontsize="small")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(ends) if max(ends) > 0 else 1.0)
    return axes
