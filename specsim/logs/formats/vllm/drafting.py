"""What vLLM's drafting lines add up to: accept length, survival, drafted tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from specsim.logs.formats.vllm.lines import RATE_TOLERANCE

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats

MAX_POSITIONS = 64
PERCENT_SLACK = 0.06
"""Printed percentages may be off by half of their last digit, in the oldest form too."""
INTERVAL_S = 10.0
"""Of a line whose own numbers do not tell it."""

_SUMS = ("rounds", "drafted", "accepted", "emitted", "positioned")
"""Before the positions in a row of sums; `positioned` are rounds of lines with positions."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Drafting lines whose numbers were checked against each other."""

    rounds: Floats  # request-rounds; 0 where they cannot be known
    emitted: Floats  # tokens of these rounds, bonus included
    corrected: Flags  # where the printed length lacked the bonus token
    faulty: Flags  # where the numbers contradict each other
    empty: Flags  # where nothing was drafted


def survival_matrix(texts: Sequence[bytes]) -> Floats:
    """Convert per-position rates: one row per line, as wide as the longest, NaN beyond."""
    parts = [text.split(b", ") if text else [] for text in texts]
    width = max(map(len, parts), default=0)
    padded = [float(rate) for part in parts for rate in (*part, *[b"nan"] * (width - len(part)))]
    return np.array(padded, dtype=np.float64).reshape(len(parts), width)


def judge(printed: Mapping[str, Floats], rates: Floats) -> Judged:
    """Check the numbers of drafting lines: they are redundant, so damage shows.

    The per-position rates sum to the accepted drafts per round, which tells both how many rounds
    there were and whether the printed length counts the bonus token (0.8.5 did not).

    Parameters
    ----------
    printed
        Columns `length`, `accepted`, `drafted`, `rate` (in percent); NaN where a line does not say.
    rates
        Per-position rates, one row per line.
    """
    length, accepted = printed["length"], printed["accepted"]
    drafted, rate = printed["drafted"], printed["rate"]
    k, mean = np.isfinite(rates).sum(axis=1), np.nansum(rates, axis=1)
    slack = RATE_TOLERANCE * k + 0.0051
    with np.errstate(invalid="ignore", divide="ignore"):
        empty = drafted == 0
        faulty = (accepted > drafted) | (np.abs(100 * accepted / drafted - rate) > PERCENT_SLACK)
        faulty |= (np.diff(rates, axis=1) > 2e-9).any(axis=1)
        faulty |= (k > 0) & (accepted == 0) & (mean > slack)
        by_rates = np.where((mean > 0) & (accepted > 0), accepted / mean, drafted / k)
        by_length = np.where((length > 1) & (accepted > 0), accepted / (length - 1), np.nan)
        rounds = np.where(k > 0, by_rates, by_length)
        most = k * 1.05 + drafted * slack / np.maximum(accepted, 1)
        faulty |= (k > 0) & (drafted / rounds > most)
        with_bonus = np.abs(length - 1 - mean) <= slack
        without = ~with_bonus & (np.abs(length - mean) <= slack)
        faulty |= (k > 0) & np.isfinite(length) & ~with_bonus & ~without
    corrected = (k > 0) & without
    by_positions = np.where(np.isfinite(length), length + corrected, 1 + mean)
    emitted = rounds * np.where(k > 0, by_positions, length)
    good = np.isfinite(drafted) & ~faulty & ~empty
    nothing = good & (accepted == 0)  # each round gave its one token: how many does not matter
    rounds = np.where(nothing & ~np.isfinite(rounds), drafted, rounds)
    emitted = np.where(nothing, rounds, emitted)
    known = good & np.isfinite(emitted)
    return Judged(
        rounds=np.where(known, rounds, 0.0),
        emitted=np.where(known, emitted, 0.0),
        corrected=corrected & good,
        faulty=np.isfinite(drafted) & faulty & ~empty,
        empty=empty,
    )


