"""What vLLM's drafting lines add up to: survival, drafted tokens, what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specsim.calibrate.readers.entry import Diagnosis
from specsim.calibrate.readers.vllm_lines import SpecLine, V0Line

MAX_POSITIONS = 64
FULL_DRAFTING = 0.95
"""Drafted tokens per round below this fraction of the configured number are partial."""

_DRAFTS, _DRAFTED, _ACCEPTED, _EMITTED, _POSITIONED = range(5)
_FIXED = 5


@dataclass(slots=True)
class Drafting:
    """Sums over drafting lines by running batch; 0 stands for an unknown batch.

    Attributes
    ----------
    lines, alone
        Lines read, and those of them without a throughput line.
    positions
        Drafted positions that the lines show.
    corrected
        Lines whose printed length lacked the bonus token.
    sums
        Batch -> drafts, drafted, accepted, emitted, drafts of lines with positions, then survival
        x drafts by position.
    """

    lines: int = 0
    alone: int = 0
    positions: int = 0
    corrected: int = 0
    sums: dict[int, list[float]] = field(default_factory=dict)

    def add(self, line: SpecLine, running: int) -> None:
        """Count one line."""
        self.lines += 1
        self.alone += running == 0
        self.positions = max(self.positions, len(line.survival))
        self.corrected += line.bonus_added
        sums = self.sums.get(running)
        if sums is None:
            sums = self.sums[running] = [0.0] * (_FIXED + MAX_POSITIONS)
        length = line.accept_length or 0.0
        known = (line.drafts or 0.0) if length else 0.0
        sums[_DRAFTS] += known
        sums[_DRAFTED] += line.drafted
        sums[_ACCEPTED] += line.accepted
        sums[_EMITTED] += known * length
        sums[_POSITIONED] += known if line.survival else 0.0
        for at, rate in enumerate(line.survival, start=_FIXED):
            sums[at] += known * rate

    def _total(self, low: float, high: float) -> NDArray[np.float64]:
        total = np.zeros(_FIXED + MAX_POSITIONS)
        for batch, sums in self.sums.items():
            if low <= batch <= high:
                total += sums
        return total

    @property
    def accept_length(self) -> float | None:
        """Tokens per request and round over all lines, bonus included."""
        total = self._total(0, np.inf)
        return float(total[_EMITTED] / total[_DRAFTS]) if total[_DRAFTS] else None

    def survival(self, low: float = 0, high: float = np.inf) -> tuple[float, ...] | None:
        """P(at least d drafts accepted) where the batch was within ``low .. high``."""
        total = self._total(low, high)
        if not total[_POSITIONED]:
            return None
        rates = total[_FIXED : _FIXED + self.positions] / total[_POSITIONED]
        return tuple(float(rate) for rate in rates)

    def drafted_per_round(self, low: float = 0, high: float = np.inf) -> float | None:
        """Draft tokens per request and round."""
        total = self._total(low, high)
        return float(total[_DRAFTED] / total[_DRAFTS]) if total[_DRAFTS] else None

    def accept_rate(self, low: float = 0, high: float = np.inf) -> float | None:
        """Return accepted over drafted tokens."""
        total = self._total(low, high)
        return float(total[_ACCEPTED] / total[_DRAFTED]) if total[_DRAFTED] else None


def drafting_diagnoses(
    drafting: Drafting, v0: V0Line | None, settings: Mapping[str, object]
) -> list[Diagnosis]:
    """Return what is wrong with the drafting, and what the numbers mean."""
    found = []
    if drafting.corrected:
        text = (
            f"the printed mean acceptance length leaves out the bonus token (vLLM 0.8.5) "
            f"in {drafting.corrected} lines: 1 was added"
        )
        found.append(Diagnosis("bonus_excluded", text))
    if v0 is not None:
        text = (
            f"draft acceptance rate {v0.rate:.3f} of vLLM V0 also counts drafts after the first "
            f"rejected one: 1 + k x rate would overstate the accept length "
            f"({1 + v0.num_steps * v0.rate:.2f} instead of {v0.emitted / v0.rounds:.2f})"
        )
        found.append(Diagnosis("accept_rate_definition", text))
    found += _unused_positions(drafting)
    steps, each = settings.get("num_steps"), drafting.drafted_per_round()
    if isinstance(steps, int) and each is not None and each < FULL_DRAFTING * steps:
        text = f"{each:.1f} of {steps} tokens are drafted per round: not every round drafts in full"
        found.append(Diagnosis("partial_drafting", text))
    if drafting.lines and drafting.accept_length is None and drafting.positions == 0:
        rate = drafting.accept_rate() or 0.0
        text = (
            f"this version prints {100 * rate:.0f} % accepted over drafted tokens but no accept "
            "length: without num_speculative_tokens it cannot be derived"
        )
        found.append(Diagnosis("accept_rate_definition", text))
    return found


def _unused_positions(drafting: Drafting) -> list[Diagnosis]:
    survival, length = drafting.survival(), drafting.accept_length
    if not survival or length is None:
        return []
    useful = sum(s > 0 for s in survival)
    if useful == len(survival):
        return []
    if not useful:
        text = "no draft was ever accepted: the drafter does not fit the model"
    else:
        text = (
            f"draft positions {useful + 1} to {len(survival)} were never accepted: "
            f"num_speculative_tokens {useful} gives the same accept length ({length:.2f})"
        )
    return [Diagnosis("zero_acceptance", text)]
