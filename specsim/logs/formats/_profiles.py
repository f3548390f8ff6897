"""Profiles: names of steps and of all-reduce kernels, and the timings that durations make."""

import re

from specsim.logs.durations import Durations
from specsim.logs.entry import Timing

STEP = re.compile(r"step\[(\w{1,32}) bs=(\d{1,6})(?: toks=(\d{1,9}))?\]")
ALLREDUCE = re.compile(
    r"nccl(?:Dev)?Kernel_AllReduce|cross_device_reduce_[12]stage|allreduce_fusion_kernel"
    r"|mnnvl_allreduce|multimem_all_reduce|one_shot_all_reduce|two_shot_all_reduce"
)
PHASES = {
    "DECODE": "decode",
    "TARGET_VERIFY": "verify",
    "VERIFY": "verify",
    "DRAFT": "draft",
    "DRAFT_EXTEND": "extend",
    "DRAFT_EXTEND_V2": "extend",
    "EXTEND": "prefill",
    "MIXED": "prefill",
}


def step_of(name: str) -> tuple[str, int] | None:
    """Return phase and batch of SGLang's name of a step; None if it is none.

    >>> step_of("step[TARGET_VERIFY bs=16]")
    ('verify', 16)
    """
    found = STEP.fullmatch(name)
    return (PHASES.get(found[1], found[1].lower()), int(found[2])) if found else None


def kernel_phase(name: str) -> str:
    """Return the phase of a kernel by itself: ``allreduce`` or ``kernel``."""
    return "allreduce" if ALLREDUCE.search(name) else "kernel"


def timing(
    phase: str,
    durations: Durations,
    name: str,
    batch_size: int | None = None,
    rank: int | None = None,
) -> Timing:
    """Return the median; of an all-reduce the lower decile: a kernel also waits for its peers."""
    return Timing(
        phase=phase,
        seconds=durations.quantile(0.1 if phase == "allreduce" else 0.5),
        count=durations.count,
        batch_size=batch_size,
        rank=rank,
        name=name,
    )
