"""The front door of the engine rules."""

from __future__ import annotations

from specsim.engine.other_engines import plan_llama_cpp, plan_tensorrt_llm
from specsim.engine.plan import RunPlan
from specsim.engine.setup import EngineName, EngineSetup
from specsim.engine.sglang import plan_sglang
from specsim.engine.version import parse_version
from specsim.engine.vllm import drafts_eager as vllm_drafts_eager
from specsim.engine.vllm import plan_vllm
from specsim.setting import SpecSetting


def drafts_eager(engine: EngineName, version: str, draft_kind: str) -> bool:
    """Whether an engine launches a drafter's kernels one by one instead of a captured graph.

    >>> drafts_eager("vllm", "0.9.2", "eagle3"), drafts_eager("sglang", "0.5.9", "eagle3")
    (True, False)
    """
    return engine == "vllm" and vllm_drafts_eager(parse_version(version), draft_kind)


def plan_run(setting: SpecSetting, engine: EngineSetup, *, what_if: bool = False) -> RunPlan:
    """Return what the engine would do with a setting.

    Parameters
    ----------
    setting
        Scheduler ``auto`` becomes what the version does by itself.
    engine
        The server.
    what_if
        Model the setting as it was asked for where the engine would refuse or change it. What a
        version merely defaults to, or normalises (n = S + 1 of a chain), stays the engine's.

    Raises
    ------
    EngineRefusal
        If the engine refuses the setting, with its own message where one is known.

    Examples
    --------
    >>> engine = EngineSetup("sglang", "0.5.9", 102.6e9, tp=8)
    >>> plan_run(SpecSetting.of(topk=2, num_steps=2), engine).setting.scheduler
    'sequential'
    """
    match engine.name:
        case "sglang":
            return plan_sglang(setting, engine, what_if)
        case "vllm":
            return plan_vllm(setting, engine, what_if)
        case "tensorrt-llm":
            return plan_tensorrt_llm(setting, engine, what_if)
        case "llama.cpp":
            return plan_llama_cpp(setting, engine, what_if)
