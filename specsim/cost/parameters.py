"""The numbers that calibration may move: multipliers on the physics, one dataclass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.arrays import Floats

CORRECTION_KNOTS = 12
"""The correction's knots lie at t = 1, 2, 4 .. 2048 tokens."""


@dataclass(frozen=True, slots=True)
class CostParameters:
    """Multipliers on the derived times (1 = as derived), unless said otherwise.

    Parameters
    ----------
    bandwidth
        On the memory bandwidth that weights and caches are read with.
    compute
        On the FLOP rate of decode-sized matrix products.
    matrix
        On what a CPU's matrix kernels cost beyond its matrix-vector ones; no matter on a GPU.
    target_fixed
        On the time per layer that depends on neither bytes nor tokens (launches, small kernels).
    allreduce_latency, allreduce_bandwidth
        On every piece of the all-reduce.
    coverage
        On the experts that t tokens activate (routing skew).
    expert_sharing
        Exponent e, not a multiplier: n tokens of one request count as n^e independent ones.
    attention
        On the time to read the KV cache.
    attention_fill
        Query rows times sequences below which the attention kernel cannot use the whole GPU.
    verify_fill
        On `attention_fill` in a verification: kernels that do not split the cache of one
        sequence leave most of the GPU idle until many sequences run.
    kv_reads
        0..1.5, not a multiplier: KV reads per request are 1 + (n - 1) kv_reads.
    per_request
        On the time per running request and round (sampling, metadata).
    draft
        On draft steps, tree building and draft extend.
    round_overhead
        On what a speculating round pays whatever it drafts.
    host
        On the CPU time of a round.
    prefill
        On the prefill time.
    kv_pool
        On the tokens that the KV cache holds.
    correction
        ln of a factor on the target forward at the knots t = 1, 2, 4 .. 2048; linear in log t
        between, constant beyond; empty for none.
    """

    bandwidth: float = 1.0
    compute: float = 1.0
    matrix: float = 1.0
    target_fixed: float = 1.0
    allreduce_latency: float = 1.0
    allreduce_bandwidth: float = 1.0
    coverage: float = 1.0
    expert_sharing: float = 0.75
    attention: float = 1.0
    attention_fill: float = 1.0
    verify_fill: float = 1.0
    kv_reads: float = 0.0
    per_request: float = 1.0
    draft: float = 1.0
    round_overhead: float = 1.0
    host: float = 1.0
    prefill: float = 1.0
    kv_pool: float = 1.0
    correction: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in ("correction", "kv_reads", "expert_sharing"):
                continue
            if not 1e-4 < getattr(self, field.name) < 1e4:
                raise InputError(
                    f"cost parameter {field.name} = {getattr(self, field.name)}",
                    "must be positive and finite",
                    "it is a multiplier around 1",
                )
        for name in ("kv_reads", "expert_sharing"):
            if not 0 <= getattr(self, name) <= 1.5:
                raise InputError(
                    f"cost parameter {name} = {getattr(self, name)}", "must lie in 0..1", "check it"
                )
        if not all(math.isfinite(knot) for knot in self.correction):
            raise InputError(f"correction {self.correction}", "must be finite", "fit it again")
        if len(self.correction) not in (0, CORRECTION_KNOTS):
            raise InputError(
                f"correction of {len(self.correction)} knots",
                f"must have {CORRECTION_KNOTS} or none",
                "fit the profile again",
            )


@dataclass(frozen=True, slots=True)
class StackedParameters:
    """Parameters of many points at once: the fields of CostParameters, an entry per point.

    One evaluation over stacked points is worth as many single ones as there are parameter sets,
    which is what makes derivatives cheap.
    """

    bandwidth: Floats
    compute: Floats
    matrix: Floats
    target_fixed: Floats
    allreduce_latency: Floats
    allreduce_bandwidth: Floats
    coverage: Floats
    expert_sharing: Floats
    attention: Floats
    attention_fill: Floats
    verify_fill: Floats
    kv_reads: Floats
    per_request: Floats
    draft: Floats
    round_overhead: Floats
    host: Floats
    prefill: Floats
    kv_pool: Floats
    correction: Floats


def stack(parameters: Sequence[CostParameters], points: int) -> StackedParameters:
    """Repeat each parameter set for `points` points; sets follow one another.

    Raises
    ------
    InputError
        If some sets have a correction and others none.
    """
    corrected = {len(p.correction) for p in parameters}
    if len(corrected) != 1:
        raise InputError("stacked parameters", "differ in having a correction", "give all of one")
    columns = {
        f.name: np.repeat([getattr(p, f.name) for p in parameters], points)
        for f in fields(CostParameters)
        if f.name != "correction"
    }
    knots = np.repeat(np.array([p.correction for p in parameters]), points, axis=0)
    return StackedParameters(**columns, correction=knots)
