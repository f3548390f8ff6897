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
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsim.errors import InputError
from specsim.hardware import AllReducePiece

if TYPE_CHECKING:
    from specsim.arrays import Floats

Line = tuple[float, float, float]

WILD = 0.1
"""Relative error from which the fit of a line takes a row for wild and stops listening to it."""

PIECE_COST = 0.3
"""What a further piece must save in the robust cost: as much as one row that is 6 % off."""

NO_BANDWIDTH_TERM = 1e15
"""Bytes/s of a piece that shows no dependence on size."""


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
        size = np.asarray(message_bytes, np.float64)
        if not self.pieces:
            return np.zeros_like(size)
        which = np.searchsorted([p.max_bytes for p in self.pieces[:-1]], size, side="right")
        alpha = np.array([p.latency_s for p in self.pieces])[which]
        beta = np.array([p.bytes_per_s for p in self.pieces])[which]
        rate = beta * np.asarray(bandwidth_scale, np.float64)
        seconds: Floats = alpha * np.asarray(latency_scale, np.float64) + size / rate
        return seconds

    def switched(self, at_bytes: float, above: AllReduce) -> AllReduce:
        """Return this all-reduce up to `at_bytes`, and `above` beyond it (a hand-over).

        vLLM's custom all-reduce hands over to NCCL at a fixed size, for example.
        """
        low = [p for p in self.pieces if p.max_bytes < at_bytes]
        middle = next((p for p in self.pieces if p.max_bytes >= at_bytes), None)
        if middle is not None:
            low.append(AllReducePiece(at_bytes, middle.latency_s, middle.bytes_per_s))
        return AllReduce((*low, *(p for p in above.pieces if p.max_bytes > at_bytes)))


def fit_allreduce(
    message_bytes: Sequence[float] | Floats,
    seconds: Sequence[float] | Floats,
    max_pieces: int = 3,
) -> AllReduce:
    """Fit at most `max_pieces` Hockney pieces to a measured table.

    The change points are searched exhaustively; a further piece must pay for itself
    (`PIECE_COST`). Between two measured sizes the switch is put where the two lines are nearest
    to each other, for that is where a tuner means to switch: at their crossing, else at an end of
    the gap.

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

    Examples
    --------
    >>> sizes = [2.0**k for k in range(12, 24)]
    >>> curve = fit_allreduce(sizes, [5e-6 + size / 20e9 for size in sizes])
    >>> [(f"{p.latency_s:.3g}", f"{p.bytes_per_s:.3g}") for p in curve.pieces]
    [('5e-06', '2e+10')]
    """
    size, time = _checked_rows(message_bytes, seconds)
    spans, lines = _best_spans(size, time, max_pieces)
    pieces = []
    for (_, end), line, following in zip(spans, lines, [*lines[1:], None], strict=True):
        alpha, inverse, _ = line
        bound = math.inf
        if following is not None:
            bound = _switch(size[end - 1], size[end], line, following)
        rate = 1 / inverse if inverse > 0 else NO_BANDWIDTH_TERM
        pieces.append(AllReducePiece(bound, alpha, rate))
    return AllReduce(tuple(pieces))


def _checked_rows(
    message_bytes: Sequence[float] | Floats, seconds: Sequence[float] | Floats
) -> tuple[Floats, Floats]:
    """Rows in order of size, or InputError."""
    size = np.asarray(message_bytes, np.float64)
    time = np.asarray(seconds, np.float64)
    if size.ndim != 1 or size.shape != time.shape or len(np.unique(size)) < 2:
        raise InputError(
            f"{size.size} all-reduce rows", "fewer than two sizes", "measure more message sizes"
        )
    if not (
        np.isfinite(size).all() and np.isfinite(time).all() and min(size.min(), time.min()) > 0
    ):
        raise InputError("all-reduce table", "has a value that is not positive", "check the rows")
    order = np.argsort(size, kind="stable")
    return size[order], time[order]


def _best_spans(
    size: Floats, time: Floats, max_pieces: int
) -> tuple[list[tuple[int, int]], list[Line]]:
    """Cut the rows into spans of at least two, so that the lines' robust cost is least."""

    @cache
    def line(start: int, stop: int) -> Line:
        return _fit_line(size[start:stop], time[start:stop])

    best_cost = math.inf
    best: list[tuple[int, int]] = []
    places = [i for i in range(2, len(size) - 1) if size[i] > size[i - 1]]
    for inner in range(max_pieces):
        for cuts in itertools.combinations(places, inner):
            spans = list(itertools.pairwise((0, *cuts, len(size))))
            if inner and any(stop - start < 2 for start, stop in spans):
                continue
            cost = sum(line(*span)[2] for span in spans) + PIECE_COST * inner
            if cost < best_cost:
                best_cost, best = cost, spans
    return best, [line(*span) for span in best]


def _fit_line(size: Floats, seconds: Floats) -> Line:
    """Fit alpha + size/beta by relative least squares, robustly: (alpha, 1/beta, cost)."""
    x, y = size / seconds, 1.0 / seconds
    weight = np.ones_like(size)
    for _ in range(8):
        alpha, inverse = _least_squares(x, y, weight)
        residual = alpha * y + inverse * x - 1
        weight = 1.0 / (1.0 + (residual / WILD) ** 2)  # a single wild row must not bend a line
    cost = float(np.log1p((residual / WILD) ** 2).sum())
    return alpha, inverse, cost


def _least_squares(x: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    """Weighted least squares of alpha y + inverse x = 1 with both numbers >= 0."""
    syy, sxy, sxx = (weight * y * y).sum(), (weight * x * y).sum(), (weight * x * x).sum()
    sy, sx = (weight * y).sum(), (weight * x).sum()
    determinant = syy * sxx - sxy * sxy
    if determinant > 1e-12 * syy * sxx:
        alpha = (sy * sxx - sx * sxy) / determinant
        inverse = (sx * syy - sy * sxy) / determinant
        if alpha > 0 and inverse > 0:
            return float(alpha), float(inverse)
    # on the boundary: the better of the two one-term fits, whose errors are s - s_^2 / s__
    if sy * sy / syy > sx * sx / sxx:
        return float(sy / syy), 0.0
    return 0.0, float(sx / sxx)


def _switch(low: float, high: float, left: Line, right: Line) -> float:
    """Where in [low, high] two neighbouring lines are nearest; `low` stays on the left one.

    Held-out sizes in such gaps, 36 tables of aiconfigurator: 9 % mean error, against 15 % with
    the switch at the gap's geometric middle.
    """

    def jump(at: float) -> float:
        ratio = (left[0] + left[1] * at) / (right[0] + right[1] * at)
        return abs(math.log(ratio))

    slope = left[1] - right[1]
    crossing = (right[0] - left[0]) / slope if slope else math.nan
    if low < crossing < high:
        return float(crossing)
    return math.nextafter(low, math.inf) if jump(low) < jump(high) else float(high)
