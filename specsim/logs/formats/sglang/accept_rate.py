"""What an SGLang server's printed accept rate means, from the numbers themselves."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from specsim.arrays import Floats
from specsim.logs.formats.sglang.lines import GENERATIONS, Layout

Definition = Literal["with_bonus", "drafts_only"]
"""Of the accept rate: accept_len/n (0.5.3 to 0.5.10; 0.5.3 and 0.5.4 divide by num_steps + 1), or,
from 0.5.11, (accept_len - 1)/(n - 1)."""

_BONUS: dict[Definition, int] = {"with_bonus": 0, "drafts_only": 1}
"""Tokens that are taken off the length and off n."""
_CANDIDATES = np.arange(2, 65)
_HALF_STEP = 0.00501
"""Half a step of the printed numbers."""
_SAMPLE = 64
_CONSISTENT = 0.98


@dataclass(slots=True)
class AcceptRate:
    """Finds num_draft_tokens and the definition of the accept rate from printed pairs."""

    seen: int = 0  # lines looked at
    bonus_alone: int = 0  # lines with an accept length of 1.00 whose rate is not 0
    # Lines consistent with each candidate n, by definition.
    fits: dict[Definition, Floats] = field(
        default_factory=lambda: {name: np.zeros(len(_CANDIDATES)) for name in _BONUS}
    )

    def see(self, accept: Floats, rate: Floats) -> None:
        """Look at a few lines of a batch."""
        known = np.isfinite(accept) & np.isfinite(rate) & (rate > 0)
        self.bonus_alone += int((known & (accept < 1.005)).sum())
        length, printed = accept[known][:_SAMPLE, None], rate[known][:_SAMPLE, None]
        self.seen += len(length)
        for name, bonus in _BONUS.items():
            slots = _CANDIDATES - bonus
            # Both numbers are rounded, the length by half a step and the rate by another.
            near = np.abs((length - bonus) / slots - printed) <= _HALF_STEP * (1 + 1 / slots)
            self.fits[name] += near.sum(axis=0)

    def candidates(self, definition: Definition) -> list[int]:
        """Values of n with which nearly all lines agree."""
        agree = self.fits[definition] >= _CONSISTENT * self.seen
        return [int(n) for n in _CANDIDATES[agree]] if self.seen else []

    def definition(
        self, layout: Layout, num_draft_tokens: object, versions: str
    ) -> Definition | None:
        """Return the definition, if the versions (one, or a range) or the numbers decide it."""
        old = not layout.comma or layout.trailing_comma
        if old or versions.startswith(("0.5.9.", "0.5.10")) or versions == "0.5.9":
            return "with_bonus"
        if versions and versions != GENERATIONS[-1].versions:
            return "drafts_only"
        possible = [d for d in _BONUS if self._agrees(d, num_draft_tokens)]
        return possible[0] if len(possible) == 1 else None

    def _agrees(self, definition: Definition, num_draft_tokens: object) -> bool:
        found = self.candidates(definition)
        return bool(found) if num_draft_tokens is None else num_draft_tokens in found

    def num_draft_tokens(self, definition: Definition | None) -> int | None:
        """Return n if just one value agrees with all lines."""
        found = self.candidates(definition) if definition else []
        return found[0] if len(found) == 1 else None
