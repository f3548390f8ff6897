"""Engine rules, numbers: caps, captured sizes and memory , other engines, launch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from engines import CHAIN, FOUNDING_GPU_BYTES, GIB, TREE, server, sglang, spec
from hypothesis import given
from hypothesis import strategies as st

from specsim.engine import padded_batch
from specsim.errors import EngineRefusal, InputError
from specsim.setting import SpecSetting

# --- limits


@pytest.mark.parametrize(
    ("version", "kwargs", "speculating", "plain"),
    [
        ("0.4.4.post1", {}, 48, 2048),
        ("0.5.9", {}, 48, 2048),
        ("0.5.23", {}, 48, 2048),
        ("0.5.9", {"dp": 8}, 6, 2048),  # DP attention divides
        ("0.5.9", {"max_running_requests": 36}, 36, 36),
        ("0.5.9", {"max_running_requests": 100, "dp": 4}, 25, 25),
        ("0.5.9", {"dp": 64}, 1, 2048),
    ],
)
def test_running_cap(version: str, kwargs: dict[str, Any], speculating: int, plain: int) -> None:
    engine = sglang(version, **kwargs)
    assert engine.plan(CHAIN).max_running_requests == speculating
    assert engine.plan(SpecSetting.none()).max_running_requests == plain


@pytest.mark.parametrize(("version", "cap"), [("0.4.3", 2048), ("0.4.3.post4", 32), ("0.4.4", 32)])
def test_running_cap_of_old_releases(version: str, cap: int) -> None:
    # 0.4.4 as released still has 32 (server_args.py:282); 48 is in 0.4.5.
    assert sglang(version).plan(spec(1, "auto", "EAGLE")).max_running_requests == cap


@pytest.mark.parametrize(
    ("version", "gib", "narrow", "wide", "chunk"),
    [
        ("0.5.9", 16, 8, 8, 2048),
        ("0.5.9", 24, 24, 80, 2048),
        ("0.5.23", 32, 48, 160, 4096),
        ("0.5.9", 48, 32, 160, 4096),
        ("0.5.9", 80, 256, 512, 8192),
        ("0.5.9", 141, 256, 512, 8192),
        ("0.5.9", 180, 512, 512, 16384),
        ("0.5.2", 24, 8, 80, 2048),
    ],
)
def test_defaults_by_gpu_memory(version: str, gib: int, narrow: int, wide: int, chunk: int) -> None:
    two = sglang(version, tp=2, gpu_mem_bytes=gib * GIB)
    four = two.but(tp=4)
    assert (two.graph_max, four.graph_max) == (narrow, wide)
    assert two.plan(CHAIN).chunked_prefill_size == chunk
    asked = two.but(chunked_prefill_size=1024, cuda_graph_max_bs=6)
    assert asked.plan(CHAIN).chunked_prefill_size == 1024
    assert asked.plan(CHAIN).graph_batch_sizes == (1, 2, 3, 4, 5, 6)


def test_captured_sizes() -> None:
    # 0.5.9 server_args.py:1079-1107: 1-8, -32 by 2, 40-64 by 4, -256 by 8, then 16.
    wide_open = sglang("0.5.9", max_running_requests=4096)
    sizes = wide_open.plan(CHAIN).graph_batch_sizes
    assert sizes[:8] == tuple(range(1, 9))
    assert sizes[8:20] == tuple(range(10, 33, 2))
    assert sizes[20:27] == tuple(range(40, 65, 4))
    assert sizes[27:51] == tuple(range(72, 257, 8))
    assert sizes[51:] == tuple(range(272, 513, 16))
    plain = wide_open.plan(SpecSetting.none()).graph_batch_sizes
    assert plain[:7] == (1, 2, 4, 8, 12, 16, 24)
    assert plain[-2:] == (496, 512)
    more = wide_open.but(cuda_graph_max_bs=600).plan(SpecSetting.none())
    assert more.graph_batch_sizes[-3:] == (512, 544, 576)


def test_captured_sizes_stop_at_the_running_cap() -> None:
    assert sglang("0.5.9").plan(CHAIN).graph_batch_sizes[-3:] == (40, 44, 48)
    odd = sglang("0.5.9", max_running_requests=37)
    assert odd.plan(CHAIN).graph_batch_sizes[-2:] == (32, 37)
    # The asked maximum itself is captured from 0.5.12 on.
    for version, last in (("0.5.9", 96), ("0.5.12", 99)):
        engine = sglang(version, cuda_graph_max_bs=99, max_running_requests=200)
        assert engine.plan(CHAIN).graph_batch_sizes[-1] == last


def test_captured_sizes_of_old_releases() -> None:  # 0.5.2 cuda_graph_runner.py
    engine = sglang("0.5.2", gpu_mem_bytes=80 * GIB)
    assert engine.plan(CHAIN).graph_batch_sizes[-3:] == (32, 40, 48)
    plain = engine.plan(SpecSetting.none()).graph_batch_sizes
    assert plain[:5] == (1, 2, 4, 8, 16)
    assert plain[-1] == 160
    big = engine.but(gpu_mem_bytes=180 * GIB, cuda_graph_max_bs=600)
    assert big.plan(SpecSetting.none()).graph_batch_sizes[-1] == 592


@given(st.integers(1, 600), st.sampled_from(["0.5.2", "0.5.9", "0.5.12", "0.5.23"]))
def test_padding_goes_to_the_next_captured_size(batch: int, version: str) -> None:
    plan = sglang(version, max_running_requests=600, cuda_graph_max_bs=128).plan(CHAIN)
    padded, eager = padded_batch(plan, [batch, batch])
    assert padded[0] == padded[1]
    assert eager[0] == (batch > max(plan.graph_batch_sizes))
    if eager[0]:
        assert padded[0] == batch
    else:
        assert padded[0] == min(size for size in plan.graph_batch_sizes if size >= batch)


@given(st.floats(0.5, 300), st.floats(0.5, 300))
def test_padding_is_monotone(one: float, other: float) -> None:
    plan = sglang(max_running_requests=4096).plan(CHAIN)
    low, high = sorted([one, other])
    padded, _ = padded_batch(plan, [low, high])
    assert low <= padded[0] <= padded[1]


def test_padding_takes_scalars_and_whole_arrays() -> None:
    plan = sglang().plan(CHAIN)
    padded, eager = padded_batch(plan, 9)
    assert (float(padded), bool(eager)) == (10.0, False)
    padded, eager = padded_batch(plan, np.array([[33, 48], [49, 8.5]]))
    assert padded.tolist() == [[40, 48], [49, 10]]
    assert eager.tolist() == [[False, False], [True, False]]


# --- memory


def test_memory_fraction_by_hand() -> None:
    # 0.5.9 server_args.py:1020-1063, MiB: 512 + 1.5 * 2048 + 2 * 24 + 1024 / 8 = 3760 of 24576.
    engine = sglang("0.5.9", tp=1, gpu_mem_bytes=24 * GIB)
    assert engine.fraction("none") == round(1 - 3760 / 24576, 3)
    assert engine.fraction("EAGLE3") == round(1 - (3760 + 2048) / 24576, 3)
    assert engine.fraction("STANDALONE") == round(1 - (3760 + 6144) / 24576, 3)
    assert engine.fraction("NGRAM") == engine.fraction("none")
    # At least 10 GiB above 60 GiB: 512 + 12288 + 1024 + 1024 is more, with a small chunk it is not.
    big = sglang("0.5.9", gpu_mem_bytes=80 * GIB)
    assert big.fraction("none") == round(1 - 14848 / 81920, 3)
    small_chunk = big.but(chunked_prefill_size=2048, cuda_graph_max_bs=8)
    assert small_chunk.fraction("none") == round(1 - 10240 / 81920, 3)
    assert big.but(mem_fraction_static=0.88).fraction("MTP") == 0.88
    # 0.5.2: by class of GPU, (9.5 + tp / 2) GiB of 80.
    assert sglang("0.5.2", gpu_mem_bytes=80 * GIB).fraction("none") == round(1 - 13.5 / 80, 3)


def test_founding_pool() -> None:
    # 0.88 of the card less 68.4 GB of weights, 70,272 B per token.
    engine = sglang(mem_fraction_static=0.88)
    expected = (0.88 * FOUNDING_GPU_BYTES - 68.4e9) / 70_272
    assert engine.capacity(68.4e9, 70_272) == int(expected)


@pytest.mark.parametrize("name", ["sglang", "vllm", "tensorrt-llm", "llama.cpp"])
def test_a_model_that_does_not_fit(name: Any) -> None:
    engine = server(name, "1.0", 80 * GIB, tp=8)
    with pytest.raises(InputError, match="too much for a KV cache"):
        engine.capacity(90 * GIB, 70_272)
    assert engine.capacity(20 * GIB, 70_272) > engine.capacity(30 * GIB, 70_272) > 0


# --- other engines


def test_vllm_takes_chains_only() -> None:
    for version, words in (("0.10.2", "chains only"), ("0.16.0", "speculative_token_tree")):
        engine = server("vllm", version, 80 * GIB)
        with pytest.raises(EngineRefusal, match=words):
            engine.plan(TREE)
        assert engine.plan(TREE, what_if=True).what_if
    with pytest.raises(EngineRefusal) as caught:
        server("vllm", "0.33.0", 80 * GIB).plan(TREE)
    assert "speculative_token_tree" not in str(caught.value)


def test_vllm_plan() -> None:
    plan = server("vllm", "0.33.0", 80 * GIB).plan(SpecSetting("EAGLE3", 1, 3, 3))
    assert plan.setting.num_draft_tokens == 4
    assert "num_speculative_tokens 3" in " ".join(plan.notes)
    assert "assumed" in " ".join(plan.notes)
    assert (plan.prefill, plan.setting.scheduler, plan.timeline) == (
        "mixed",
        "overlap",
        "run_ahead",
    )
    assert plan.reserved_tokens_per_request == 4
    # Sizes count tokens: 10 requests of 4 tokens are 40; 11 are 44, padded to 48.
    padded, eager = padded_batch(plan, [10, 11, 128, 129])
    assert (padded * 4).tolist() == [40, 48, 512, 516]
    assert eager.tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("version", "words"),
    [("0.9.2", "works in the V0"), ("0.16.0", "unused"), ("0.33.0", "per_batch_size")],
)
def test_vllm_batch_size_switches(version: str, words: str) -> None:
    engine = server("vllm", version, 80 * GIB)
    assert words in " ".join(engine.plan(CHAIN).notes)
    assert words not in " ".join(engine.plan(SpecSetting.none()).notes)


def test_llama_cpp_runs_chains_in_turn() -> None:
    engine = server("llama.cpp", "b4567", 24 * GIB)
    plan = engine.plan(CHAIN)
    assert plan.setting.scheduler == "sequential"
    assert "slots assumed" in " ".join(plan.notes)
    padded, eager = padded_batch(plan, [1, 3])
    assert padded.tolist() == [1, 3]
    assert not eager.any()
    assert plan.extend_tokens_per_request(1.7) == CHAIN.num_draft_tokens  # the verified batch again
    for setting in (TREE, CHAIN.with_scheduler("overlap")):
        with pytest.raises(EngineRefusal):
            engine.plan(setting)


def test_tensorrt_llm_overlaps_and_takes_trees() -> None:
    plan = server("tensorrt-llm", "1.2.0rc1", 80 * GIB, tp=8).plan(TREE)
    assert (plan.allowed, plan.setting.scheduler, plan.finish_lag_rounds) == (True, "overlap", 1)


# --- launch


@pytest.mark.parametrize(
    ("version", "setting", "flags", "env"),
    [
        ("0.5.3", spec(1, "overlap"), ["--enable-beta-spec"], {}),
        ("0.5.9", spec(1, "overlap"), [], {"SGLANG_ENABLE_SPEC_V2": "True"}),
        ("0.5.9", spec(4, "auto"), [], {}),
        ("0.5.12", spec(1, "sequential"), [], {"SGLANG_ENABLE_SPEC_V2": "False"}),
        ("0.5.12", spec(4, "auto"), [], {}),
        ("0.5.23", spec(4, "sequential"), ["--disable-overlap-schedule"], {}),
        ("0.5.23", spec(4, "auto"), [], {}),
    ],
)
def test_launch_of_sglang(
    version: str, setting: SpecSetting, flags: list[str], env: dict[str, str]
) -> None:
    engine = sglang(version)
    plan = engine.plan(setting)
    assert engine.rules.launch_env(plan) == env
    assert engine.flags(plan, "org/draft") == [
        "--speculative-algorithm",
        "EAGLE3",
        "--speculative-draft-model-path",
        "org/draft",
        "--speculative-num-steps",
        "2",
        "--speculative-eagle-topk",
        str(setting.topk),
        "--speculative-num-draft-tokens",
        str(setting.num_draft_tokens),
        *flags,
    ]


def test_launch_of_other_settings() -> None:
    engine = sglang(max_running_requests=64, cuda_graph_max_bs=128)
    caps = ["--max-running-requests", "64", "--cuda-graph-max-bs", "128"]
    assert engine.flags(engine.plan(SpecSetting.none())) == caps
    plain = engine.plan(SpecSetting.none("sequential"))
    assert engine.flags(plain) == ["--disable-overlap-schedule", *caps]
    assert engine.rules.launch_env(plain) == {}
    mtp = engine.flags(engine.plan(spec(1, "auto", "MTP")))
    assert mtp[:2] == ["--speculative-algorithm", "EAGLE"]
    ngram = engine.flags(engine.plan(spec(4, "auto", "NGRAM")))
    assert ngram[2:4] == ["--speculative-ngram-max-bfs-breadth", "4"]


def test_launch_of_vllm_and_llama_cpp() -> None:
    engine = server("vllm", "0.33.0", 80 * GIB, max_running_requests=64)
    flags = engine.flags(engine.plan(CHAIN.with_scheduler("sequential")), "org/draft")
    assert flags[0] == "--speculative-config"
    assert json.loads(flags[1]) == {
        "method": "eagle3",
        "num_speculative_tokens": 2,
        "model": "org/draft",
    }
    assert flags[2:] == ["--max-num-seqs", "64", "--no-async-scheduling"]
    slots = server("llama.cpp", "b4567", 24 * GIB)
    standalone = slots.plan(spec(1, "auto", "STANDALONE"))
    assert slots.flags(standalone) == ["--parallel", "4", "--draft-max", "2"]
