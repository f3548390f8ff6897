"""What a round costs, in seconds; it knows nothing of acceptance."""

from specsim.cost.allreduce import AllReduce, fit_allreduce
from specsim.cost.forward import TargetTime, attention_s, draft_forward_s, draft_time, target_time
from specsim.cost.model import CostModel, active_experts, correction_factor, roofline_s
from specsim.cost.rounds import (
    OVERLAP,
    RUN_AHEAD,
    SCHEDULE_SHARE,
    SEQUENTIAL,
    RoundTime,
    compose_s,
    host_s,
    prefill_s,
    round_time,
)

__all__ = [
    "OVERLAP",
    "RUN_AHEAD",
    "SCHEDULE_SHARE",
    "SEQUENTIAL",
    "AllReduce",
    "CostModel",
    "RoundTime",
    "TargetTime",
    "active_experts",
    "attention_s",
    "compose_s",
    "correction_factor",
    "draft_forward_s",
    "draft_time",
    "fit_allreduce",
    "host_s",
    "prefill_s",
    "roofline_s",
    "round_time",
    "target_time",
]
