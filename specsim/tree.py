"""Draft trees: how many nodes there are, and which ones an engine keeps.

A tree is counted with its root, the last verified token, because that is what a round verifies.
Acceptance enters only as given probabilities: `q` is the drafter's confidence, by which the engine
selects, `p` the true probability that a child is accepted, given that its parent was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    order: Ints  # (pool, M): bits of q, the last of which say its number: no two are equal

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

    def selected(self, num_draft_tokens: int) -> Flags:
        """Return (pool, M): the candidates that are verified with the root."""
        _check_size(num_draft_tokens, 1 + len(self.q))
        if num_draft_tokens == 1:
            return np.zeros(self.q.shape, np.bool_)
        return np.asarray(self.order >= np.sort(self.order, axis=0)[1 - num_draft_tokens])

    def survival(self, num_draft_tokens: Sequence[int]) -> Floats:
        """Return P(at least d drafts accepted), d = 1..S, of trees of such sizes, (trees, S, M)."""
        whole = {len(self.frontier) + 1: num_draft_tokens}
        return next(self.survivals(whole, self.q.shape[1]))

    def survivals(
        self, num_draft_tokens: Mapping[int, Sequence[int]], groups: int
    ) -> Iterator[Floats]:
        """Yield the same for the beams of fewer steps with which this one began, the fewest first.

        Sizes are by steps; means are over `groups` equally large ones of neighbouring contexts.
        """
        each, most = np.arange(self.q.shape[1]), max(map(max, num_draft_tokens.values())) - 1
        of_one = len(each) // groups
        best, seen = self.order[:0], 0
        for steps, sizes in num_draft_tokens.items():
            pool = tree_capacity(self.topk, steps) - 1
            for size in sizes:
                _check_size(size, 1 + pool)
            best = np.concatenate([best, self.order[seen:pool]])  # of the best are later ones too
            if len(best) > 2 * most > 0:
                best = np.partition(best, len(best) - most, axis=0)[len(best) - most :]
            best, seen = np.sort(best, axis=0)[-most or len(best) :], pool
            number, places = _number(best[::-1], len(self.q)), len(best)
            # summed by group, step and place, and along the places: of all sizes at once
            cell = (each // of_one * steps + self.depth[number] - 1) * places + np.arange(places)[
                :, None
            ]
            truth = self.p.take(number * len(each) + each)
            found = np.bincount(cell.ravel(), truth.ravel(), groups * steps * places)
            total = np.zeros((groups, steps, places + 1))
            np.cumsum(found.reshape(groups, steps, places), axis=2, out=total[..., 1:])
            yield total[..., np.array(sizes) - 1].transpose(2, 1, 0) / of_one


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
    pool = tree_capacity(k, len(q_steps)) - 1
    q, p = np.empty((2, pool, contexts))
    order = np.empty((pool, contexts), dtype=np.int64)
    frontier = np.empty((len(q_steps) - 1, k, contexts), dtype=np.int64)
    start, each = 0, np.arange(contexts)
    for step, (q_child, p_child) in enumerate(zip(q_steps, p_steps, strict=True)):
        stop = start + k * len(q_child)
        q_new, p_new = (x[start:stop].reshape(q_child.shape) for x in (q, p))
        np.clip(q_child, 0.0, 1.0, out=q_new)
        if step:
            above = frontier[step - 1] * contexts + each
            q_new *= q.take(above)[:, None]
            np.multiply(p_child, p.take(above)[:, None], out=p_new)
        else:
            p_new[:] = p_child
        order[start:stop] = _ordered(q[start:stop], start, pool)
        if stop < pool:
            frontier[step] = _number(np.sort(order[start:stop], axis=0)[: -k - 1 : -1], pool)
        start = stop
    return Beam(frontier, q, p, order)


def _ordered(q: Floats, start: int, pool: int) -> Ints:
    """Return the bits of q, which rise with it, and in the last of them who comes before equals."""
    last = (1 << pool.bit_length()) - 1
    ordered: Ints = q.view(np.int64) & ~last
    ordered |= last - np.arange(start, start + len(q))[:, None]
    return ordered


def _number(order: Ints, pool: int) -> Ints:
    """Return the numbers of candidates by their order."""
    return ~order & ((1 << pool.bit_length()) - 1)


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
