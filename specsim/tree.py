"""Draft trees: how many nodes there are, which ones an engine keeps, which would be best.

A tree is counted with its root, the last verified token, because that is what a round verifies.
Acceptance enters only as given probabilities: `q` is the drafter's confidence, by which the engine
selects, `p` the true probability that a child is accepted, given that its parent was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints


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


# --- what the engine builds


@dataclass(frozen=True, slots=True)
class Beam:
    """The candidates of the engine's beam for M contexts, over one common layout, the pool.

    They are numbered by step, then by frontier slot, then by rank; the root is not one. The tree of
    a context is the root and the best candidates by `q`, equal ones by number: that keeps parents
    before their children.
    """

    frontier: Ints  # (S - 1, topk, M): candidates that each step after the first expands
    q: Floats  # (pool, M): product of the drafter's confidences from the root
    p: Floats  # (pool, M): product of the true accept probabilities from the root
    merit: Floats  # (pool, M): q less some parts in 10^15 of it per number: no two are equal

    @property
    def topk(self) -> int:
        """Children of a node."""
        return int(self.frontier.shape[1])

    @property
    def depth(self) -> Ints:
        """(pool,): steps down from the root."""
        steps, k = len(self.frontier) + 1, self.topk
        return np.repeat(np.arange(1, steps + 1), [k] + [k * k] * (steps - 1))

    @property
    def rank(self) -> Ints:
        """(pool,): place among its siblings, 0 for the first choice."""
        return np.tile(np.arange(self.topk), len(self.q) // self.topk)

    @property
    def parent(self) -> Ints:
        """(pool, M): candidate above, -1 for the root."""
        first = np.full((self.topk, self.q.shape[1]), -1, dtype=np.int64)
        return np.concatenate([first, *np.repeat(self.frontier, self.topk, axis=1)])

    def upto(self, steps: int) -> Beam:
        """Return the beam of fewer steps, with which this one began."""
        pool = tree_capacity(self.topk, steps) - 1
        return Beam(self.frontier[: steps - 1], self.q[:pool], self.p[:pool], self.merit[:pool])

    def selected(self, num_draft_tokens: int) -> Flags:
        """Return (pool, M): the candidates that are verified with the root."""
        return next(self._selected([num_draft_tokens]))

    def _selected(self, sizes: Sequence[int]) -> Iterator[Flags]:
        """Do so for trees of these sizes."""
        for size in sizes:
            _check_size(size, 1 + len(self.q))
        rising = np.sort(self.merit, axis=0)
        for size in sizes:
            yield self.merit >= (rising[1 - size] if size > 1 else np.inf)

    def survival(self, num_draft_tokens: Sequence[int]) -> Floats:
        """Return P(at least d drafts accepted), d = 1..S, of trees of such sizes, (trees, S, M)."""
        k = self.topk
        stops = [k + k * k * step for step in range(len(self.frontier) + 1)]
        steps = [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]
        kept = (chosen * self.p for chosen in self._selected(num_draft_tokens))
        return np.array([[truth[step].sum(axis=0) for step in steps] for truth in kept])


def beam_tree(q_steps: Sequence[Floats], p_steps: Sequence[Floats]) -> Beam:
    """Grow the beam of M contexts as SGLang does.

    Every step expands each frontier node to k candidates, scored by the product of confidences;
    all join the pool, and the best k of the step are the next frontier; equal scores go to the
    lower number (0.5.9 ``spec_utils.py:467-514``, ``eagle_utils.py:19-38``).

    Parameters
    ----------
    q_steps
        Drafter's confidence, per step an array (w, k, M): [j, r, m] is that of the rank-r child
        of frontier slot j, the j-th best of the last step's candidates; it falls with the rank. w
        is 1 at the first step, k after. Clipped to 0..1.
    p_steps
        True probability that this child is accepted given its parent; same shapes.
    """
    _, k, contexts = q_steps[0].shape
    q, p = np.empty((2, tree_capacity(k, len(q_steps)) - 1, contexts))
    frontier = np.empty((len(q_steps) - 1, k, contexts), dtype=np.int64)
    start = 0
    for step, (q_child, p_child) in enumerate(zip(q_steps, p_steps, strict=True)):
        stop = start + k * len(q_child)
        q_new, p_new = (x[start:stop].reshape(q_child.shape) for x in (q, p))
        above = np.ones((2, 1, contexts))
        if step:
            above = np.stack([np.take_along_axis(x, frontier[step - 1], axis=0) for x in (q, p)])
        np.clip(q_child, 0.0, 1.0, out=q_new)
        q_new *= above[0][:, None]
        np.multiply(p_child, above[1][:, None], out=p_new)
        if stop < len(q):
            frontier[step] = start + _best(q_new)
        start = stop
    number = np.arange(len(q))[:, None]
    merit = q * (1.0 - number * 2.0**-50)
    merit -= number * 1e-300
    return Beam(frontier, q, p, merit)


def _best(score: Floats) -> Ints:
    """Return the k best of each context, best first, equal ones by number, of (slots, k, M).

    Scores of a slot fall, so the next best one is the best that is left of some slot.
    """
    slots, k, contexts = score.shape
    each, heads = np.arange(contexts), score[:, 0].copy()
    taken = np.zeros((slots, contexts), dtype=np.int64)
    best = np.empty((k, contexts), dtype=np.int64)
    for place in range(k):
        slot = heads.argmax(axis=0)
        rank = taken[slot, each]
        best[place] = slot * k + rank
        taken[slot, each] = rank + 1
        left = rank + 1 < k
        heads[slot, each] = np.where(left, score[slot, np.where(left, rank + 1, 0), each], -1.0)
    return best


def _check_size(size: int, most: int) -> None:
    """Raise InputError unless a tree of `size` nodes fits into one of `most`.

    The engine dies with "selected index k out of range" where it does not (SGLang issue 5160).
    """
    if not 1 <= size <= most:
        raise InputError(
            f"tree of {size} nodes",
            f"must have 1..{most} nodes, root included",
            "ask for fewer nodes, or allow more depth or more children",
        )


# --- the best there is


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
    if probs.ndim != 2 or not np.all((probs >= 0) & (probs <= 1)):
        raise InputError(
            f"child probabilities of shape {probs.shape}",
            "must be one row of ranks per depth, each in 0..1",
            "give the probability that each child is accepted given its parent",
        )
    depths, ranks = probs.shape
    _check_size(size, sum(ranks**level for level in range(depths + 1)))
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
