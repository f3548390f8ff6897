"""Plots of rounds: speed-up over load, and where the time of a round goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import accept_table
from specsim.analytic import Solution, solve
from specsim.case import Case
from specsim.engine import RunPlan
from specsim.errors import InputError
from specsim.profile import Profile
from specsim.report.figure import frame
from specsim.workload import Load, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from specsim.arrays import Floats

PARTS = {
    "weights": ("weights: dense, experts, head", "#0072B2", ""),
    "attention": ("attention: KV cache", "#56B4E9", "///"),
    "allreduce": ("all-reduce", "#D55E00", "xxx"),
    "fixed": ("launches, sampling", "#DDDDDD", ""),
    "draft": ("draft, tree", "#F0E442", "\\\\\\"),
    "overhead": ("sync, small kernels", "#999999", "..."),
    "extend": ("draft extend", "#CC79A7", "|||"),
    "host": ("CPU that is not hidden", "#E69F00", "---"),
}
"""Parts of a round from the bottom of the stack: words, colour, hatch."""


@dataclass(frozen=True, slots=True)
class RoundParts:
    """Where the time of rounds goes: a column per part that adds up to the round.

    Parameters
    ----------
    names
        What each row is of.
    seconds
        (rows, len(PARTS)): what each part adds to the round's length.
    tokens
        Tokens that the batch gets from a round.
    """

    names: tuple[str, ...]
    seconds: Floats
    tokens: Floats

    @property
    def round_s(self) -> Floats:
        """Length of each round."""
        return np.asarray(self.seconds.sum(axis=1), dtype=np.float64)


def round_parts(
    profile: Profile,
    plans: Sequence[RunPlan],
    names: Sequence[str],
    concurrency: int,
    workload: Workload | None = None,
) -> RoundParts:
    """Solve plans at one load in closed form, and split their rounds.

    Parameters
    ----------
    profile
        The server.
    plans, names
        How settings run, and what they are called.
    concurrency
        Clients in flight.
    workload
        Instead of the profile's.
    """
    if not plans or len(plans) != len(names):
        raise InputError(f"{len(plans)} plans", "need one name each", "give as many names")
    system, acceptance = profile.system(), profile.acceptance()
    work = workload or profile.setup.workload.workload
    load = Load("closed_loop", concurrency)
    cases = [
        Case.of(system, plan, accept_table(acceptance, plan.setting), work, load) for plan in plans
    ]
    solution = solve(system.cost, cases, with_limit=False)
    return RoundParts(
        tuple(names), parts_of(solution), solution.accept_length * solution.batch_size
    )


def parts_of(solution: Solution) -> Floats:
    """Split each round of a solution into `PARTS`; the CPU counts where it is not hidden."""
    target, draft = solution.time.target, solution.time.draft
    parts = np.stack(
        np.broadcast_arrays(
            target.dense_s + target.experts_s + target.head_s,
            target.attention_s,
            target.allreduce_s,
            target.fixed_s,
            draft.draft_s + draft.tree_s,
            draft.overhead_s,
            draft.extend_s,
        ),
        axis=-1,
    )
    rest = solution.round_s - parts.sum(axis=-1)
    return np.concatenate([parts, rest[..., None].clip(0.0)], axis=-1)


def plot_round_parts(axes: Axes, parts: RoundParts, title: str = "") -> Axes:
    """Stack where the time of each round goes, with its length and its price per token.

    Parameters
    ----------
    axes
        Where.
    parts
        From :func:`round_parts`.
    title
        Above the plot.
    """
    places = np.arange(len(parts.names))
    bottom = np.zeros(len(places))
    ms = 1e3 * parts.seconds
    for column, (words, colour, hatch) in enumerate(PARTS.values()):
        heights = ms[:, column]
        if heights.max() > 0:
            axes.bar(
                places, heights, 0.6, bottom, color=colour, hatch=hatch, edgecolor="black",
                linewidth=0.5, label=words,
            )  # fmt: skip
        bottom = bottom + heights
    for place, top, tokens in zip(places, bottom, parts.tokens, strict=True):
        text = f"{top:.1f} ms\n{tokens:.1f} tokens\n{top / tokens:.2f} ms/token"
        axes.annotate(
            text, (place, top), (0, 3), textcoords="offset points", ha="center", fontsize=8
        )
    frame(axes, title, "", "one round of the batch (ms)", grid="y")
    axes.set_xticks(places, [name.replace(", ", "\n") for name in parts.names], fontsize="small")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(0, 1.22 * float(bottom.max()))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], frameon=False, fontsize="small",
        loc="center left", bbox_to_anchor=(1.0, 0.5),
    )  # fmt: skip
    return axes
