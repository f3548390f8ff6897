"""Rounds expanded into phases on lanes, when somebody wants to see them."""

import numpy as np

from specsim.arrays import Floats, Ints
from specsim.cost.rounds import OVERLAP, SCHEDULE_SHARE, SEQUENTIAL
from specsim.metrics import Records
from specsim.simulate.pricing import RoundPricer, extend_tokens

PHASE_DTYPE = np.dtype(
    [
        # draft, tree, target, allreduce, overhead, extend, host, prefill, and results where the CPU
        # processes them apart from scheduling (host)
        ("phase", "U9"),
        ("lane", "U4"),  # gpu, link, cpu
        ("round", np.int64),  # -1 for a prefill step of its own
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("batch", np.int64),
        ("tokens", np.float64),  # that go in
        ("accepted", np.int64),  # drafts, by the target
    ]
)
"""A row per phase that takes time. The target's all-reduces are spread over its layers; they are
drawn as one share at its end."""


def phase_records(
    rounds: Records, prefills: Records, pricers: tuple[RoundPricer, ...], first: int = 0
) -> Records:
    """Put the phases of rounds, the first of which has number `first`, on the engine's timeline.

    Rows are of `records.ROUND_DTYPE` and `records.PREFILL_DTYPE`; `pricers` by the rounds' gear.
    """
    times = prefills["start_s"], prefills["end_s"]
    prompts = _table("prefill", "gpu", prefills["prompts"], *times, prefills["tokens"])
    within = first + np.searchsorted(rounds["end_s"], prefills["end_s"])
    prompts["round"] = np.where(prefills["mixed"], within, -1)
    parts = [prompts]
    for gear, pricer in enumerate(pricers):
        where = np.flatnonzero(rounds["gear"] == gear)
        if len(where):
            table = np.concatenate(_round_phases(rounds[where], pricer))
            table["round"] = first + where[table["round"]]
            parts.append(table)
    table = np.concatenate(parts)
    table = table[table["end_s"] > table["start_s"]]
    return np.asarray(table[np.argsort(table["start_s"], kind="stable")])


def _round_phases(rounds: Records, pricer: RoundPricer) -> list[Records]:
    batch = rounds["batch"]
    plan, setting = pricer.plan, pricer.plan.setting
    time = pricer.exact(batch, rounds["kv_tokens"])
    extended = extend_tokens(plan, pricer.accept_length, batch)
    allreduce = time.allreduce_s
    verified = batch * plan.verified_per_request
    drafted = batch * setting.topk * plan.draft_forwards
    chain = (
        ("draft", "gpu", time.draft_s, drafted),
        ("tree", "gpu", time.tree_s, verified),
        ("target", "gpu", time.target_s - allreduce, verified),
        ("allreduce", "link", allreduce, verified),
        ("overhead", "gpu", time.overhead_s, verified),
        ("extend", "gpu", time.extend_s, extended),
    )
    parts = []
    at = rounds["start_s"]
    verified_at = at
    for name, lane, seconds, tokens in chain:
        if name == "extend":
            verified_at = at
        parts.append(_table(name, lane, batch, at, at + seconds, tokens))
        if name == "target":
            parts[-1]["accepted"] = rounds["accepted"]
        at = at + seconds
    emitted = rounds["accepted"] + rounds["active"]
    # Under overlap, the last round's results are processed at once, the next one is scheduled
    # when the verification is done.
    processed_at = rounds["start_s"] + (1.0 - SCHEDULE_SHARE) * time.host_s
    shares = {
        SEQUENTIAL: (("host", at, 1.0),),
        OVERLAP: (
            ("results", rounds["start_s"], 1.0 - SCHEDULE_SHARE),
            ("host", np.maximum(verified_at, processed_at), SCHEDULE_SHARE),
        ),
    }.get(pricer.timeline, (("host", rounds["start_s"], 1.0),))
    for name, begin, share in shares:
        end = begin + share * time.host_s
        parts.append(_table(name, "cpu", batch, begin, end, emitted))
    return parts


def _table(
    name: str, lane: str, batch: Ints, start: Floats, end: Floats, tokens: Floats
) -> Records:
    table = np.zeros(len(batch), dtype=PHASE_DTYPE)
    table["phase"], table["lane"] = name, lane
    table["round"] = np.arange(len(batch))
    table["start_s"], table["end_s"] = start, end
    table["batch"], table["tokens"] = batch, tokens
    return table
