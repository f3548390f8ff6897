"""The best draft tree there is, which bounds what an engine's beam can get accepted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from specsim.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A draft tree; nodes are numbered so that parents come before their children."""

    parent: tuple[int, ...]  # of each node; -1 for node 0, the root
    rank: tuple[int, ...]  # place among its siblings, 0 for the first choice and for the root
    depth: tuple[int, ...]  # edges up to the root

    @property
    def size(self) -> int:
        """Nodes, root included: the tokens that a round verifies."""
        return len(self.parent)

    @property
    def max_depth(self) -> int:
        """Most drafts that one round can accept."""
        return max(self.depth)


def best_tree(child_probs: ArrayLike, size: int) -> tuple[DraftTree, float]:
    """Return the best tree when acceptance depends on depth and rank; as deep as there are rows.

    Dynamic programme of Sequoia [@sequoia2024, section 3.1 and its depth-bounded variant]:
    T_d[n] = 1 + max_b F_d[n-1, b],  F_d[m, b] = max_j F_d[m-j, b-1] + p_{d,b} T_{d+1}[j],
    T_d[n] the best expected tokens below a node at depth d with n nodes, b its children.

    Parameters
    ----------
    child_probs
        (depths, ranks): row d - 1 holds the accept probabilities of the children at depth d,
        whatever their parent. Rows that are equal make acceptance depend on the rank alone.
    size
        Nodes, root included.

    Returns
    -------
    tree, expected_tokens
        The tree and its expected tokens per round, bonus included.
    """
    probs = np.asarray(child_probs, np.float64)
    depths = len(probs)
    value = np.full(size + 1, -np.inf)
    value[1] = 1.0  # a leaf
    choices: list[tuple[Ints, Ints]] = []
    for row in probs[::-1]:
        value, children, split = _grow(value, row)
        choices.append((children, split))
    parents, sibling_ranks, levels = [-1], [0], [0]
    pending = [(0, size)]  # node, nodes of its subtree
    while pending:
        node, nodes = pending.pop()
        if nodes == 1:
            continue
        children, split = choices[depths - 1 - levels[node]]
        left = nodes - 1
        for rank in range(int(children[nodes]) - 1, -1, -1):
            taken = int(split[rank, left])
            left -= taken
            pending.append((len(parents), taken))
            parents.append(node)
            sibling_ranks.append(rank)
            levels.append(levels[node] + 1)
    tree = DraftTree(tuple(parents), tuple(sibling_ranks), tuple(levels))
    return tree, float(value[size])


def _grow(below: Floats, probs: Floats) -> tuple[Floats, Ints, Ints]:
    """Return T of a level from T of the level below, with the choices that attain it."""
    size = below.size - 1
    total = np.arange(size)[:, None]
    own = np.arange(1, size)[None, :]  # nodes of the last child's subtree
    possible = np.isfinite(below[1:size])
    forest = np.full(size, -np.inf)  # F[m]: best of m nodes below, exactly b children
    forest[0] = 0.0
    best, children = forest.copy(), np.zeros(size + 1, dtype=np.int64)
    split = np.zeros((probs.size, size), dtype=np.int64)
    for rank, prob in enumerate(probs):
        gain = np.where(possible, prob * np.where(possible, below[1:size], 0.0), -np.inf)
        table = np.where(own <= total, forest[total - own] + gain, -np.inf)
        if table.size == 0:
            break
        split[rank] = own[0, np.argmax(table, axis=1)]
        forest = table.max(axis=1)
        better = forest > best
        best = np.where(better, forest, best)
        children[1:][better] = rank + 1
    value = np.concatenate([[-np.inf], 1.0 + best])
    return value, children, split
