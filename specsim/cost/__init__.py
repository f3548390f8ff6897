"""What a round costs, in seconds; it knows nothing of acceptance."""

from specsim.cost.allreduce import AllReduce, AllReducePiece, fit_allreduce
from specsim.cost.draft import DraftTime, draft_forward_s, draft_time
from specsim.cost.host import host_s
from specsim.cost.model import CostModel, active_experts, correction_factor, roofline_s
from specsim.cost.parameters import CORRECTION_KNOTS, CostParameters
from specsim.cost.prefill import prefill_s
from specsim.cost.rounds import (
    OVERLAP,
    RUN_AHEAD,
    SCHEDULE_SHARE,
    SEQUENTIAL,
    RoundShape,
    RoundTime,
    compose_s,
    round_time,
)
from specsim.cost.target import TargetTime, attention_s, target_time

__all__ = [
    "CORRECTION_KNOTS",
    "OVERLAP",
    "RUN_AHEAD",
    "SCHEDULE_SHARE",
    "SEQUENTIAL",
    "AllReduce",
    "AllReducePiece",
    "CostModel",
    "CostParameters",
    "DraftTime",
    "RoundShape",
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
