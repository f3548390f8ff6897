"""A whole round: phases put on the engine's timeline.

    front        draft + tree + target + overhead
    sequential   front + extend + host                                               (ROUND-SEQ)
    overlap      max(front + max(extend, SCHEDULE_SHARE host), host)                 (ROUND-OVL)
    run_ahead    max(front + extend, host)                                           (ROUND-RUN)

In an overlap round the CPU processes the last round's results under the GPU and can schedule the
next round only under the draft extend (SGLang 0.5.9 scheduler.py:1135, schedule_batch.py:2032);
a run-ahead round never waits for the CPU unless the CPU is slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.cost.draft import DraftTime, draft_time
from specsim.cost.host import host_s
from specsim.cost.model import CostModel
from specsim.cost.target import TargetTime, target_time

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints

SEQUENTIAL, OVERLAP, RUN_AHEAD = 0, 1, 2

SCHEDULE_SHARE = 0.4
"""Assumed: the part of the CPU's work that comes before a launch (scheduling, preparing the batch)
rather than after it (results, detokenising). Overlap then saves 1.2 ms of a Llama-8B round, 1.1
measured (sglang#11398), and of a DeepSeek-R1 round as much of the 2.0 measured (sglang#12128)."""


@dataclass(frozen=True, slots=True)
class RoundShape:
    """Counts of a round; arrays that broadcast against each other.

    Parameters
    ----------
    batch
        Running requests B.
    padded, eager
        Requests that the captured graph computes, and whether none fits.
    width, topk, draft_forwards
        Verified tokens n, branches k, draft steps S - 1; 1, 1, 0 without speculation.
    extend_tokens
        Tokens of the draft extend, all requests together.
    context_tokens
        Tokens in the KV cache, all requests together.
    timeline
        SEQUENTIAL, OVERLAP or RUN_AHEAD.
    draft_share
        Share of its rounds in which a request has a draft: below 1 in lookups that find nothing.
    """

    batch: Floats
    padded: Floats
    eager: Flags
    width: Floats
    topk: Floats
    draft_forwards: Floats
    extend_tokens: Floats
    context_tokens: Floats
    timeline: Ints
    draft_share: Floats | float = 1.0


@dataclass(frozen=True, slots=True)
class RoundTime:
    """Phases of a round and its length, seconds."""

    target: TargetTime
    draft: DraftTime
    host_s: Floats
    round_s: Floats


def round_time(cost: CostModel, shape: RoundShape) -> RoundTime:
    """Price a round (ROUND-SEQ, ROUND-OVL, ROUND-RUN).

    Parameters
    ----------
    cost
        The system.
    shape
        Counts; every array may have any shape that broadcasts.
    """
    target = target_time(
        cost,
        shape.batch,
        shape.width,
        shape.context_tokens,
        shape.padded,
        shape.eager,
        shape.draft_share,
    )
    draft = draft_time(
        cost,
        shape.batch,
        shape.topk,
        shape.width,
        shape.draft_forwards,
        shape.extend_tokens,
        shape.context_tokens,
    )
    host = host_s(cost, shape.batch)
    length = compose_s(
        shape.timeline,
        draft.draft_s + draft.tree_s + target.total_s + draft.overhead_s,
        draft.extend_s,
        host,
    )
    return RoundTime(target, draft, host, length)


def compose_s(timeline: Ints, front: Floats, extend: Floats, host: Floats) -> Floats:
    """Length of a round from its phases (ROUND-SEQ, ROUND-OVL, ROUND-RUN), seconds.

    `front` is draft + tree + target + overhead.
    """
    sequential = front + extend + host
    overlap = np.maximum(front + np.maximum(extend, SCHEDULE_SHARE * host), host)
    run_ahead = np.maximum(front + extend, host)
    return np.where(
        timeline == SEQUENTIAL, sequential, np.where(timeline == OVERLAP, overlap, run_ahead)
    )
