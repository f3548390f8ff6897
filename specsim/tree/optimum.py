"""The best tree there is, when acceptance depends on a node's place alone (Sequoia)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.errors import InputError
from specsim.tree.selection import check_size
from specsim.tree.shape import DraftTree, probs_by_depth


def best_tree(
    child_probs: ArrayLike, size: int, max_depth: int | None = None
) -> tuple[DraftTree, float]:
    """Return Sequoia's best tree when acceptance depends on the sibling rank alone.

    Parameters
    ----------
    child_probs
        (ranks,): probability that the rank-r child is accepted, whatever its parent.
    size
        Nodes, root included.
    max_depth
        Most drafts that a round may accept; None is unbounded.

    Returns
    -------
    tree, expected_tokens
        The tree and its expected tokens per round, bonus included.
    """
    probs = np.atleast_1d(np.asarray(child_probs, dtype=np.float64))
    depth = max(0, size - 1) if max_depth is None else max_depth
    if probs.ndim != 1 or depth < 0:
        raise InputError(
            f"child probabilities of shape {probs.shape}, depth {max_depth}",
            "must be one row of ranks, and a depth of at least 0",
            "use best_tree_depthwise for probabilities that differ by depth",
        )
    return best_tree_depthwise(np.broadcast_to(probs, (depth, probs.size)), size)


def best_tree_depthwise(child_probs: ArrayLike, size: int) -> tuple[DraftTree, float]:
    """Return the best tree when acceptance depends on depth and rank; as deep as there are rows.

    Dynamic programme of Sequoia (arXiv 2402.12374, section 3.1 and its depth-bounded variant):
    T_d[n] = 1 + max_b F_d[n-1, b],  F_d[m, b] = max_j F_d[m-j, b-1] + p_{d,b} T_{d+1}[j],
    T_d[n] the best expected tokens below a node at depth d with n nodes, b its children.

    Parameters
    ----------
    child_probs
        (depths, ranks): row d - 1 holds the accept probabilities of the children at depth d.
    size
        Nodes, root included.
    """
    rows = np.asarray(child_probs, dtype=np.float64)
    if rows.ndim != 2:
        raise InputError(
            f"child probabilities of shape {rows.shape}",
            "must have one row of ranks per depth",
            "use best_tree for probabilities that do not differ by depth",
        )
    probs = probs_by_depth(rows, len(rows))
    depths, ranks = probs.shape
    check_size(size, _full_size_up_to(ranks, depths, size))
    value = np.full(size + 1, -np.inf)
    value[1] = 1.0  # a leaf
    choices: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for row in probs[::-1]:
        value, children, split = _grow(value, row)
        choices.append((children, split))
    parents, sibling_ranks = [-1], [0]
    pending = [(0, 0, size)]  # node, depth, nodes of its subtree
    while pending:
        node, depth, nodes = pending.pop()
        if nodes == 1:
            continue
        children, split = choices[depths - 1 - depth]
        left = nodes - 1
        for rank in range(int(children[nodes]) - 1, -1, -1):
            taken = int(split[rank, left])
            left -= taken
            pending.append((len(parents), depth + 1, taken))
            parents.append(node)
            sibling_ranks.append(rank)
    return DraftTree(tuple(parents), tuple(sibling_ranks)), float(value[size])


def _grow(
    below: NDArray[np.float64], probs: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
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


def _full_size_up_to(ranks: int, depths: int, size: int) -> int:
    """Return the size of the full tree, or `size` once it is reached."""
    full, level = 1, 1
    for _ in range(depths):
        level *= ranks
        full += level
        if full >= size:
            return size
    return full
