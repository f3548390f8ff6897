"""Windows of several data-parallel ranks: which lines belong together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUP_SPAN_S = 20.0
"""Lines of ranks further apart than this are not of one window."""


def group_starts(
    slots: NDArray[np.int64], time_s: NDArray[np.float64], ranks: int
) -> NDArray[np.int64]:
    """Return where each window begins: a group ends where a rank comes again.

    Parameters
    ----------
    slots
        Index of the rank of each line.
    time_s
        Print times; NaN if unknown.
    ranks
        Ranks of the server.

    Examples
    --------
    >>> group_starts(np.array([0, 1, 0, 1]), np.array([0.0, 0.0, 1.0, 1.0]), 2)
    array([0, 2])
    """
    if ranks <= 1:
        return np.arange(len(slots))
    starts: list[int] = []
    seen, begun = 0, 0.0
    for i, (slot, now) in enumerate(zip(slots.tolist(), time_s.tolist(), strict=True)):
        bit = 1 << slot
        if not starts or seen & bit or now - begun > GROUP_SPAN_S:
            starts.append(i)
            seen, begun = 0, now
        seen |= bit
    return np.array(starts, dtype=np.int64)
