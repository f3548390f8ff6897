"""All-reduce time over message size: piecewise Hockney, a piece per protocol.

Equation (ALLREDUCE): on piece j, for message sizes up to its upper bound,

    T_AR(b) = alpha_j + b / beta_j

NCCL and the engines' own kernels change protocol with size, so the pieces need not join and the
time need not be monotone (on eight RTX PRO 6000 over PCIe, 1 MiB is faster than 512 KiB). One
host differs from another by up to ten times: measure it (nccl-tests) or carry a wide prior.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AllReducePiece:
    """One protocol: `latency_s` + bytes / `bytes_per_s`, for messages below `max_bytes`."""

    max_bytes: float
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class AllReduce:
    """All-reduce of one link and GPU count; no pieces means a single GPU, time zero.

    Examples
    --------
    >>> ar = AllReduce((AllReducePiece(65536, 10e-6, 10e9), AllReducePiece(math.inf, 30e-6, 20e9)))
    >>> [round(float(t) * 1e6, 1) for t in ar.time_s([0, 40000, 100000])]
    [10.0, 14.0, 35.0]
    """

    pieces: tuple[AllReducePiece, ...] = ()

    def __post_init__(self) -> None:
        bounds = [p.max_bytes for p in self.pieces]
        if bounds and (bounds != sorted(bounds) or bounds[-1] != math.inf):
            raise InputError(
                f"all-reduce pieces up to {bounds}",
                "must be in rising order and end at infinity",
                "sort the pieces; the last one has no upper bound",
            )

    def time_s(
        self,
        message_bytes: ArrayLike,
        latency_scale: ArrayLike = 1.0,
        bandwidth_scale: ArrayLike = 1.0,
    ) -> Floats:
        """Seconds of one all-reduce of `message_bytes` (any shape), Eq. (ALLREDUCE)."""
        size = np.asarray(message_bytes, dtype=np.float64)
        if not self.pieces:
            return np.zeros_like(size)
        which = np.searchsorted([p.max_bytes for p in self.pieces[:-1]], size, side="right")
        alpha = np.array([p.latency_s for p in self.pieces])[which]
        beta = np.array([p.bytes_per_s for p in self.pieces])[which]
        return alpha * latency_scale + size / (beta * bandwidth_scale)

    def switched(self, at_bytes: float, above: AllReduce) -> AllReduce:
        """Return this all-reduce up to `at_bytes`, and `above` beyond it (a hand-over).

        vLLM's custom all-reduce hands over to NCCL at a fixed size, for example.
        """
        low = [p for p in self.pieces if p.max_bytes < at_bytes]
        middle = next((p for p in self.pieces if p.max_bytes >= at_bytes), None)
        if middle is not None:
            low.append(AllReducePiece(at_bytes, middle.latency_s, middle.bytes_per_s))
        return AllReduce((*low, *(p for p in above.pieces if p.max_bytes > at_bytes)))


def _fit_line(size: Floats, seconds: Floats) -> tuple[float, float, float]:
    """Fit alpha + size/beta by relative least squares, robustly: (alpha, 1/beta, cost)."""
    x, y = size / seconds, 1.0 / seconds
    weight = np.ones_like(size)
    alpha, inverse = 0.0, 0.0
    for _ in range(8):
        syy, sxy, sxx = (weight * y * y).sum(), (weight * x * y).sum(), (weight * x * x).sum()
        sy, sx = (weight * y).sum(), (weight * x).sum()
        det = syy * sxx - sxy * sxy
        alpha = (sy * sxx - sx * sxy) / det if det > 1e-12 * syy * sxx else 0.0
        inverse = (sx * syy - sy * sxy) / det if det > 1e-12 * syy * sxx else 0.0
        if alpha <= 0 or inverse <= 0:  # on the boundary: the better of the two one-term fits
            only_alpha, only_inverse = sy / syy, sx / sxx
            if ((only_alpha * y - 1) ** 2 * weight).sum() < (
                (only_inverse * x - 1) ** 2 * weight
            ).sum():
                alpha, inverse = only_alpha, 0.0
            else:
                alpha, inverse = 0.0, only_inverse
        residual = alpha * y + inverse * x - 1
        weight = 1.0 / (1.0 + (residual / 0.1) ** 2)  # a single wild row must not bend a line
    cost = float(np.log1p((residual / 0.1) ** 2).sum())
    return float(alpha), float(inverse), cost


def fit_allreduce(
    message_bytes: Sequence[float] | Floats,
    seconds: Sequence[float] | Floats,
    max_pieces: int = 3,
) -> AllReduce:
    """Fit at most `max_pieces` Hockney pieces to a measured table.

    The change points are searched exhaustively; a further piece must pay for its three numbers
    (Akaike's criterion on the robust cost). Between two measured sizes the switch is put where
    the two lines cross, or, where they do not cross in that gap, at its geometric middle.

    Parameters
    ----------
    message_bytes, seconds
        One measured row each, any order, positive.
    max_pieces
        Most protocols to look for.

    Raises
    ------
    InputError
        For fewer than two sizes, or values that are not finite and positive.
    """
    size, time = np.asarray(message_bytes, float), np.asarray(seconds, float)
    if size.ndim != 1 or size.shape != time.shape or len(np.unique(size)) < 2:
        raise InputError(
            f"{size.size} all-reduce rows", "fewer than two sizes", "measure more message sizes"
        )
    if not (
        np.isfinite(size).all() and np.isfinite(time).all() and min(size.min(), time.min()) > 0
    ):
        raise InputError("all-reduce table", "has a value that is not positive", "check the rows")
    order = np.argsort(size, kind="stable")
    size, time = size[order], time[order]
    lines: dict[tuple[int, int], tuple[float, float, float]] = {}
    best_cost, best_cuts = math.inf, (0, len(size))
    for pieces in range(1, max_pieces + 1):
        for inner in itertools.combinations(range(2, len(size) - 1), pieces - 1):
            cuts = (0, *inner, len(size))
            spans = list(itertools.pairwise(cuts))
            if pieces > 1 and any(b - a < 2 for a, b in spans):
                continue
            for span in spans:
                if span not in lines:
                    lines[span] = _fit_line(size[slice(*span)], time[slice(*span)])
            cost = sum(lines[span][2] for span in spans) + 3.0 * (pieces - 1) * 0.1
            if cost < best_cost:
                best_cost, best_cuts = cost, cuts
    fitted = [lines[span] for span in itertools.pairwise(best_cuts)]
    result = []
    for j, (alpha, inverse, _) in enumerate(fitted):
        bound = math.inf
        if j + 1 < len(fitted):
            low, high = size[best_cuts[j + 1] - 1], size[best_cuts[j + 1]]
            bound = _switch(low, high, fitted[j][:2], fitted[j + 1][:2])
        result.append(AllReducePiece(bound, alpha, 1 / inverse if inverse > 0 else 1e15))
    return AllReduce(tuple(result))


def _switch(
    low: float, high: float, left: tuple[float, float], right: tuple[float, float]
) -> float:
    """Where two neighbouring lines meet inside (low, high), else the geometric middle."""
    slope = left[1] - right[1]
    crossing = (right[0] - left[0]) / slope if slope else math.nan
    return float(crossing) if low < crossing < high else math.sqrt(low * high)
