"""Shapes of draft trees: how many nodes, which ones the engine keeps, which would be best.

A tree is counted with its root, the last verified token, because that is what a round verifies.
Acceptance enters only as given probabilities: `q` is the drafter's confidence, by which the engine
selects, `p` the true probability that a child is accepted, given that its parent was.
"""

from __future__ import annotations

from specsim.tree.beam import BeamResult, beam_tree
from specsim.tree.optimum import best_tree, best_tree_depthwise
from specsim.tree.selection import best_subtree
from specsim.tree.shape import (
    DraftTree,
    expected_accept_length,
    full_kary_size,
    tree_capacity,
)

__all__ = [
    "BeamResult",
    "DraftTree",
    "beam_tree",
    "best_subtree",
    "best_tree",
    "best_tree_depthwise",
    "expected_accept_length",
    "full_kary_size",
    "tree_capacity",
]
