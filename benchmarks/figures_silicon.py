"""TPOT of public servers without speculation, from library physics alone and from two cells.

    python benchmarks/figures_silicon.py silicon_e2e_no_speculation.csv [EVERY]

The table is aiconfigurator's silicon_sample.csv [@silicon], rows with one pipeline stage and no
attention data parallelism, duplicated keys averaged. EVERY takes each n-th group of the second
figure, whose fits take a few minutes.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from statistics import mean, median

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.rows import Rows
from specsim.observations import Observation, observations_from_rows
from specsim.profile import Profile
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.server import Setup, setup_from_mapping

MODELS = {
    "Qwen/Qwen3-32B": "qwen3-32b",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
    "openai/gpt-oss-120b": "gpt-oss-120b",
}
GPUS = {"h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm"}
ENGINES = {
    "sglang": ("sglang", "0.5.9"),
    "vllm": ("vllm", "0.16.0"),
    "trtllm": ("tensorrt-llm", "1.2.0"),
}
KEYS = (
    "model_path",
    "system",
    "backend",
    "precision",
    "tp_size",
    "moe_tp_size",
    "moe_ep_size",
    "isl",
    "osl",
)
Key = tuple[str, ...]


def quantisation(model: str, precision: str) -> str | None:
    """Weight format of a row."""
    if model.startswith("openai"):
        return "mxfp4-experts"
    if "Kimi" in model:
        return "int4-experts"
    return "fp8" if precision == "fp8" else None


def groups(path: str) -> dict[Key, dict[int, list[float]]]:
    """Group -> concurrency -> measured TPOT, seconds."""
    result: dict[Key, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            whole = row["pp_size"] in ("1", "1.0") and row["attention_dp_size"] in ("", "1", "1.0")
            if whole and row["concurrency"] and row["silicon_tpot_ms"]:
                cell = result[tuple(row[k] for k in KEYS)][int(float(row["concurrency"]))]
                cell.append(float(row["silicon_tpot_ms"]) / 1e3)
    return result


def server(key: Key) -> Setup:
    """Setup of a group."""
    model, system, backend, precision, tp_text, _, ep_text, isl, osl = key
    tp = int(float(tp_text))
    ep = int(float(ep_text or 1))
    name, version = ENGINES[backend]
    weights = quantisation(model, precision)
    return setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {
                "gpu": GPUS[system],
                "gpu_count": tp,
                "link": "nvlink4" if tp > 1 else "none",
                "allreduce": "custom",
            },
            "model": {"id": MODELS[model]} | ({"quantisation": weights} if weights else {}),
            "engine": {
                "name": name,
                "version": version,
                "tp": tp,
                "ep": ep if ep <= tp else 1,
                "kv_dtype": "fp8" if backend == "trtllm" else "bf16",
                "max_running_requests": 1024,
            },
            "workload": {"input_len": float(isl), "output_len": float(osl)},
        }
    )


def cells(measured: dict[int, list[float]]) -> tuple[Observation, ...]:
    """Observations of a group by rising concurrency."""
    return observations_from_rows(
        [
            {
                "kind": "closed_loop",
                "algorithm": "none",
                "topk": 1,
                "num_steps": 0,
                "num_draft_tokens": 1,
                "concurrency": c,
                "tpot_s": mean(values),
            }
            for c, values in sorted(measured.items())
        ]
    ).rows


def errors(profile: Profile, rows: tuple[Observation, ...]) -> list[float]:
    """Predicted / measured - 1 of each row's TPOT."""
    model = Rows(profile.setup, rows, profile.acceptances)
    tpot_s = model.predict(profile.parameters, profile.coordinates[None])["tpot_s"][0]
    pairs = zip(tpot_s.tolist(), rows, strict=True)
    return [t / (row.tpot_s or math.nan) - 1 for t, row in pairs]


def show(title: str, found: dict[Key, list[float]]) -> None:
    """Print the figure and the groups by model, GPU, engine and precision."""
    every = [abs(e) for group in found.values() for e in group]
    print(f"{title}: median absolute error {median(every):.1%} over {len(every)} cells")
    kinds: dict[Key, list[float]] = defaultdict(list)
    for key, group in found.items():
        kinds[key[:4]] += group
    for kind, group in sorted(kinds.items()):
        away = median(abs(e) for e in group)
        text = " ".join(kind)
        print(f"  {text:55s} n {len(group):4d}  median {median(group):+.1%}, absolute {away:.1%}")


def main() -> None:
    """Print both figures."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    table = groups(sys.argv[1])
    every = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    show(
        "nothing fitted",
        {k: errors(uncalibrated_profile(server(k)), cells(v)) for k, v in table.items()},
    )
    held_out = {}
    for key, measured in [kv for kv in table.items() if len(kv[1]) >= 3][::every]:
        rows = cells(measured)
        fitted = fit_profile(server(key), (rows[0], rows[-1])).profile
        held_out[key] = errors(fitted, rows[1:-1])
    show("lowest and highest concurrency given", held_out)


if __name__ == "__main__":
    main()
