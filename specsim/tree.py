"""Draft trees: how many nodes there are, and which ones an engine keeps.

A tree is counted with its root, the last verified token, because that is what a round verifies.
Acceptance enters only as given probabilities: `q` is the drafter's confidence, by which the engine
selects, `p` the true probability that a child is accepted, given that its parent was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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

    They are numbered by step, then by frontier slot, then by rank; the root is not one. Arrays are
    (M, pool), or (pool,) where all contexts have the same. The tree of a context is the root and
    the best candidates by `q`, equal ones by number: that keeps parents before their children.
    """

    parent: Ints  # candidate above, -1 for the root
    q: Floats  # product of the drafter's confidences from the root
    p: Floats  # product of the true accept probabilities from the root
    depth: Ints  # (pool,)
    rank: Ints  # (pool,): place among its siblings, 0 for the first choice

    def selected(self, num_draft_tokens: int) -> Flags:
        """Return (M, pool): the candidates that are verified with the root."""
        _check_size(num_draft_tokens, 1 + len(self.depth))
        chosen = np.zeros(self.q.shape, dtype=np.bool_)
        np.put_along_axis(chosen, _best(self.q, num_draft_tokens - 1), True, axis=1)
        return chosen

    def survival(self, num_draft_tokens: Sequence[int]) -> Floats:
        """Return (trees, M, S): P(at least d drafts accepted), d = 1..S, of trees of these sizes.

        Smaller trees are the beginnings of larger ones, so all are partial sums over one order.
        """
        for size in num_draft_tokens:
            _check_size(size, 1 + len(self.depth))
        sizes = np.array(num_draft_tokens)
        order = _best(self.q, int(sizes.max()) - 1)
        truth, depth = np.take_along_axis(self.p, order, axis=1), self.depth[order]
        survival = np.zeros((len(sizes), len(self.q), int(self.depth[-1])))
        some = sizes > 1
        for d in range(survival.shape[2]):
            total = np.cumsum(np.where(depth == d + 1, truth, 0.0), axis=1)
            survival[some, :, d] = total[:, sizes[some] - 2].T
        return survival


def beam_tree(q_steps: Sequence[Floats], p_steps: Sequence[Floats]) -> Beam:
    """Grow the beam of M contexts as SGLang does.

    Every step expands each frontier node to k candidates, scored by the product of confidences;
    all join the pool, and the best k of the step are the next frontier; equal scores go to the
    lower number (0.5.9 ``spec_utils.py:467-514``, ``eagle_utils.py:19-38``).

    Parameters
    ----------
    q_steps
        Drafter's confidence, per step an array (M, w, k): [m, j, r] is that of the rank-r child
        of frontier slot j, the j-th best of the last step's candidates. w is 1 at the first step,
        k after. Clipped to 0..1.
    p_steps
        True probability that this child is accepted given its parent; same shapes.
    """
    contexts, _, k = q_steps[0].shape
    steps, pool = len(q_steps), tree_capacity(k, len(q_steps)) - 1
    q, p = np.empty((contexts, pool)), np.empty((contexts, pool))
    parent = np.full((contexts, pool), -1, dtype=np.int64)
    rows = np.arange(contexts)[:, None]
    start, frontier = 0, np.empty((contexts, 0), dtype=np.int64)
    for step, (q_child, p_child) in enumerate(zip(q_steps, p_steps, strict=True)):
        stop = start + q_child.shape[1] * k
        q_new, p_new = np.clip(q_child, 0.0, 1.0), p_child
        if step:
            q_new = q[rows, frontier][:, :, None] * q_new
            p_new = p[rows, frontier][:, :, None] * p_new
            parent[:, start:stop] = np.repeat(frontier, k, axis=1)
        q[:, start:stop] = q_new.reshape(contexts, -1)
        p[:, start:stop] = p_new.reshape(contexts, -1)
        frontier = start + _best(q[:, start:stop], k)
        start = stop
    depth = np.repeat(np.arange(1, steps + 1), [k] + [k * k] * (steps - 1))
    return Beam(parent, q, p, depth, np.tile(np.arange(k), pool // k))


def _best(score: Floats, count: int) -> Ints:
    """Return each row's `count` best columns, best first, equal ones by column."""
    contexts, columns = score.shape
    if 4 * count > columns:
        return np.argsort(-score, axis=1, kind="stable")[:, :count]
    rest, rows = score.copy(), np.arange(contexts)  # a few of many: faster one by one
    best = np.empty((contexts, count), dtype=np.int64)
    for place in range(count):
        best[:, place] = rest.argmax(axis=1)
        rest[rows, best[:, place]] = -1.0
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
