"""Small functions, each by an example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from specsim.architecture import load_model
from specsim.cli.readers import Defaults, parse_concurrency, parse_mix, seconds, triple
from specsim.engine.flags import flag_named, flag_words, plain
from specsim.engine.manifest import container_words, heredocs, python_words, yaml_mapping
from specsim.hardware import load_gpu, load_link
from specsim.library import is_file, read_library, repository
from specsim.probe.bench import Sample
from specsim.probe.grid import Timed, layers_that_fit
from specsim.probe.layers import draw_experts
from specsim.probe.shapes import target_shape
from specsim.quantisation import kv_dtype_bytes
from specsim.report import listed, spread, sure
from specsim.report.timeline_views import _us
from specsim.textfile import from_csv_cell, name_of, printable, shown

KIMI = load_model("kimi-k2.5")
(SMALL,) = target_shape(load_model("smollm2-135m")).groups
(LLAMA,) = target_shape(load_model("llama-3.1-8b")).groups

GRAPHS = ("cuda_graph_max_bs", 64)

EXAMPLES: dict[str, tuple[Callable[[], object], object]] = {
    "seconds": (lambda: seconds("2m"), 120.0),
    "triple": (lambda: triple("2,2,7", Defaults("EAGLE3"))[0].label, "topk=2 steps=2 tokens=7"),
    "loads": (lambda: parse_concurrency("100, 1,30"), (1, 30, 100)),
    "mix": (lambda: parse_mix("1:0.25, 30:0.75"), ((1, 0.25), (30, 0.75))),
    "flag": (lambda: plain("--tensor_parallel_size"), "tensor-parallel-size"),
    "value": (lambda: flag_named("vllm", "--max-model-len").value("32k"), 32000),  # type: ignore[union-attr]
    "words": (lambda: flag_words("sglang", "0.5.9", *GRAPHS), ["--cuda-graph-max-bs", "64"]),
    "words later": (
        lambda: flag_words("sglang", "0.5.21", *GRAPHS),
        ["--cuda-graph-max-bs-decode", "64"],
    ),
    "yaml": (
        lambda: yaml_mapping("a:\n  b: 2\n  c: [1, 2]\nd: {4: 3}\n"),
        {"a": {"b": "2", "c": ["1", "2"]}, "d": {"4": "3"}},
    ),
    "heredoc": (
        lambda: heredocs("cat > a.yml <<EOF\nx: 1\nEOF\nrun --config a.yml"),
        ({"a.yml": "x: 1"}, "cat > a.yml \nrun --config a.yml"),
    ),
    "container": (
        lambda: list(container_words("image: vllm/vllm-openai:v0.9.2\nargs: [--model, a/b]")),
        [["vllm/vllm-openai:v0.9.2", "--model", "a/b"]],
    ),
    "call": (
        lambda: python_words("llm = LLM('org/m', tensor_parallel_size=2)", bool),
        ([["vllm", "serve", "--model=org/m", "--tensor-parallel-size=2"]], "llm = "),
    ),
    "bandwidth": (lambda: f"{load_gpu('rtx-pro-6000').bandwidth:.4g}", "1.509e+12"),
    "all-reduce": (
        lambda: [
            round(p.latency_s * 1e6) for p in load_link("pcie5-x16").allreduce_pieces("nccl", 2)
        ],
        [6, 16],
    ),
    "library": (
        lambda: read_library("gpus")["rtx-pro-6000"]["name"],
        "RTX PRO 6000 Blackwell Server Edition",
    ),
    "files": (lambda: (is_file("my-gpu.toml"), is_file("h100-sxm")), (True, False)),
    "repository": (lambda: repository("models", "kimi-k2.5"), "moonshotai/Kimi-K2.5"),
    "total": (lambda: round(KIMI.total_params / 1e9, 1), 1026.4),
    "active": (lambda: round(KIMI.active_params / 1e9, 1), 31.7),
    "kv": (KIMI.kv_bytes_per_token, 70272.0),
    "layers": (lambda: (SMALL.whole, layers_that_fit(SMALL, 0, 1e9, 50e6, 2).built), (30, 29)),
    "experts": (lambda: draw_experts(5, 8, 2, np.random.default_rng(0)).shape, (5, 2)),
    "kv type": (lambda: kv_dtype_bytes("fp8_e4m3"), 1.0),
    "spread": (lambda: spread(759.3, 701.2, 820.0), "759 (701-820)"),
    "sure": (lambda: (sure(0.88), sure(0.999)), ("88 % sure", "over 99 % sure")),
    "listed": (lambda: listed(["a", "b", "c"]), "a, b and c"),
    "us": (lambda: _us(1234567), "1234.567"),
    "printable": (lambda: printable("a\x1b[31mb"), "a?[31mb"),
    "cell": (lambda: from_csv_cell("'=1+1"), "=1+1"),
    "shown": (lambda: len(shown([1] * 1000)), 60),
    "name": (lambda: name_of("my/config.json\n{}"), "my/config.json"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    example, expected = EXAMPLES[name]
    assert example() == expected


def test_experts_of_a_token_are_distinct() -> None:
    drawn = draw_experts(5, 8, 2, np.random.default_rng(0))
    assert all(len(set(row)) == 2 for row in drawn.tolist())


def test_a_step_is_fitted_through_two_numbers_of_layers() -> None:
    timed = Timed.of(Sample(9.0, 0.0, 9), Sample(5.0, 0.0, 9), replace(LLAMA, built=4))
    assert (timed.layer_s, timed.fixed_s) == (2.0, 1.0)