def with_plain_rounds(judged: Judged, printed: Mapping[str, Floats]) -> Judged:
    """Count the rounds in which a lookup found nothing: the engine leaves them out.

    An interval's tokens, less those of accepted drafts, are one per request and round.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        seconds = printed["accepted"] / printed["speed"]
        tokens = printed["tps"] * np.where(np.isfinite(seconds), seconds, INTERVAL_S)
        rounds = tokens - printed["accepted"]
        more = (judged.rounds > 0) & (rounds > judged.rounds)
    return replace(
        judged,
        rounds=np.where(more, rounds, judged.rounds),
        emitted=np.where(more, tokens, judged.emitted),
    )


def sums_of(judged: Judged, printed: Mapping[str, Floats], rates: Floats) -> Floats:
    """Return a row of sums per line: `_SUMS`, then by position; zeros where nothing is known."""
    good = np.isfinite(printed["drafted"]) & ~judged.faulty & ~judged.empty
    k, mean = np.isfinite(rates).sum(axis=1), np.nansum(rates, axis=1)
    table = np.zeros((len(good), len(_SUMS) + MAX_POSITIONS))
    positioned = np.where(k > 0, judged.rounds, 0.0)
    counts = (judged.rounds, printed["drafted"], printed["accepted"], judged.emitted, positioned)
    table[:, : len(_SUMS)] = np.nan_to_num(np.stack(counts, axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):  # rounds that drafted: accepted / mean
        drafting = np.where(mean > 0, printed["accepted"] / mean, judged.rounds)
    survived = np.minimum(drafting, judged.rounds)[:, None] * np.nan_to_num(rates)
    table[:, len(_SUMS) : len(_SUMS) + rates.shape[1]] = np.nan_to_num(survived)
    return table * good[:, None]


@dataclass(slots=True)
class Drafting:
    """What all drafting lines add up to."""

    lines: int = 0  # read
    alone: int = 0  # of them without a throughput line
    positions: int = 0  # drafted positions that the lines show
    corrected: int = 0  # lines whose printed length lacked the bonus token
    total: Floats = field(default_factory=lambda: np.zeros(len(_SUMS) + MAX_POSITIONS))

    def add(
        self, judged: Judged, printed: Mapping[str, Floats], rates: Floats, sums: Floats
    ) -> None:
        """Count lines with these columns; `running` is NaN where there is no throughput line."""
        good = np.isfinite(printed["drafted"]) & ~judged.faulty & ~judged.empty
        if not good.any():
            return
        running, k = np.nan_to_num(printed["running"]), np.isfinite(rates).sum(axis=1)
        self.lines += int(good.sum())
        self.alone += int((good & (running == 0)).sum())
        self.corrected += int(judged.corrected.sum())
        self.positions = max(self.positions, int(k[good].max()))
        self.total += sums.sum(axis=0)

    def accept_length(self) -> float | None:
        """Tokens per request and round over all lines, bonus included."""
        return _ratio(self.total, "emitted", "rounds")

    def survival(self, sums: Floats | None = None) -> tuple[float, ...] | None:
        """P(at least d drafts accepted), by these sums or by all."""
        total = self.total if sums is None else sums
        rounds = total[_SUMS.index("positioned")]
        survived = total[len(_SUMS) : len(_SUMS) + self.positions]
        return tuple((survived / rounds).tolist()) if rounds else None

    def drafted_per_round(self, sums: Floats | None = None) -> float | None:
        """Draft tokens per request and round, by these sums or by all."""
        return _ratio(self.total if sums is None else sums, "drafted", "rounds")

    def accept_rate(self, sums: Floats | None = None) -> float | None:
        """Return accepted over drafted tokens, by these sums or by all."""
        return _ratio(self.total if sums is None else sums, "accepted", "drafted")


def _ratio(total: Floats, of: str, over: str) -> float | None:
    part, whole = total[_SUMS.index(of)], total[_SUMS.index(over)]
    return float(part / whole) if whole else None
