"""Which candidates of a pool become the tree: the best ones, equal scores by index."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.errors import InputError


def best_subtree(
    path_prob: ArrayLike, parent: ArrayLike, size: int
) -> tuple[NDArray[np.bool_], float]:
    """Return the best tree of `size` nodes for given path probabilities, and its tokens.

    Exact although greedy: a child's product is never above its parent's, so that the best nodes
    are closed under ancestors. No engine can do better from the same pool.

    Parameters
    ----------
    path_prob
        Product of probabilities from the root to each candidate.
    parent
        Candidate's parent, -1 for the root; parents before children.
    size
        Nodes, root included.

    Returns
    -------
    mask, expected_tokens
        The chosen candidates; one (the bonus) plus the sum of their path probabilities.
    """
    score = np.asarray(path_prob, dtype=np.float64)
    above = np.asarray(parent, dtype=np.int64)
    if np.any((above >= np.arange(above.size)) | (above < -1)):
        raise InputError("parents", "must come before their children", "renumber the candidates")
    bounded = np.append(score, 1.0)[above] if score.shape == above.shape else np.nan
    if score.ndim != 1 or not np.all((score >= 0) & (score <= bounded)):
        raise InputError(
            "path probabilities",
            "must be one row of numbers in 0..1 that fall from parent to child",
            "give the product from the root to each candidate",
        )
    check_size(size, 1 + score.size)
    mask = top_mask(score[None, :], size - 1)[0]
    return mask, 1.0 + float(score[mask].sum())


def top_indices(score: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return each row's `count` best columns, best first, equal ones by column."""
    rest = score.copy()
    rows = np.arange(score.shape[0])
    best = np.empty((score.shape[0], count), dtype=np.int64)
    for place in range(count):
        best[:, place] = rest.argmax(axis=1)
        rest[rows, best[:, place]] = -1.0
    return best


def top_mask(score: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Return True for each row's `count` best columns, equal ones by column."""
    columns = score.shape[1]
    if count in (0, columns):
        return np.full(score.shape, count > 0)
    limit = np.partition(score, columns - count, axis=1)[:, columns - count, None]
    above, equal = score > limit, score == limit
    room = count - above.sum(axis=1, keepdims=True)
    chosen: NDArray[np.bool_] = above | (equal & (np.cumsum(equal, axis=1) <= room))
    return chosen


def check_size(size: int, most: int) -> None:
    """Raise InputError unless a tree of `size` nodes fits into one of `most`."""
    if not 1 <= size <= most:
        raise InputError(
            f"tree of {size} nodes",
            f"must have 1..{most} nodes, root included",
            "ask for fewer nodes, or allow more depth or more children",
        )
