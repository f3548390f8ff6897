"""A draft tree as a shape: its nodes, its masks, its expected tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.errors import InputError
from specsim.tree.selection import best_subtree

NODE_DTYPE = np.dtype([("node", "i8"), ("parent", "i8"), ("depth", "i8"), ("rank", "i8")])
"""Columns of :meth:`DraftTree.node_table`."""


def tree_capacity(topk: int, num_steps: int) -> int:
    """Return the most tokens that the engine's beam can offer, root included.

    1 + k + (S-1) k^2: the first step offers k candidates, every later one expands k nodes to k
    children each (SGLang 0.5.9 ``spec_utils.py:467-514``). Equal to the full k-ary tree only for
    S <= 2.

    >>> tree_capacity(2, 2), tree_capacity(4, 2), tree_capacity(1, 5), tree_capacity(4, 0)
    (7, 21, 6, 1)
    """
    if topk < 1:
        raise InputError(f"topk {topk}", "must be at least 1", "use 1 for a chain")
    if num_steps < 0:
        raise InputError(f"steps {num_steps}", "must be at least 0", "use 0 for no draft")
    if num_steps == 0:
        return 1
    return 1 + topk + (num_steps - 1) * topk**2


def full_kary_size(k: int, depth: int) -> int:
    """Return the nodes of the full k-ary tree of that depth, root included.

    >>> full_kary_size(2, 2), full_kary_size(1, 5)
    (7, 6)
    """
    if k < 1 or depth < 0:
        raise InputError(
            f"full tree of {k} children, depth {depth}",
            "children must be at least 1 and the depth at least 0",
            "use 1 child for a chain, depth 0 for the root alone",
        )
    return sum(k**level for level in range(depth + 1))


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A draft tree; nodes are numbered so that parents come before their children.

    Parameters
    ----------
    parent
        Parent of each node; -1 for node 0, the root.
    rank
        Place among its siblings, 0 for the drafter's first choice; 0 for the root.

    Attributes
    ----------
    depth
        Edges between each node and the root; derived.

    Raises
    ------
    InputError
        If the numbers do not describe a tree.

    Examples
    --------
    >>> DraftTree.full_kary(2, 1).node_table().tolist()
    [(0, -1, 0, 0), (1, 0, 1, 0), (2, 0, 1, 1)]
    """

    parent: tuple[int, ...]
    rank: tuple[int, ...]
    depth: tuple[int, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        def invalid(reason: str) -> InputError:
            return InputError(f"tree {self.parent}", reason, "number parents before children")

        if len(self.parent) != len(self.rank):
            raise invalid(f"has {len(self.parent)} parents but {len(self.rank)} ranks")
        if not self.parent or self.parent[0] != -1 or self.rank[0] != 0:
            raise invalid("must start with the root: parent -1, rank 0")
        depth = [0]
        for node, parent in enumerate(self.parent[1:], start=1):
            if not 0 <= parent < node:
                raise invalid(f"node {node} has parent {parent}, which does not come before it")
            depth.append(depth[parent] + 1)
        places = set(zip(self.parent, self.rank, strict=True))
        if len(places) != len(self.parent) or min(self.rank) < 0:
            raise invalid("siblings must have different ranks, none negative")
        object.__setattr__(self, "depth", tuple(depth))

    @classmethod
    def chain(cls, num_steps: int) -> DraftTree:
        """Root and `num_steps` drafts, one below the other."""
        tree_capacity(1, num_steps)
        return cls(tuple(range(-1, num_steps)), (0,) * (num_steps + 1))

    @classmethod
    def full_kary(cls, k: int, depth: int) -> DraftTree:
        """Every node above `depth` has k children; numbered level by level."""
        inner = (full_kary_size(k, depth) - 1) // k
        parents = (node for node in range(inner) for _ in range(k))
        return cls((-1, *parents), (0, *(tuple(range(k)) * inner)))

    @classmethod
    def from_paths(cls, paths: Sequence[Sequence[int]]) -> DraftTree:
        """Build a static tree as Medusa and EAGLE-1 write it: one path of ranks per node.

        The root is left out; numbered by depth, then by path, as those projects do.

        >>> DraftTree.from_paths([[0], [1], [0, 0]]).parent
        (-1, 0, 0, 1)
        """
        ordered = sorted({tuple(path) for path in paths} - {()}, key=lambda p: (len(p), p))
        index: dict[tuple[int, ...], int] = {(): 0}
        parents = [-1]
        for node, path in enumerate(ordered, start=1):
            if path[:-1] not in index:
                raise InputError(
                    f"path {list(path)}",
                    f"its parent {list(path[:-1])} is not in the tree",
                    "list every node on the way to a node",
                )
            index[path] = node
            parents.append(index[path[:-1]])
        return cls(tuple(parents), (0, *(path[-1] for path in ordered)))

    @classmethod
    def from_scores(
        cls, parent: ArrayLike, rank: ArrayLike, path_score: ArrayLike, size: int
    ) -> DraftTree:
        """Keep the best `size` - 1 candidates of a pool, and the root, as the engine does.

        Parameters
        ----------
        parent
            Pool index of each candidate's parent, -1 for the root.
        rank, path_score
            Sibling rank, and product of scores from the root, of each candidate.
        size
            Nodes of the tree, root included.
        """
        pool_parent = np.asarray(parent, dtype=np.int64)
        pool_rank = np.asarray(rank, dtype=np.int64)
        mask, _ = best_subtree(path_score, pool_parent, size)
        kept = np.flatnonzero(mask)
        new_index = np.zeros(mask.size + 1, dtype=np.int64)  # last entry: the root's -1
        new_index[kept] = np.arange(1, kept.size + 1)
        return cls((-1, *new_index[pool_parent[kept]].tolist()), (0, *pool_rank[kept].tolist()))

    @property
    def size(self) -> int:
        """Nodes, root included: the tokens that a round verifies."""
        return len(self.parent)

    @property
    def max_depth(self) -> int:
        """Most drafts that one round can accept."""
        return max(self.depth)

    def node_table(self) -> NDArray[np.void]:
        """Return one row (node, parent, depth, rank) per node."""
        rows = zip(range(self.size), self.parent, self.depth, self.rank, strict=True)
        return np.array(list(rows), dtype=NODE_DTYPE)

    def ancestor_mask(self) -> NDArray[np.bool_]:
        """Return the attention mask among drafts: [i, j] is True if j is i or above i."""
        mask = np.eye(self.size, dtype=np.bool_)
        for node, parent in enumerate(self.parent[1:], start=1):
            mask[node] |= mask[parent]
        return mask

    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Return the ranks from the root to each node; inverse of :meth:`from_paths`."""
        paths: list[tuple[int, ...]] = [()]
        for parent, rank in zip(self.parent[1:], self.rank[1:], strict=True):
            paths.append((*paths[parent], rank))
        return tuple(paths)


def expected_accept_length(tree: DraftTree, child_probs: ArrayLike) -> float:
    """Return the expected tokens of a round, bonus included: the sum of path products.

    Sequoia (arXiv 2402.12374) section 3.1; at most one child of a node is accepted, so that a
    node's path product is the probability that it is.

    Parameters
    ----------
    tree
        The verified tree.
    child_probs
        Probability that the rank-r child is accepted: (ranks,), or (depths, ranks) with row
        d - 1 for the children at depth d.

    >>> expected_accept_length(DraftTree.chain(2), [0.5])
    1.75
    """
    probs = probs_by_depth(child_probs, tree.max_depth)
    if tree.max_depth > probs.shape[0] or max(tree.rank) >= probs.shape[1]:
        raise InputError(
            f"child probabilities of shape {probs.shape}",
            f"the tree has depth {tree.max_depth} and ranks up to {max(tree.rank)}",
            "give one probability per depth and rank of the tree",
        )
    product = [1.0]
    for node in range(1, tree.size):
        own = probs[tree.depth[node] - 1, tree.rank[node]]
        product.append(product[tree.parent[node]] * float(own))
    return float(np.sum(product))


def probs_by_depth(child_probs: ArrayLike, depth: int) -> NDArray[np.float64]:
    """Return (depths, ranks) of numbers in 0..1; one row of ranks is repeated to `depth`."""
    probs = np.asarray(child_probs, dtype=np.float64)
    if probs.ndim == 1:
        probs = np.broadcast_to(probs, (depth, probs.size))
    if probs.ndim != 2 or not np.all((probs >= 0) & (probs <= 1)):
        raise InputError(
            f"child probabilities of shape {probs.shape}",
            "must be a row of ranks, or rows of ranks by depth, each in 0..1",
            "give the probability that each child is accepted given its parent",
        )
    return probs
