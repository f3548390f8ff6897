"""The trees that the engine builds: a beam over the drafter's confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.errors import InputError
from specsim.tree.selection import check_size, top_indices, top_mask
from specsim.tree.shape import DraftTree, tree_capacity


@dataclass(frozen=True, slots=True)
class BeamResult:
    """The trees that the engine's beam builds for M contexts, over one common pool layout.

    Pool nodes are numbered by step, then by frontier slot, then by rank; the root is not one.

    Parameters
    ----------
    selected
        (M, pool): candidates that are verified.
    parent
        (M, pool): pool index of the parent, -1 for the root.
    q, p
        (M, pool): product of the drafter's confidences, and of the true accept probabilities,
        from the root to each node.
    depth, rank
        (pool,): the same for all contexts.
    """

    selected: NDArray[np.bool_]
    parent: NDArray[np.int64]
    q: NDArray[np.float64]
    p: NDArray[np.float64]
    depth: NDArray[np.int64]
    rank: NDArray[np.int64]

    def survival(self) -> NDArray[np.float64]:
        """Return (M, S): P(at least d drafts accepted), d = 1..S, of each context."""
        kept = np.where(self.selected, self.p, 0.0)
        starts = np.flatnonzero(np.diff(self.depth, prepend=0))
        return np.asarray(np.add.reduceat(kept, starts, axis=1), dtype=np.float64)

    def accept_length(self) -> NDArray[np.float64]:
        """Return (M,): expected tokens of a round, bonus included, of each context."""
        tokens: NDArray[np.float64] = 1.0 + np.where(self.selected, self.p, 0.0).sum(axis=1)
        return tokens

    def tree(self, context: int) -> DraftTree:
        """Return the tree of one context."""
        return DraftTree.from_scores(
            self.parent[context],
            self.rank,
            self.q[context],
            1 + int(self.selected[context].sum()),
        )


def beam_tree(
    q_steps: Sequence[NDArray[np.float64]],
    p_steps: Sequence[NDArray[np.float64]],
    num_draft_tokens: int,
) -> BeamResult:
    """Build the trees of M contexts as SGLang builds them.

    Every step expands each frontier node to k candidates, scored by the product of confidences;
    all join the pool, and the best k of the step are the next frontier. The tree is the root and
    the best `num_draft_tokens` - 1 of the pool (0.5.9 ``spec_utils.py:467-514``,
    ``eagle_utils.py:19-38``). Equal scores go to the lower pool index, which keeps parents.

    Parameters
    ----------
    q_steps
        Drafter's confidence, per step an array (M, w, k): [m, j, r] is that of the rank-r child
        of frontier slot j, the j-th best of the last step's candidates. w is 1 at the first step,
        k after. Clipped to 0..1.
    p_steps
        True probability that this child is accepted given its parent; same shapes.
    num_draft_tokens
        Tokens verified, root included.

    Raises
    ------
    InputError
        If shapes do not match or the pool is smaller than `num_draft_tokens` - 1, where the
        engine dies with "selected index k out of range" (SGLang issue 5160).
    """
    contexts, k = _check_steps(q_steps, p_steps, num_draft_tokens)
    pool = tree_capacity(k, len(q_steps)) - 1
    q, p = np.empty((contexts, pool)), np.empty((contexts, pool))
    parent = np.full((contexts, pool), -1, dtype=np.int64)
    rows = np.arange(contexts)[:, None]
    start, frontier = 0, np.empty((contexts, 0), dtype=np.int64)
    for step, (q_child, p_child) in enumerate(zip(q_steps, p_steps, strict=True)):
        stop = start + q_child.shape[1] * k
        q_new, p_new = np.clip(q_child, 0.0, 1.0), np.asarray(p_child, dtype=np.float64)
        if step:
            q_new = q[rows, frontier][:, :, None] * q_new
            p_new = p[rows, frontier][:, :, None] * p_new
            parent[:, start:stop] = np.repeat(frontier, k, axis=1)
        q[:, start:stop] = q_new.reshape(contexts, -1)
        p[:, start:stop] = p_new.reshape(contexts, -1)
        frontier = start + top_indices(q[:, start:stop], k)
        start = stop
    depth = np.repeat(np.arange(1, len(q_steps) + 1), [k] + [k * k] * (len(q_steps) - 1))
    rank = np.tile(np.arange(k), pool // k)
    return BeamResult(top_mask(q, num_draft_tokens - 1), parent, q, p, depth, rank)


def _check_steps(
    q_steps: Sequence[NDArray[np.float64]],
    p_steps: Sequence[NDArray[np.float64]],
    num_draft_tokens: int,
) -> tuple[int, int]:
    """Return (contexts, topk), or raise InputError."""
    if not q_steps or q_steps[0].ndim != 3:
        raise InputError(
            f"{len(q_steps)} beam steps", "need arrays (contexts, 1 or k, k)", "give one per step"
        )
    contexts, _, k = q_steps[0].shape
    shapes = [(contexts, 1 if step == 0 else k, k) for step in range(len(q_steps))]
    given = [[a.shape for a in steps] for steps in (q_steps, p_steps)]
    if given != [shapes, shapes]:
        raise InputError(f"beam steps of shapes {given}", f"must be {shapes}", "fix the shapes")
    if not all(np.isfinite(q).all() for q in q_steps):
        raise InputError("beam confidences", "are not all finite", "give probabilities")
    if not all(((p >= 0) & (p <= 1)).all() for p in p_steps):
        raise InputError("accept probabilities", "must lie in 0..1", "give probabilities")
    check_size(num_draft_tokens, tree_capacity(k, len(q_steps)))
    return contexts, k
