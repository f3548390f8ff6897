"""The CPU's part of a round: scheduling, launching, processing results."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.cost.model import CostModel

HOST_S = 1.2e-3
HOST_PER_REQUEST_S = 20e-6
"""Assumed: T_host = c0 + c1 B with c0 of 1-3 ms and c1 of 10-50 us (PHYSICS 5)."""


def host_s(cost: CostModel, batch: ArrayLike) -> NDArray[np.float64]:
    """CPU time of one round, seconds: c0 + c1 B                                    (HOST)."""
    b = np.asarray(batch, dtype=np.float64)
    return np.asarray((HOST_S + HOST_PER_REQUEST_S * b) * cost.parameters.host, dtype=np.float64)
