"""Write docs/validation/*.md from what the figure commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "kimi": (
        "Validation: two Kimi servers",
        "What the model gets right on the founding cells and on Kimi-K2.6, beside the textbook\n"
        "formula (one speed-up at every load, given the measured throughput without speculation)\n"
        "and beside itself without a mechanism.",
        ("figures_kimi",),
    ),
    "acceptance": (
        "Validation: acceptance",
        "Accept lengths of trees from those of chains and one number per drafter, the shift of\n"
        "its confidence. Data: `calibration/tables/`.",
        ("figures_acceptance",),
    ),
    "drafters": (
        "Validation: drafters",
        "Deep chains from shallow ones, over drafters that fall fast and slowly, and rounds of a\n"
        "block drafter of which three sizes are given to the fit. Two constants of sampling a\n"
        "block (`DEPTH_S`, `BLOCK_ROW_S` in `specsim.cost.forward`) were read off the same table:\n"
        "of the drafter's time it is no blind test, of the round it is.",
        ("figures_drafters",),
    ),
    "kernels": (
        "Validation: all-reduce and MoE layer",
        "Measured tables (aiconfigurator, Apache-2.0; `calibration/tables/`) against the cost\n"
        "model's formulas, fitted on a part of the rows.",
        ("figures_allreduce", "figures_moe"),
    ),
    "models": (
        "Validation: model shapes",
        "Parameters and KV bytes per token that follow from the shapes in the library, beside the\n"
        "published figures (`calibration/tables/models.csv`, with sources). Most shapes are read\n"
        "from config.json files written from public facts, which `tests/configs/` holds.\n\n"
        "Left out are figures that their publisher rounds so far that 2 % says nothing: active\n"
        "parameters of GLM-4.5-Air (12 B; 12.8 here), GLM-4.7 (32; 32.9), GLM-5.1 (40; 40.8),\n"
        "MiniMax-M2.5 (10; 10.4), Qwen3-Next (3; 3.6), Qwen3.5-397B (17; 16.3), DeepSeek-V2-Lite\n"
        "(2.4; 2.5), Granite-4.0-H-Small (9; 8.8), LFM2-8B-A1B (1.5; 1.6), and the totals of\n"
        "Kimi-Linear (48; 49.1) and ERNIE-4.5-21B (21; 21.8).",
        ("figures_models",),
    ),
    "live": (
        "Validation: our own live server",
        "llama.cpp's server on two CPU cores, three weight formats, every cell run three times\n"
        "by `calibration/smollm2-135m-llama-server-2-core/collect.py`: a few cells are given to\n"
        "the fit, the others predicted. On a CPU each further token costs compute, so chains lose\n"
        "but where the step is bound by memory (F32) or the drafts are free (the lookup). One run\n"
        "of a cell is 8 % off, so more than half of what is left is noise. F16 with one draft at\n"
        "four clients gained 15 % (+- 6) over three passes where a loss was predicted; ten fresh\n"
        "pairs of runs then gave -4.2 % (+- 2.1), and are in its mean. The CPU's constants\n"
        "(kernels of two tokens, attention, shared cache) were measured with llama-bench and\n"
        "llama-batched-bench on this machine with these cells in view: this is no blind test\n"
        "of them.\n\n"
        "What the rounds of the real drafter say of the acceptance model: its shape holds, with\n"
        "twice the spread between requests and none of the decay with depth of EAGLE-3 drafters;\n"
        "neighbouring rounds of a request are correlated, which the model leaves out (it does not\n"
        "change means). Against a greedy target the drafter is less sure than it should be, by\n"
        "0.9 to 2 in log-odds, as the model has it; against a sampling one it is nearly right.\n"
        "What does not hold is the siblings' share: a quantised copy of the target has the right\n"
        "token second twice as often as the heads that the model's ranks are from\n"
        "(`rank_scale` 1.4 to 1.9), so trees would gain more from it than the prior says.\n\n"
        "![Predicted against measured throughput](../figures/live_cells.svg)",
        ("figures_live", "figures_live_acceptance"),
    ),
    "loads": (
        "Validation: any load",
        "The closed form against long simulations: Poisson arrivals (`specsim.queueing`) and the\n"
        "edges of a workload, over random servers of every engine. Near the capacity the mean\n"
        "of a queue is known slowly: there two standard errors are wider than the bars.",
        ("figures_loads",),
    ),
    "servers": (
        "Validation: servers that nobody here built",
        "Twenty public servers (`calibration/servers`, sources cited) beside our own: what is\n"
        "predicted from a few cells of each, beside cheap rules. The splits were written down\n"
        "before anything was run. No blind test: the priors of what only speculation pays are\n"
        "read on these servers, and some accept lengths and shapes in the converted sets are\n"
        "assumptions (each folder's `setup.toml` says which).\n"
        "Mechanisms that no baseline shows were found on these very servers: what attention\n"
        "kernel verifies (AWQ at 32k, 8-bit KV on an A100), what sparse attention reads in a row\n"
        "and pads it to (GLM-5.1; layer times of others agree), the token budget of a step\n"
        "(GB300), that what a request adds to a step, each committed token adds to a round (four\n"
        "H100, A100), and that vLLM captures whole requests of a verification (RTX PRO 6000);\n"
        "all were then read in the engines' sources. Found in the figures alone: that answers\n"
        "which the model ends vary in length (V4-Flash on MT-Bench; 0.5 where nothing is stated)\n"
        "and those of 256 tokens were cut (A100), that TPOT beside throughput tells how long\n"
        "requests waited (GB300), that padding rows read experts of their own (vLLM), and the\n"
        "spread of what rounds may differ by.\n"
        "What falls short: a server whose steps jump (GLM-5.1 beyond 16 tokens) grows from there\n"
        "faster than is predicted, which lifts the gain at high load; one cell does not tell how\n"
        "the cost of speculating grows with the batch; without an accept length (Kimi-K2.5 INT4,\n"
        "the llama.cpp servers) it cannot be told from that of drafting.",
        ("figures_servers",),
    ),
}


def main() -> None:
    """Run the commands of the named pages, or of all, and write them."""
    for name in sys.argv[1:] or PAGES:
        title, words, commands = PAGES[name]
        lines = [f"# {title}", "", words, ""]
        for command in commands:
            path = f"benchmarks/{command}.py"
            done = subprocess.run(
                [sys.executable, path], cwd=ROOT, capture_output=True, text=True, check=True
            )
            lines += ["```console", f"$ python {path}", done.stdout.rstrip(), "```", ""]
        page = ROOT / "docs" / "validation" / f"{name}.md"
        page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
