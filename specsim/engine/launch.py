"""What to type to get a plan: launch flags and environment."""

from __future__ import annotations

import json

from specsim.engine.plan import RunPlan
from specsim.engine.setup import EngineSetup
from specsim.engine.sglang import spec_era
from specsim.engine.version import parse_version
from specsim.engine.vllm import ASYNC_DEFAULT_FROM
from specsim.errors import InputError
from specsim.setting import Algorithm

_VLLM_METHODS: dict[Algorithm, str] = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "MTP": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
}


def launch_flags(plan: RunPlan, engine: EngineSetup, draft_model: str | None = None) -> list[str]:
    """Return the flags that set the speculation, the scheduler and the caps of the setup.

    Parameters
    ----------
    plan
        A plan that the engine allows.
    engine
        The server that the plan was made for.
    draft_model
        Path or name of the drafter, where the method needs one.

    Returns
    -------
    list of str
        Empty for TensorRT-LLM, which is set by a file, not by flags.

    Raises
    ------
    InputError
        If the plan is a what-if: no flags make the engine run it.
    """
    if not plan.allowed:
        raise InputError(
            f"{plan.setting.label}, scheduler {plan.setting.scheduler}",
            f"cannot be launched: {plan.reason}",
            "choose a setting that the engine runs, or another version",
        )
    match engine.name:
        case "sglang":
            return [*_sglang(plan, draft_model), *_sglang_caps(engine)]
        case "vllm":
            return _vllm(plan, engine, draft_model)
        case "llama.cpp":
            return _llama_cpp(plan, engine, draft_model)
        case "tensorrt-llm":
            return []


def launch_env(plan: RunPlan) -> dict[str, str]:
    """Return the environment variables that the plan needs.

    `SGLANG_ENABLE_SPEC_V2` from 0.5.4.post1 to 0.5.12 (0.5.9 ``server_args.py:2381``).
    """
    setting = plan.setting
    if plan.engine != "sglang" or not setting.speculates or setting.algorithm == "NGRAM":
        return {}
    era = spec_era(parse_version(plan.version))
    if era == "env" and setting.scheduler == "overlap":
        return {"SGLANG_ENABLE_SPEC_V2": "True"}
    if era == "default" and setting.scheduler == "sequential" and setting.topk == 1:
        return {"SGLANG_ENABLE_SPEC_V2": "False"}
    return {}


def _sglang(plan: RunPlan, draft_model: str | None) -> list[str]:
    setting = plan.setting
    era = spec_era(parse_version(plan.version))
    flags: list[str] = []
    if setting.speculates:
        # NEXTN is another name for EAGLE: SGLang replaces it (0.5.9 server_args.py).
        algorithm = "EAGLE" if setting.algorithm == "MTP" else setting.algorithm
        flags += ["--speculative-algorithm", algorithm]
        flags += ["--speculative-draft-model-path", draft_model] if draft_model else []
    if setting.algorithm == "NGRAM":
        flags += ["--speculative-ngram-max-bfs-breadth", str(setting.topk)]
    elif setting.speculates:
        flags += ["--speculative-num-steps", str(setting.num_steps)]
        flags += ["--speculative-eagle-topk", str(setting.topk)]
    if setting.speculates:
        flags += ["--speculative-num-draft-tokens", str(setting.num_draft_tokens)]
    if setting.speculates and era == "beta-flag" and setting.scheduler == "overlap":
        flags.append("--enable-beta-spec")
    if setting.scheduler == "sequential" and _overlap_is_a_flag(plan):
        flags.append("--disable-overlap-schedule")
    return flags


def _overlap_is_a_flag(plan: RunPlan) -> bool:
    """Whether --disable-overlap-schedule decides; in the eras between, the worker does."""
    version = parse_version(plan.version)
    if plan.setting.speculates:
        return spec_era(version) == "v2-only"
    return version.since("0.4.0")


def _sglang_caps(engine: EngineSetup) -> list[str]:
    caps = {
        "--max-running-requests": engine.max_running_requests,
        "--cuda-graph-max-bs": engine.cuda_graph_max_bs,
    }
    return [word for flag, cap in caps.items() if cap for word in (flag, str(cap))]


def _vllm(plan: RunPlan, engine: EngineSetup, draft_model: str | None) -> list[str]:
    setting = plan.setting
    flags: list[str] = []
    if setting.speculates:
        config: dict[str, str | int] = {
            "method": _VLLM_METHODS[setting.algorithm],
            "num_speculative_tokens": setting.num_steps,
        }
        if draft_model:
            config["model"] = draft_model
        flags += ["--speculative-config", json.dumps(config)]
    if engine.max_running_requests is not None:
        flags += ["--max-num-seqs", str(engine.max_running_requests)]
    default = engine.parsed_version.since(ASYNC_DEFAULT_FROM)
    if setting.scheduler == "overlap" and not default:
        flags.append("--async-scheduling")
    if setting.scheduler == "sequential" and default:
        flags.append("--no-async-scheduling")
    return flags


def _llama_cpp(plan: RunPlan, engine: EngineSetup, draft_model: str | None) -> list[str]:
    flags = ["--parallel", str(plan.max_running_requests)]
    if plan.setting.speculates:
        flags += ["--model-draft", draft_model] if draft_model else []
        flags += ["--draft-max", str(plan.setting.num_steps)]
    return flags
