"""The samples that ship with the package: two servers, each without and with speculation.

    python benchmarks/example_logs.py

Simulated servers (Llama-3.1-8B on an H100, an EAGLE-3 drafter, numbers drawn from the priors) print
what SGLang and vLLM would; NAME.csv holds what a client would have measured. Written to
specsim/example/; the same bytes each time.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import figures_recovery as recovery
import numpy as np

from specsim.setting import SpecSetting

FOLDER = Path(__file__).resolve().parent.parent / "specsim" / "example"
SEED = 11
HEADER = (
    "kind,algorithm,topk,num_steps,num_draft_tokens,scheduler,concurrency,input_len,output_len,"
    "output_tps,accept_length"
)
LEVEL_S = {"sglang": 15.0, "vllm": 130.0}


def main() -> None:
    """Write the four logs."""
    for name, seconds in LEVEL_S.items():
        (truth,) = recovery.truths(recovery.ENGINES[name], 1, seed=SEED)
        rng = np.random.default_rng(SEED)
        engine = replace(truth.engine, level_s=seconds)
        truth = replace(truth, engine=engine)
        chain = SpecSetting.of(1, recovery.STEPS)
        rows = [HEADER]
        for kind, setting in (("none", SpecSetting.none()), ("spec", chain)):
            levels = recovery.levels_of(truth, setting, rng)
            text = engine.plain(levels, rng)
            (FOLDER / f"{name}-{kind}.log").write_text(text, encoding="utf-8")
            rows += [row(setting, level, rng) for level in levels]
        (FOLDER / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def row(setting: SpecSetting, level: recovery.writers.Level, rng: np.random.Generator) -> str:
    """A line of observations.csv: throughput as a client counts it, 2 % off."""
    tps = level.result.output_tps * float(np.exp(rng.normal(0.0, 0.02)))
    numbers = f"{setting.topk},{setting.num_steps},{setting.num_draft_tokens}"
    length = f"{level.result.accept_length:.2f}" if setting.speculates else ""
    load = f"{level.case.load.concurrency},{recovery.INPUT:g},{recovery.OUTPUT:g}"
    return f"closed_loop,{setting.algorithm},{numbers},overlap,{load},{tps:.1f},{length}"


if __name__ == "__main__":
    main()
