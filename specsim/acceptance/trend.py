"""Accept probabilities beyond the depths that were measured.

Log-odds go on along the logarithm of the depth
as they did there, at half that slope, and the rest of the way by `decay` per depth:

    logit a_d = logit alpha_{d-1} + w b ln(d / (d - 1)),  alpha_d = a_d decay^(1 - w)       (TREND)

with w = 1/2, and 0 below three depths. b differs between drafters more than one decay can say: an
MTP layer that is used again on its own output falls from .79 to .2 at the fifth depth, several
of its kind from .93 to .8. Over 19 accept lengths at depths 5 to 8 predicted from depths 1 to 3 a
decay alone is 3.3 % off on average and 10.9 % at worst, (TREND) 3.0 % and 9.0 %, its whole slope
3.0 % and 10.4 % (benchmarks/figures_drafters.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Floats

TREND_SHARE = 0.5
"""w of (TREND)."""


def continued(known: tuple[float, ...], decay: float, num_steps: int) -> Floats:
    """Return alpha_1 .. alpha_S, the measured ones and on (TREND)."""
    alpha, slope = list(known), TREND_SHARE * _slope(known)
    for depth in range(len(alpha) + 1, num_steps + 1):
        before = alpha[-1]
        if 0.0 < before < 1.0:
            odds = before / (1.0 - before) * (depth / (depth - 1)) ** slope
            before = odds / (1.0 + odds)
        alpha.append(min(before * decay ** (1.0 - TREND_SHARE), 1.0))
    return np.array(alpha, np.float64)


def _slope(alpha: tuple[float, ...]) -> float:
    """Slope b of the log-odds over the logarithm of the depth, by least squares."""
    inside = np.clip(np.array(alpha), 0.01, 0.99)
    depth = np.log(np.arange(1, len(alpha) + 1))
    depth = depth - depth.mean()
    return float(depth @ np.log(inside / (1 - inside)) / (depth @ depth))
