"""A draft tree with its probabilities, drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import Acceptance, accept_prob_at, draft_beam
from specsim.arrays import Flags, Ints
from specsim.errors import InputError
from specsim.report import figure as fig
from specsim.setting import SpecSetting
from specsim.tree import Beam

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        verified: Flags = self.beam.selected(self.setting.num_draft_tokens)[0]
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
    steps = [np.full((1, 1, w), at) for w, at in zip(widths, odds.tolist(), strict=True)]
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
    parent, chosen, accepted = beam.parent[0], drawn.verified, beam.p[0]
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
