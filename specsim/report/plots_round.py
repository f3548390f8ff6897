"""Where the time of a round goes: parts that add up to it, and how they are painted."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specsim.analytic import Solution, solve
from specsim.arrays import Floats
from specsim.engine import RunPlan
from specsim.predict import Grid
from specsim.profile import Profile
from specsim.report import figure as fig
from specsim.workload import Load, Workload


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
