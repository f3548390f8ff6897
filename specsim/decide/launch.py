"""Launch lines that start: the whole command of a plan, as its engine's release takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote

from specsim.decide.recommendation import Launch
from specsim.engine import EngineSpec, RunPlan, engine_named, launch_flags
from specsim.library import repository
from specsim.profile import Profile

PROGRAMS = {
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path"),
    "vllm": ("vllm", "serve"),
    "tensorrt-llm": ("trtllm-serve",),
    "llama.cpp": ("llama-server", "-m"),
}
"""Words before the path of the model."""

FLAGS = {
    "sglang": {
        "tp": "--tp-size",
        "dp": "--dp-size",
        "ep": "--ep-size",
        "mem_fraction_static": "--mem-fraction-static",
        "attention_backend": "--attention-backend",
        "chunked_prefill_size": "--chunked-prefill-size",
        "kv_dtype": "--kv-cache-dtype",
        "page_size": "--page-size",
        "nccl": "--disable-custom-all-reduce",
    },
    "vllm": {
        "tp": "--tensor-parallel-size",
        "dp": "--data-parallel-size",
        "mem_fraction_static": "--gpu-memory-utilization",
        "chunked_prefill_size": "--max-num-batched-tokens",
        "kv_dtype": "--kv-cache-dtype",
        "page_size": "--block-size",
        "nccl": "--disable-custom-all-reduce",
    },
    "tensorrt-llm": {
        "tp": "--tp_size",
        "ep": "--ep_size",
        "mem_fraction_static": "--kv_cache_free_gpu_memory_fraction",
        "chunked_prefill_size": "--max_num_tokens",
        "max_running_requests": "--max_batch_size",
    },
    "llama.cpp": {"chunked_prefill_size": "--ubatch-size", "max_running_requests": "--parallel"},
}
"""How a setting of the server is said, besides those of speculation and caps."""

MODEL, DRAFTER = "@MODEL@", "@DRAFTER@"
"""What stands for a path that is not known: $MODEL and $DRAFTER in the shell's line."""

OWN_DRAFT = ("none", "MTP", "NGRAM", "SUFFIX")
"""Algorithms without a model of their own to load."""


def launches_of(
    profile: Profile,
    plans: Sequence[RunPlan],
    model_path: str | None = None,
    draft_model: str | None = None,
    max_running_requests: int | None = None,
) -> tuple[Launch, ...]:
    """Return what to type for every plan that the engine runs, once each.

    Parameters
    ----------
    profile
        The server.
    plans
        What shall run; what-ifs are left out.
    model_path, draft_model
        Where the models are; None is a name that is known for the library's model, or a variable
        of the shell.
    max_running_requests
        A cap that stands instead of the server's.
    """
    engine = profile.system().engine
    if max_running_requests is not None:
        engine = replace(engine, max_running_requests=max_running_requests)
    named = profile.setup.model
    known = named.config or repository("models", named.id or "")
    if engine.name == "llama.cpp":  # takes a GGUF file
        known = None
    model = model_path or known or MODEL
    result = []
    for plan in dict.fromkeys(plan for plan in plans if plan.allowed):
        spec = replace(engine, version=plan.version)
        loaded = plan.setting.algorithm not in OWN_DRAFT
        drafter = draft_model or DRAFTER if loaded else None
        own = launch_flags(plan, spec, drafter)
        words = [*PROGRAMS[plan.engine], model, *_server(profile, spec), *own]
        files = trtllm_file(plan, drafter) if plan.engine == "tensorrt-llm" else {}
        words += [word for name in files for word in ("--extra_llm_api_options", name)]
        env = dict(sorted(engine_named(plan.engine).launch_env(plan).items()))
        flags = tuple(launch_flags(plan, spec, draft_model))
        missing = tuple(name.strip("@") for name in (MODEL, DRAFTER) if name in " ".join(words))
        result.append(Launch(plan, flags, env, _shell(env, words), files, missing))
    return tuple(result)


def _server(profile: Profile, spec: EngineSpec) -> list[str]:
    """Return the flags of parallelism, memory and kernels, where they are not the default."""
    flags, kv = FLAGS[spec.name], spec.kv_dtype
    said: dict[str, object] = {name: getattr(spec, name, None) for name in flags}
    for name in ("tp", "dp", "ep", "page_size"):
        said[name] = said.get(name) if getattr(spec, name) > 1 else None
    said["kv_dtype"] = None if kv == "bf16" else f"{kv}_e4m3" if spec.name == "sglang" else kv
    words = [w for name, v in said.items() if name in flags and v for w in (flags[name], str(v))]
    if spec.dp > 1 and spec.name == "sglang":
        words.append("--enable-dp-attention")
    if profile.setup.hardware.allreduce == "nccl" and spec.tp > 1 and "nccl" in flags:
        words.append(flags["nccl"])
    return words


DECODING = {"EAGLE": "Eagle", "EAGLE3": "Eagle3", "MTP": "MTP", "STANDALONE": "DraftTarget"}
"""TensorRT-LLM's names of algorithms."""


def trtllm_file(plan: RunPlan, draft_model: str | None) -> dict[str, str]:
    """Return the YAML file that sets TensorRT-LLM's speculation; none where it has no name."""
    setting = plan.setting
    if setting.algorithm not in DECODING:
        return {}
    depth = "num_nextn_predict_layers" if setting.algorithm == "MTP" else "max_draft_len"
    lines = ["speculative_config:", f"  decoding_type: {DECODING[setting.algorithm]}"]
    lines.append(f"  {depth}: {setting.num_steps}")
    if setting.topk > 1:
        lines += ["  use_dynamic_tree: true", f"  dynamic_tree_max_topK: {setting.topk}"]
        lines.append(f"  max_total_draft_tokens: {setting.num_draft_tokens - 1}")
    if draft_model is not None:
        lines.append(f"  speculative_model_dir: {draft_model}")
    return {"extra.yml": "\n".join(lines) + "\n"}


def _shell(env: dict[str, str], words: Sequence[str]) -> str:
    """Write a command for a shell, an option on each line."""
    parts = [f"{name}={quote(value)}" for name, value in env.items()]
    lines = [""]
    for part in [*parts, *map(_quoted, words)]:
        if part.startswith("--") and lines[-1]:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + part
    return " \\\n    ".join(lines)


def _quoted(word: str) -> str:
    """Quote a word; paths that are not known become variables of the shell."""
    text = quote(word)
    for mark in (MODEL, DRAFTER):
        variable = f'"${mark.strip("@")}"'
        text = variable if text == mark else text.replace(mark, f"'{variable}'")
    return text
