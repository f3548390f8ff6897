"""Where the time of a round goes: parts that add up to it, stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.analytic import Solution, solve
from specsim.engine import RunPlan
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.report import figure as fig
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from specsim.arrays import Floats


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


def plot_round_parts(axes: Axes, rounds: Solution, names: Sequence[str], title: str = "") -> Axes:
    """Stack where the time of each round goes, with its length and its price per token.

    `rounds` are those of :func:`rounds_at`, and `names` those of its plans.
    """
    places, ms = range(len(names)), 1e3 * parts_of(rounds)
    tops, emitted = ms.cumsum(axis=1), rounds.accept_length * rounds.batch_size
    for column, (words, colour, hatch) in enumerate(PARTS.values()):
        height = ms[:, column]
        if height.max() > 0:
            looks: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "black"}
            bottom = tops[:, column] - height
            axes.bar(places, height, 0.6, bottom, linewidth=0.5, label=words, **looks)
    for place, top, tokens in zip(places, tops[:, -1], emitted, strict=True):
        text = f"{top:.1f} ms\n{tokens:.1f} tokens\n{top / tokens:.2f} ms/token"
        fig.note(axes, text, (place, top), (0, 3), ha="center")
    fig.frame(axes, title, "", "one round of the batch (ms)", grid="y")
    axes.set_xticks(places, [name.replace(", ", "\n") for name in names], fontsize="small")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(0, 1.22 * float(tops.max()))
    # the legend from top to bottom, as the stack
    fig.legend(axes, reverse=True, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes
