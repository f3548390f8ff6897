"""Engine rules by version: what runs with what, caps, captured sizes, allocation, launch flags."""

from __future__ import annotations

from specsim.engine.capacity import kv_capacity
from specsim.engine.launch import launch_env, launch_flags
from specsim.engine.plan import RunPlan, padded_batch, with_draft_share
from specsim.engine.planning import drafts_eager, plan_run
from specsim.engine.setup import EngineName, EngineSetup
from specsim.engine.version import EngineVersion, parse_version

__all__ = [
    "EngineName",
    "EngineSetup",
    "EngineVersion",
    "RunPlan",
    "drafts_eager",
    "kv_capacity",
    "launch_env",
    "launch_flags",
    "padded_batch",
    "parse_version",
    "plan_run",
    "with_draft_share",
]
