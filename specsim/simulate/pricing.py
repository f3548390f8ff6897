"""Prices of rounds and prefill steps, with everything that can be priced beforehand.

Within a stretch of rounds only the KV cache grows, and a round's phases are affine in it: at a
given batch each is `base + slope * context_tokens`. Both are read off `cost.round_time` itself, for
all batches at once, by asking it at two sizes, so no formula is written twice. Where attention is
not linear in the context (sliding windows, linear-attention states) it is asked every time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from specsim.arrays import Floats
from specsim.case import TIMELINES
from specsim.cost.forward import attention_s
from specsim.cost.model import CostModel
from specsim.cost.rounds import (
    OVERLAP,
    SCHEDULE_SHARE,
    SEQUENTIAL,
    RoundTime,
    prefill_s,
    read_once,
    round_time,
)
from specsim.engine import RunPlan, padded_batch

PROBES = (64.0, 1000.0, 3000.0, 20_000.0, 300_000.0)
"""Contexts at which attention is tried for linearity, tokens per request."""

FAR = 2.0**30
"""KV tokens per request at which slopes are read; so many that the base does not blur them."""

PREFILL_BLOCK = 256
"""Prompt token counts that are priced together."""


def extend_tokens(plan: RunPlan, accept_length: float, batch: ArrayLike) -> Floats:
    """Tokens of the draft extend, all requests together, at the mean of what is accepted."""
    eager = padded_batch(plan, np.asarray(batch))[1]
    one, many = (plan.extend_tokens_per_request(accept_length, e) for e in (False, True))
    return np.asarray(batch) * np.where(eager, many, one)


def planned_time(
    cost: CostModel,
    plan: RunPlan,
    accept_length: float,
    batch: ArrayLike,
    context_tokens: ArrayLike,
) -> RoundTime:
    """Price rounds of a plan, with a drafter that idles too (ZERO-STEPS).

    `accept_length` counts the bonus token; `context_tokens` those of all requests of the batch.
    """
    b = np.asarray(batch, dtype=np.float64)
    padded, eager = padded_batch(plan, b)
    return round_time(
        cost,
        b,
        plan.verified_per_request,
        context_tokens,
        topk=plan.draft_rows,
        draft_forwards=plan.draft_forwards,
        extend_tokens=extend_tokens(plan, accept_length, b),
        timeline=TIMELINES[plan.timeline],
        padded=padded,
        eager=eager,
        draft_share=plan.draft_share,
        loaded=plan.setting.speculates,
        committed=accept_length,
    )


@dataclass(frozen=True, slots=True)
class RoundPricer:
    """Round lengths of one plan at batches 1 .. `max_batch`, equal to `cost.round_time`.

    A round is as long as the longer of two lines over KV tokens, base and slope of each per batch
    (index batch - 1): what it takes if the host hides, and if the extend (overlap) or all of the
    GPU (run ahead) hides under the host.
    """

    cost: CostModel
    plan: RunPlan
    accept_length: float  # mean tokens per request and round, bonus included
    timeline: int  # of the plan, as `cost` numbers it
    linear: bool  # whether attention is linear in the KV tokens and is in the lines
    gpu: tuple[list[float], list[float]]
    cpu: tuple[list[float], list[float]]
    host: list[float]  # per batch, what an overlap round takes at least: all of the CPU's work
    decided: list[int]  # per batch: 0, 1 where that line is the longer at any KV tokens, else 2
    shared: float  # KV tokens that all requests have in common

    @classmethod
    def of(
        cls,
        cost: CostModel,
        plan: RunPlan,
        accept_length: float,
        max_batch: int,
        shared: float = 0.0,
    ) -> RoundPricer:
        """Price all batches at two KV sizes."""
        batch = np.arange(1.0, max_batch + 1.0)
        width = plan.verified_per_request
        contexts = np.array([[FAR], *([p] for p in PROBES)])
        tried = attention_s(cost, batch, width, batch * contexts) / contexts
        linear = np.allclose(tried, tried[0], rtol=1e-12, atol=0.0)
        contexts = np.stack([0.0 * batch, FAR * batch])
        time = planned_time(cost, plan, accept_length, batch, contexts)
        front, far = time.front_s if linear else time.front_s - time.attention_s
        extend, extend_far = np.broadcast_to(time.extend_s, (2, max_batch))
        host = np.broadcast_to(time.host_s, (max_batch,))
        slope = (far - front) / (FAR * batch)
        extend_slope = (extend_far - extend) / (FAR * batch)
        timeline = TIMELINES[plan.timeline]
        gpu, gpu_slope = front + extend, slope + extend_slope
        if timeline == SEQUENTIAL:
            gpu = gpu + host
            cpu, cpu_slope = 0.0 * host, 0.0 * slope
        elif timeline == OVERLAP:
            cpu, cpu_slope = front + SCHEDULE_SHARE * host, slope
        else:
            cpu, cpu_slope = host, 0.0 * slope
        first = (gpu >= cpu) & (gpu_slope >= cpu_slope)
        second = (cpu >= gpu) & (cpu_slope >= gpu_slope) & linear
        if timeline == OVERLAP:
            covered = front >= (1.0 - SCHEDULE_SHARE) * host
            first, second = first & covered, second & covered
        return cls(
            cost,
            plan,
            accept_length,
            timeline,
            linear,
            (gpu.tolist(), gpu_slope.tolist()),
            (cpu.tolist(), cpu_slope.tolist()),
            host.tolist(),
            np.where(first, 0, np.where(second, 1, 2)).tolist(),
            shared,
        )

    def round_s(self, batch: int, context_tokens: Floats) -> Floats:
        """Lengths of rounds of one batch, seconds (ROUND-SEQ, ROUND-OVL, ROUND-RUN).

        `context_tokens` are in the KV cache at the start of each, all requests together.
        """
        at = batch - 1
        if self.shared:
            context_tokens = read_once(context_tokens, batch, self.shared)
        decided = self.decided[at]
        if decided == 1:
            return self.cpu[0][at] + context_tokens * self.cpu[1][at]
        gpu = self.gpu[0][at] + context_tokens * self.gpu[1][at]
        attention: Floats | float = 0.0
        if not self.linear:
            width = self.plan.verified_per_request
            attention = attention_s(self.cost, float(batch), width, context_tokens)
            gpu = gpu + attention
        if decided == 0:
            return gpu
        cpu = self.cpu[0][at] + context_tokens * self.cpu[1][at]
        if self.timeline != OVERLAP:
            return np.maximum(gpu, cpu)
        return np.maximum(np.maximum(gpu, cpu + attention), self.host[at])

    def exact(self, batch: ArrayLike, context_tokens: ArrayLike) -> RoundTime:
        """Price rounds with all their phases, by the full formula."""
        tokens = read_once(context_tokens, batch, self.shared)
        return planned_time(self.cost, self.plan, self.accept_length, batch, tokens)


@dataclass(slots=True)
class PrefillPricer:
    """Prefill steps of one system, equal to `cost.prefill_s`; blocks of counts on demand."""

    cost: CostModel
    speculates: bool  # whether the drafter runs over the prompt too
    _blocks: dict[tuple[int, int | None], Floats] = field(default_factory=dict)
    _pair_s: float | None = None

    def seconds(self, tokens: int, pairs: float, beside: int | None = None) -> float:
        """Time of a step, alone or `beside` tokens that decode, seconds.

        `pairs` is the sum over its prompt tokens of the KV tokens that each attends to.
        """
        key = tokens // PREFILL_BLOCK, beside
        block = self._blocks.get(key)
        if block is None:
            first = tokens // PREFILL_BLOCK * PREFILL_BLOCK
            counts = np.arange(first, first + PREFILL_BLOCK)
            block = prefill_s(self.cost, counts, 0.0, self.speculates, beside)
            self._blocks[key] = block
        if self._pair_s is None:  # the time is affine in the pairs
            one, far = prefill_s(self.cost, [1.0, 1.0], [0.0, FAR], self.speculates).tolist()
            self._pair_s = (far - one) / FAR
        return float(block[tokens % PREFILL_BLOCK]) + pairs * self._pair_s
