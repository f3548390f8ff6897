"""llama.cpp's server: slots, chains, everything in turn [@llamacpp-source]."""

from collections.abc import Mapping

from specsim.engine import rules, rulings
from specsim.engine.plan import RunPlan
from specsim.engine.rules import Engine, EngineSpec
from specsim.setting import Algorithm, SpecSetting, chain_settings

SLOTS = 4
BATCH_TOKENS = 2048
COMPUTE_BYTES = rules.GIB  # assumed: compute buffers


TYPES_FROM = "b9000"
"""Build from which ``--spec-type`` says how to draft and ``--draft-max`` is refused: changed in
April 2026 (llama.cpp#22397), the number is assumed; read in 11434."""


def plan_llama_cpp(
    setting: SpecSetting, engine: EngineSpec, gpu_mem_bytes: float, what_if: bool
) -> RunPlan:
    """Return what llama.cpp's server does with a setting, or raise EngineRefusal.

    Read in build 11434 (``common/speculative.cpp``, ``tools/server/server-context.cpp``): all slots
    draft in one batch, S forwards of one token each; the target verifies all slots in one batch;
    the drafter computes that batch once more. Older builds drafted and verified slot by slot.
    """
    most = engine.max_running_requests or SLOTS
    assumed = f"{most} slots assumed (older builds: 1); see --parallel"
    return rulings.run_plan(
        rulings.judge(setting, engine, what_if),
        engine,
        max_running_requests=most,
        chunked_prefill_size=engine.chunked_prefill_size or BATCH_TOKENS,
        graph_sizes=(),
        graph_unit="none",
        overlapped="overlap",
        first_draft="forward",
        notes=[assumed] if engine.max_running_requests is None else [],
    )


def kv_room_bytes(
    engine: EngineSpec, gpu_mem_bytes: float, weight_bytes: float, algorithm: Algorithm
) -> float:
    """Return the bytes of one GPU for the KV cache; the defaults are assumed."""
    return gpu_mem_bytes * (engine.mem_fraction_static or 1.0) - weight_bytes - COMPUTE_BYTES


def launch_flags(plan: RunPlan, engine: EngineSpec, draft_model: str | None) -> list[str]:
    """Return the flags of slots and drafts."""
    from specsim.engine.flags import flags_for

    setting = plan.setting
    said: dict[str, object] = {"max_running_requests": plan.max_running_requests}
    if setting.speculates:
        typed = rules.parse_version(plan.version).since(TYPES_FROM)
        said["algorithm"] = setting.algorithm if typed else None
        said["draft"] = draft_model
        lookup = typed and setting.algorithm == "NGRAM"
        said["ngram_max" if lookup else "chain"] = setting.num_steps
    return flags_for("llama.cpp", plan.version, said)


ALL_LAYERS = 99  # as people write -ngl for all of them: no model has more
DRAFT_MAX = 3
"""Tokens drafted where no flag says (build 11434 ``common.h``; 16 in builds before 2026)."""


def settings_of(said: Mapping[str, object]) -> dict[str, object]:
    """Return settings from arguments, by the settings of ``flags.csv``.

    >>> settings_of({"draft": "small.gguf"})["num_steps"]
    3
    """
    found = {"tp": 1, **said}
    if "draft" in found:
        found.setdefault("algorithm", "STANDALONE")
    lookup = found.pop("ngram_max", None)
    if found.get("algorithm", "none") != "none":
        longest = lookup if found["algorithm"] == "NGRAM" and isinstance(lookup, int) else DRAFT_MAX
        found = {**chain_settings(longest), **found}
    layers = str(found.get("gpu_layers", ""))
    if layers.isdigit() and int(layers) < ALL_LAYERS:
        found["cpu_layers"] = layers
    context = found.get("context_tokens")
    if isinstance(context, int) and context > 0:
        found["kv_tokens"] = context  # of all slots together
    return found


ENGINE = Engine(
    name="llama.cpp",
    newest="main",
    program=("llama-server",),
    plan=plan_llama_cpp,
    kv_room_bytes=kv_room_bytes,
    launch_flags=launch_flags,
    settings=settings_of,
    synthetic_shape="constant",
)
