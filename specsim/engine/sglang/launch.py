"""What to type to have SGLang run a plan: flags, environment, and its adaptive table."""

from __future__ import annotations

import json

from specsim.engine.plan import RunPlan
from specsim.engine.rules import EngineSpec, ScheduleRows, ScheduleSyntax
from specsim.engine.sglang.rulings import V2_ONLY_FROM, spec_era
from specsim.engine.version import parse_version
from specsim.setting import Algorithm

TABLES_FROM, ZERO_FROM = V2_ONLY_FROM, "0.5.18"
"""Tables by batch size; step 0 in them (not in 0.5.13, in 0.5.18 as read)."""

ADAPTIVE_ALGORITHMS = ("EAGLE", "EAGLE3")


def launch_flags(plan: RunPlan, engine: EngineSpec, draft_model: str | None) -> list[str]:
    """Return the flags of the speculation, the scheduler and the caps."""
    setting = plan.setting
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
    era = spec_era(parse_version(plan.version))
    if setting.speculates and era == "beta-flag" and setting.scheduler == "overlap":
        flags.append("--enable-beta-spec")
    if setting.scheduler == "sequential" and _overlap_is_a_flag(plan):
        flags.append("--disable-overlap-schedule")
    caps = {
        "--max-running-requests": engine.max_running_requests,
        "--cuda-graph-max-bs": engine.cuda_graph_max_bs,
    }
    return [*flags, *(word for flag, cap in caps.items() if cap for word in (flag, str(cap)))]


def _overlap_is_a_flag(plan: RunPlan) -> bool:
    """Whether --disable-overlap-schedule decides; in the eras between, the worker does."""
    version = parse_version(plan.version)
    if plan.setting.speculates:
        return spec_era(version) == "v2-only"
    return version.since("0.4.0")


def launch_env(plan: RunPlan) -> dict[str, str]:
    """Return `SGLANG_ENABLE_SPEC_V2` from 0.5.4.post1 to 0.5.12 (0.5.9 ``server_args.py:2381``)."""
    setting = plan.setting
    if not setting.speculates or setting.algorithm == "NGRAM":
        return {}
    era = spec_era(parse_version(plan.version))
    if era == "env" and setting.scheduler == "overlap":
        return {"SGLANG_ENABLE_SPEC_V2": "True"}
    if era == "default" and setting.scheduler == "sequential" and setting.topk == 1:
        return {"SGLANG_ENABLE_SPEC_V2": "False"}
    return {}


def _config(rows: ScheduleRows, batch_max: int) -> str:
    """Return the content of ``--speculative-adaptive-config``."""
    return json.dumps({str(batch): {"candidate_steps": [steps]} for batch, steps in rows})


def _words(rows: ScheduleRows, config: str) -> list[str]:
    first = rows[0][1] or max(steps for _, steps in rows)
    words = ["--speculative-num-steps", str(first), "--speculative-adaptive"]
    return [*words, "--speculative-adaptive-config", "adaptive.json"]


def _lines(rows: ScheduleRows, config: str) -> list[str]:
    return [f"adaptive.json: {config}", " ".join(_words(rows, config))]


def _limits(version: str, algorithm: Algorithm, zero: bool) -> list[str]:
    notes = []
    if algorithm not in ADAPTIVE_ALGORITHMS:
        notes.append(f"SGLang adapts EAGLE and EAGLE3 only, not {algorithm}")
    needed = ZERO_FROM if zero else TABLES_FROM
    if parse_version(version).before(needed):
        notes.append(f"SGLang {version} cannot: such a table needs {needed} or later")
    return notes


SCHEDULE = ScheduleSyntax(config=_config, words=_words, lines=_lines, limits=_limits, padded=True)
