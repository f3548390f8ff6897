"""What vLLM's drafting lines add up to: survival, drafted tokens, what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats

from specsim.logs.entry import Diagnosis
from specsim.logs.vllm_lines import RATE_TOLERANCE, V0Line

MAX_POSITIONS = 64
FULL_DRAFTING = 0.95
"""Drafted tokens per round below this fraction of the configured number are partial."""
PERCENT_SLACK = 0.06
"""Printed percentages may be off by half of their last digit, in the oldest form too."""

_DRAFTS, _DRAFTED, _ACCEPTED, _EMITTED, _POSITIONED = range(5)
_FIXED = 5


@dataclass(frozen=True, slots=True)
class Judged:
    """Drafting lines whose numbers were checked against each other.

    Parameters
    ----------
    accept_length
        Tokens per request and round, bonus included; NaN where it cannot be known.
    drafts
        Request-rounds; NaN where they cannot be known.
    corrected
        Where the printed length lacked the bonus token.
    faulty, empty
        Where the numbers contradict each other; where nothing was drafted.
    """

    accept_length: Floats
    drafts: Floats
    corrected: Flags
    faulty: Flags
    empty: Flags


def survival_matrix(texts: Sequence[bytes]) -> Floats:
    """Convert per-position rates: one row per line, as wide as the longest, NaN beyond."""
    parts = [text.split(b", ") if text else [] for text in texts]
    widths = set(map(len, parts))
    if len(widths) == 1:
        width = widths.pop()
        flat = [float(rate) for part in parts for rate in part]
        return np.array(flat, dtype=np.float64).reshape(len(parts), width)
    matrix = np.full((len(parts), max(widths, default=0)), np.nan)
    for row, part in zip(matrix, parts, strict=True):
        row[: len(part)] = list(map(float, part))
    return matrix


def judge(length: Floats, accepted: Floats, drafted: Floats, rate: Floats, rates: Floats) -> Judged:
    """Check the numbers of drafting lines: they are redundant, so damage shows.

    The per-position rates sum to the accepted drafts per round, which tells both how many rounds
    there were and whether the printed length counts the bonus token (0.8.5 did not).

    Parameters
    ----------
    length, accepted, drafted, rate
        As printed, `rate` in percent; NaN where a line does not say.
    rates
        Per-position rates, one row per line.
    """
    said = np.isfinite(drafted)
    k = np.isfinite(rates).sum(axis=1)
    mean = np.nansum(rates, axis=1)
    slack = RATE_TOLERANCE * k + 0.0051
    with np.errstate(invalid="ignore", divide="ignore"):
        empty = said & (drafted == 0)
        faulty = (accepted > drafted) | (np.abs(100 * accepted / drafted - rate) > PERCENT_SLACK)
        faulty |= (np.diff(rates, axis=1) > 2e-9).any(axis=1)
        faulty |= (k > 0) & (accepted == 0) & (mean > slack)
        by_rates = np.where((mean > 0) & (accepted > 0), accepted / mean, drafted / k)
        by_length = np.where((length > 1) & (accepted > 0), accepted / (length - 1), np.nan)
        drafts = np.where(k > 0, by_rates, by_length)
        most = k * 1.05 + drafted * slack / np.maximum(accepted, 1)
        faulty |= (k > 0) & (drafted / drafts > most)
        with_bonus = np.abs(length - 1 - mean) <= slack
        without = ~with_bonus & (np.abs(length - mean) <= slack)
        faulty |= (k > 0) & np.isfinite(length) & ~with_bonus & ~without
    corrected = (k > 0) & without
    known = np.where(np.isfinite(length), length + corrected, 1 + mean)
    accept = np.where(k > 0, known, length)
    faulty = faulty & said & ~empty
    unknown = faulty | empty | ~said
    return Judged(
        accept_length=np.where(unknown, np.nan, accept),
        drafts=np.where(unknown, np.nan, drafts),
        corrected=corrected & ~unknown,
        faulty=faulty,
        empty=empty,
    )


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
    sums: dict[int, Floats] = field(default_factory=dict)

    def add(
        self, judged: Judged, running: Floats, accepted: Floats, drafted: Floats, rates: Floats
    ) -> None:
        """Count lines: `running` is 0 where there is no throughput line."""
        good = np.isfinite(drafted) & ~judged.faulty & ~judged.empty
        if not good.any():
            return
        self.lines += int(good.sum())
        self.alone += int((good & (running == 0)).sum())
        self.corrected += int(judged.corrected.sum())
        k = np.isfinite(rates).sum(axis=1)
        self.positions = max(self.positions, int(k[good].max()))
        known = np.where(np.isfinite(judged.accept_length), np.nan_to_num(judged.drafts), 0.0)
        table = np.zeros((len(good), _FIXED + MAX_POSITIONS))
        table[:, _DRAFTS], table[:, _DRAFTED], table[:, _ACCEPTED] = known, drafted, accepted
        table[:, _EMITTED] = known * np.nan_to_num(judged.accept_length)
        table[:, _POSITIONED] = np.where(k > 0, known, 0.0)
        table[:, _FIXED : _FIXED + rates.shape[1]] = known[:, None] * np.nan_to_num(rates)
        for batch in np.unique(running[good]):
            total = table[good & (running == batch)].sum(axis=0)
            self.sums[int(batch)] = self.sums.get(int(batch), 0.0) + total

    def _total(self, low: float, high: float) -> Floats:
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
