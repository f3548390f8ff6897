"""What a simulation returns: records, and the summary that the closed-form solver also gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.metrics import Records, itl_s
from specsim.simulate.phases import geared_phases, phase_records
from specsim.simulate.pricing import RoundPricer

if TYPE_CHECKING:
    from specsim.arrays import Floats, Ints

ROUND_DTYPE = np.dtype(
    [
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("batch", np.int64),
        ("running", np.int64),
        ("active", np.int64),
        ("kv_tokens", np.int64),
        ("tokens", np.int64),
        ("accepted", np.int64),
        ("prefill_s", np.float64),
        ("gear", np.int64),
    ]
)
"""A row per round: its bounds, requests that decode, slots taken (prompts in prefill included),
requests among them that are not finished, KV tokens at the start, tokens delivered, drafts
accepted (those beyond a request's end included), the time that mixed prompt chunks added, and
which of a policy's settings it ran with (0 without a policy)."""

PREFILL_DTYPE = np.dtype(
    [
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("running", np.int64),
        ("prompts", np.int64),
        ("tokens", np.int64),
        ("pairs", np.float64),
        ("mixed", np.bool_),
    ]
)
"""A row per prefill step: its bounds, slots taken, prompts completed (each delivers a token),
prompt tokens computed, (prompt token, KV token) pairs attended, whether it was part of a round."""

RETRACTION_DTYPE = np.dtype(
    [("time_s", np.float64), ("request", np.int64), ("kv_tokens", np.int64)]
)
"""A row per retraction: when, who, and the tokens that were computed again."""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Which rounds brought a request how many tokens: a row per uninterrupted run of rounds.

    Parameters
    ----------
    request, first_round, rounds
        Who, from which round on, how many.
    tokens
        Tokens delivered in each of these rounds, run after run.
    """

    request: Ints
    first_round: Ints
    rounds: Ints
    tokens: Ints

    @classmethod
    def none(cls) -> Deliveries:
        """Return no rows."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing)

    @property
    def last_round(self) -> Ints:
        """Last round of each row."""
        return self.first_round + self.rounds - 1

    @property
    def starts(self) -> Ints:
        """Where each row begins in `tokens`."""
        return np.asarray(np.cumsum(self.rounds) - self.rounds)

    def round_of_each(self) -> Ints:
        """Return the round of each entry of `tokens`."""
        return np.arange(len(self.tokens)) + np.repeat(self.first_round - self.starts, self.rounds)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Records of a run and their summary over the measuring window; times in seconds.

    Parameters
    ----------
    requests
        Rows of `metrics.REQUEST_DTYPE`, all that were issued.
    rounds, prefills, retractions
        Rows of `ROUND_DTYPE`, `PREFILL_DTYPE`, `RETRACTION_DTYPE`; empty if not recorded.
    window_s
        Start and end of the measuring window.
    output_tps
        Tokens delivered in the window per second.
    output_tps_se
        Its standard error by batch means; NaN for a run with ramp and drain, which is one sample.
        Without speculation, requests of exactly one length that meet once stay together, and how
        they met at the start is not in it: 0.1 % of the output at 1024 + 512 tokens, up to 1 % at
        128 + 128.
    batch_size
        Slots taken, averaged over the window.
    round_s, accept_length
        Mean length of a round, prefill left out; tokens emitted per request and round.
    tpot_s, tpot_p50_s, tpot_p99_s, ttft_s, ttft_p50_s, ttft_p99_s
        Over the requests that are marked as measured.
    pricer, pricers
        What rounds were priced with; with a policy, for each of its settings.
    switches
        How often the policy changed the setting, ramp and drain included.
    """

    requests: Records
    rounds: Records
    prefills: Records
    retractions: Records
    window_s: tuple[float, float]
    output_tps: float
    output_tps_se: float
    batch_size: float
    round_s: float
    accept_length: float
    tpot_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    ttft_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    pricer: RoundPricer
    deliveries: Deliveries
    pricers: tuple[RoundPricer, ...] = ()
    switches: int = 0

    @property
    def measured(self) -> Records:
        """The requests that the summary is over."""
        return np.asarray(self.requests[self.requests["measured"]])

    def phases(self, first: int = 0, last: int | None = None) -> Records:
        """Expand rounds `first` .. `last` and the prefill steps among them into phases.

        Returns
        -------
        Rows of `phases.PHASE_DTYPE`, in order of their start.
        """
        chosen = self.rounds[first:last]
        prefills = self.prefills
        if len(chosen) and (first or last is not None):
            inside = prefills["end_s"] > chosen["start_s"][0]
            prefills = prefills[inside & (prefills["start_s"] < chosen["end_s"][-1])]
        if not self.pricers:
            return phase_records(chosen, prefills, self.pricer, first)
        return geared_phases(chosen, prefills, self.pricers, first)

    def itl_s(self, per_chunk: bool = False) -> Floats:
        """Gaps between tokens over all measured requests, seconds (ITL); needs the rounds."""
        d = self.deliveries
        end_s = self.rounds["end_s"]
        gaps = []
        last = self.requests["first_token_s"].copy()
        bounds = zip(d.request, d.first_round, d.rounds, d.starts, strict=True)
        for request, first, rounds, start in bounds:
            if self.requests["measured"][request]:
                ends = end_s[first : first + rounds]
                tokens = d.tokens[start : start + rounds]
                gaps.append(itl_s(float(last[request]), ends, tokens, per_chunk))
                last[request] = ends[-1]
        return np.concatenate(gaps) if gaps else np.zeros(0)
