"""Whether acceptance changes within a run: sums over a few blocks of windows, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Floats

MOST_BLOCKS = 64
"""Of more, neighbours are joined."""
CHANGE = 0.1
"""Of the accept length from the first to the last quarter; less is no news."""
SAME_LOAD = 0.25
"""Another batch may have another accept length: the quarters must run about as many requests."""
SURE = 3.0
"""Standard deviations that Kendall's count of ordered pairs is off that of a random order."""


@dataclass(slots=True)
class Blocks:
    """Equally many successive windows each: their number and the sums of what they say."""

    size: int = 1  # windows of a block
    count: int = 0  # windows
    # windows, running requests, rounds, emitted tokens, seconds of a round
    sums: Floats = field(default_factory=lambda: np.zeros((5, MOST_BLOCKS)))

    def add(self, columns: Floats) -> None:
        """Add windows: running requests, rounds, emitted tokens, seconds of a round."""
        n = columns.shape[1]
        while self.count + n > self.size * MOST_BLOCKS:
            joined = self.sums[:, ::2] + self.sums[:, 1::2]
            self.sums = np.concatenate((joined, np.zeros_like(joined)), axis=1)
            self.size *= 2
        block = (self.count + np.arange(n)) // self.size
        rows = (np.ones(n), *columns)
        self.sums += [np.bincount(block, weights=row, minlength=MOST_BLOCKS) for row in rows]
        self.count += n

    def told(self) -> str:
        """Return how the accept length drifts, empty if it does not."""
        sums = self.sums[:, self.sums[2] > 0]
        length = sums[3] / sums[2]
        n = len(length)
        if n < 2 or abs(_disorder(length)) < SURE:
            return ""
        ends = [
            part.sum(axis=1) for part in (sums[:, : max(n // 4, 1)], sums[:, -max(n // 4, 1) :])
        ]
        (batch, before, round_s), (batch_then, now, round_then_s) = (
            (e[1] / e[0], e[3] / e[2], e[4] / e[0]) for e in ends
        )
        if abs(now / before - 1) < CHANGE or abs(batch_then / batch - 1) > SAME_LOAD:
            return ""
        stays = abs(round_then_s / round_s - 1) < CHANGE
        took = "" if stays else f"; a round goes from {1e3 * round_s:.1f} to"
        return (
            f"accept length drifts from {before:.2f} (first quarter of the windows) to {now:.2f} "
            f"(last){took or '; a round stays at'} {1e3 * round_then_s:.1f} ms: the mean is of no "
            "moment of this run"
        )


def _disorder(series: Floats) -> float:
    """Kendall's count of ordered pairs, in its standard deviations under a random order."""
    n = len(series)
    pairs = np.sign(series[None, :] - series[:, None])[np.triu_indices(n, 1)].sum()
    return float(pairs / np.sqrt(n * (n - 1) * (2 * n + 5) / 18))
