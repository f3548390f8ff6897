"""What the engine would do with a setting: the facts that the cost and the solvers need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from specsim.setting import SpecSetting

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats

Timeline = Literal["sequential", "overlap", "run_ahead"]
DraftExtend = Literal["none", "accepted", "verify"]
FirstDraft = Literal["extend", "forward"]
GraphUnit = Literal["requests", "tokens", "none"]
Prefill = Literal["first", "mixed", "elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A setting as an engine of a version runs it."""

    setting: SpecSetting  # with a definite scheduler, and the draft tokens that the engine puts in
    engine: str  # name and
    version: str  # version of the engine whose rules these are
    allowed: bool  # whether it runs this; if not, it is modelled against the engine's will
    reason: str | None  # the rule that refuses, or that would change the setting
    notes: tuple[str, ...]  # what the engine changed, has to be told, and what is assumed
    max_running_requests: int  # most that run at once on one data-parallel rank
    alloc_tokens: int  # KV slots that one request may take in one round
    reserved_tokens_per_request: int  # KV slots held for one beyond its committed tokens
    draft_extend: DraftExtend  # which tokens the drafter computes after the verification
    extend_eager: bool  # whether that forward runs without a CUDA graph at every batch size
    graph_batch_sizes: tuple[int, ...]  # a batch is padded to the next; past the last it is eager
    graph_unit: GraphUnit  # what these sizes count; "none" where nothing is captured or padded
    # "first" stops decoding, "mixed" puts chunks into decode steps, "elsewhere" costs nothing
    prefill: Prefill
    chunked_prefill_size: int  # most prompt tokens of one step
    finish_lag_rounds: int  # rounds that a finished request runs before the scheduler sees its end
    # sequential: GPU and CPU take turns; overlap: the CPU waits for each verification and schedules
    # under the draft extend; run_ahead: the CPU never waits
    timeline: Timeline
    ranks: int = 1  # data-parallel ranks with attention of their own
    # the first drafted token comes from the extend after the last verification, or from a forward
    first_draft: FirstDraft = "extend"
    draft_share: float = 1.0  # share of the rounds of a request in which something is drafted

    @property
    def running_cap(self) -> int:
        """Most requests that run at once, all data-parallel ranks together."""
        return self.max_running_requests * self.ranks

    @property
    def what_if(self) -> bool:
        """Whether this is modelled although the engine would not run it."""
        return not self.allowed

    @property
    def verified_per_request(self) -> float:
        """Mean tokens of a request in the target's forward: 1 + share (n - 1)       (LOOKUP).

        A target that drafts for itself computes its mask tokens besides (SGLang 0.5.23 UNO).
        """
        masks = self.setting.num_steps if self.setting.family == "self" else 0
        return 1.0 + self.draft_share * (self.setting.num_draft_tokens - 1) + masks

    @property
    def draft_forwards(self) -> int:
        """Drafter's decode forwards per round: S - 1 where the extend gives the first, else S.

        SGLang 0.5.9 ``eagle_worker.py:650``; llama.cpp ``common/speculative.cpp``. One for a whole
        block (0.5.23 ``dflash_worker_v2.py:2688``), a head per depth, none in a lookup.
        """
        steps = self.setting.num_steps
        if not self.setting.drafts or self.setting.family in ("lookup", "self"):
            return 0
        if self.setting.family == "steps":
            return steps - (1 if self.first_draft == "extend" else 0)
        return 1 if self.setting.family == "block" else steps

    @property
    def draft_rows(self) -> int:
        """Tokens of one request in a forward of the drafter: its branches, or its block."""
        setting = self.setting
        return setting.num_steps if setting.family == "block" else setting.topk

    def extend_tokens_per_request(self, accept_length: float, eager: bool = False) -> float:
        """Return the tokens that the draft extend computes per request and round.

        A captured extend of the accepted tokens is padded to S + 1 per request (SGLang 0.5.9
        ``eagle_draft_extend_cuda_graph_runner.py:73``); `eager`, where the batch is past the
        largest captured size, it is not.
        """
        if self.draft_extend == "none":
            return 0.0
        if self.draft_extend == "verify":
            return float(self.setting.num_draft_tokens)
        if eager or self.extend_eager or self.graph_unit == "none":
            return accept_length
        return float(self.setting.num_steps + 1)


@lru_cache(maxsize=256)
def with_draft_share(plan: RunPlan, share: float) -> RunPlan:
    """Return the plan of a drafter that drafts in a share of the rounds; equal plans are one."""
    return replace(plan, draft_share=share)


def padded_batch(plan: RunPlan, batch_size: ArrayLike) -> tuple[Floats, Flags]:
    """Return the requests that a forward of a batch computes, and whether it runs eager.

    `batch_size` are the requests that decode, all data-parallel ranks together; it need not be
    whole. They are padded to the next captured size, fractional where the engine captures tokens;
    past the largest, or where nothing is captured, it stays the batch itself.
    """
    batch = np.asarray(batch_size, dtype=np.float64)
    if plan.graph_unit == "none":
        return batch.copy(), np.zeros(batch.shape, dtype=np.bool_)
    per_request = plan.verified_per_request if plan.graph_unit == "tokens" else 1
    sizes = np.array(plan.graph_batch_sizes) / per_request * plan.ranks
    place = np.searchsorted(sizes, batch)
    eager = place == sizes.size
    padded = np.where(eager, batch, np.append(sizes, 0.0)[place])
    return padded, eager
