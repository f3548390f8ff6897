"""Model and drafter shapes: parameter counts against published ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import kv_bytes_of_context

from specsim.architecture import (
    AttentionGroup,
    AttentionParams,
    DraftArchitecture,
    ModelArchitecture,
    load_model,
    model_from_table,
    model_names,
)
from specsim.errors import InputError, UnknownNameError

# Total and active parameters in 1e9 (head counted, embedding not) and bf16 KV bytes per token,
# derived from the configs in ai-dynamo/aiconfigurator@095f58a; printed with one decimal, so the
# tolerance is half of that or 1 %.
PUBLISHED = {
    "kimi-k2.5": (1026.4, 31.7, 70272),
    "kimi-k2.6": (1026.4, 31.7, 70272),
    "kimi-k2-instruct": (1026.4, 31.7, 70272),
    "deepseek-v3": (671.0, 36.6, 70272),
    "deepseek-r1": (671.0, 36.6, 70272),
    "llama-3.1-8b": (8.0, 7.5, 131072),
    "llama-3.1-70b": (70.6, 69.5, 327680),
    "llama-3.3-70b": (70.6, 69.5, 327680),
    "qwen3-8b": (8.2, 7.6, 147456),
    "qwen3-32b": (32.8, 32.0, 262144),
    "qwen3-30b-a3b": (30.5, 3.0, 98304),
    "qwen3-235b-a22b": (235.1, 21.6, 192512),
    "gpt-oss-120b": (116.8, 5.1, 73728),
    "gpt-oss-20b": (20.9, 3.6, 49152),
}


def step_params(draft: DraftArchitecture) -> int:
    """Parameters one token is multiplied with in a draft forward, head included, fc not."""
    assert draft.shape is not None
    return draft.shape.active_params + draft.input_params


@pytest.mark.parametrize(("name", "numbers"), PUBLISHED.items())
def test_parameters_of_published_configs(name: str, numbers: tuple[float, float, int]) -> None:
    model = load_model(name)
    total, active, kv = numbers
    assert model.total_params / 1e9 == pytest.approx(total, rel=0.01, abs=0.05)
    assert model.active_params / 1e9 == pytest.approx(active, rel=0.01, abs=0.05)
    assert model.kv_bytes_per_token(2) == kv


# Names and cards of the models: 397 B (17 B active), 230 B (10 B active), 1.24 B, 134.5 M.
@pytest.mark.parametrize(
    ("name", "total", "active", "rel"),
    [
        ("qwen3.5-397b-a17b", 397, 17, 0.05),
        ("minimax-m2.5", 230, 10, 0.05),
        ("llama-3.2-1b", 1.236, 1.236, 0.005),
        ("smollm2-135m", 0.1345, 0.1345, 0.005),
    ],
)
def test_shapes_from_memory_add_up(name: str, total: float, active: float, rel: float) -> None:
    model = load_model(name)
    assert model.total_params / 1e9 == pytest.approx(total, rel=rel)
    assert model.active_params / 1e9 == pytest.approx(active, rel=rel)
    assert model.evidence == "assumed"


def test_every_model_reads_and_names_its_source() -> None:
    for name in model_names():
        model = load_model(name)
        assert model.id == name
        assert model.source
        assert 0 < model.active_params <= model.total_params or model.tied_embeddings


def test_mla_projections_of_kimi() -> None:
    # q_a 7168x1536, kv_a 7168x576, q_b 1536x64x192, kv_b 512x64x256, o 8192x7168
    parts = load_model("kimi-k2.5").attention_groups[0].params
    assert parts.replicated == 7168 * (1536 + 576)
    assert parts.split == 1536 * 64 * 192 + 512 * 64 * 256 + 8192 * 7168
    assert parts.kv == 0
    assert load_model("kimi-k2.5").expert_params == 3 * 7168 * 2048


def test_windows_bound_what_attention_reads() -> None:
    oss, llama = load_model("gpt-oss-120b"), load_model("llama-3.1-8b")
    assert kv_bytes_of_context(oss, 100) == 100 * oss.kv_bytes_per_token()
    # half of the 36 layers stop at 128 tokens
    assert kv_bytes_of_context(oss, 10_000) == 18 * 2048 * (10_000 + 128)
    assert kv_bytes_of_context(llama, 10_000) == 10_000 * llama.kv_bytes_per_token()


@pytest.mark.parametrize(
    ("hugging_face", "id"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
        ("MOONSHOTAI/KIMI-K2.5", "kimi-k2.5"),
        ("unsloth/Llama-3.2-1B-Instruct", "llama-3.2-1b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"),
    ],
)
def test_hugging_face_names(hugging_face: str, id: str) -> None:
    assert load_model(hugging_face).id == id


def test_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'kimi-k2\.5'"):
        load_model("moonshotai/kimi-k25")


# --- shapes of one's own ------------------------------------------------------------------------

TINY: dict[str, Any] = {
    "id": "tiny",
    "layers": 2,
    "hidden": 64,
    "vocab": 100,
    "attention": "gqa",
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "dense_layers": 2,
    "ffn_inter": 128,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers"),
        ({"heads": 3}, "kv_heads"),
        ({"attention": "mla"}, "kv_lora_rank"),
        ({"ffn_inter": 0}, "ffn_inter"),
        ({"dense_layers": 1}, "dense_layers"),
        ({"dense_layers": 3}, "dense_layers"),
        ({"experts": 4, "dense_layers": 0}, "experts_per_token"),
        ({"experts": 4, "experts_per_token": 8, "moe_inter": 8, "dense_layers": 0}, "exceed"),
        ({"sliding_layers": 1}, "sliding_window"),
        ({"sliding_layers": 3, "sliding_window": 9}, "sliding_layers"),
        ({"linear_layers": 1}, "linear_params"),
        ({"mtp_layers": -1}, "negative"),
        ({"native_quantisation": "int3"}, "quantisation"),
    ],
)
def test_contradictory_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelArchitecture(**{**TINY, **change})


@given(
    layers=st.integers(1, 100),
    heads=st.sampled_from([4, 8, 64]),
    kv_heads=st.sampled_from([1, 2, 4]),
    experts=st.integers(2, 256),
    share=st.floats(0, 1),
)
def test_active_never_exceeds_total_and_reaches_it_when_all_experts_are_taken(
    layers: int, heads: int, kv_heads: int, experts: int, share: float
) -> None:
    shape = {**TINY, "layers": layers, "heads": heads, "kv_heads": kv_heads, "dense_layers": 0}
    taken = max(1, round(share * experts))
    moe = ModelArchitecture(
        **{**shape, "experts": experts, "experts_per_token": taken, "moe_inter": 32}
    )
    all_taken = ModelArchitecture(
        **{**shape, "experts": experts, "experts_per_token": experts, "moe_inter": 32}
    )
    assert moe.active_params <= all_taken.active_params
    assert all_taken.active_params == moe.total_params - moe.head_params
    assert moe.moe_layers == layers


# --- sparse and compressed attention, halves of layers

V4_FLASH = {
    "layers": 43,
    "hidden": 4096,
    "vocab": 129280,
    "heads": 64,
    "kv_heads": 1,
    "head_dim": 512,
    "q_lora_rank": 1024,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "shared_kv": True,
    "experts": 256,
    "experts_per_token": 6,
    "shared_experts": 1,
    "moe_inter": 2048,
    "sliding_window": 128,
    "index_topk": 512,
    "index_heads": 64,
    "index_head_dim": 128,
    "compressed": [[2, 0], [21, 4], [20, 128]],
}


def test_sparse_attention_reads_what_the_indexer_picks() -> None:
    """DeepSeek-V3.2: 2048 entries of each layer, and an 8-bit key of 128 and a scale per token."""
    index = {"index_topk": 2048, "index_heads": 64, "index_head_dim": 128}
    dense, sparse = (load_model("deepseek-v3"), model_from_table(v32(index), "v3.2"))
    assert kv_bytes_of_context(sparse, 1000) == kv_bytes_of_context(dense, 1000) + 61 * 132 * 1000
    far = kv_bytes_of_context(sparse, 100_000)
    assert far == 61 * (2048 * 576 * 2 + 132 * 100_000)
    indexer = 1536 * 64 * 128 + 7168 * 128 + 7168 * 64
    assert sparse.total_params - dense.total_params == 61 * indexer
    # GLM-5.2: three layers of four read what another layer's indexer picked
    shared = model_from_table(v32({**index, "index_shared_layers": 45}), "shared")
    assert shared.total_params - dense.total_params == 16 * indexer
    assert kv_bytes_of_context(shared, 100_000) == 61 * 2048 * 576 * 2 + 16 * 132 * 100_000
    # MiniMax-M3: the first layers are not sparse
    first = model_from_table(v32({**index, "sparse_layers": 58}), "first")
    assert kv_bytes_of_context(first, 100_000) == pytest.approx(
        58 / 61 * far + 3 * 576 * 2 * 100_000
    )


def v32(changes: dict[str, object]) -> dict[str, object]:
    return {"same_as": "deepseek-v3", **changes}


@given(
    context=st.floats(0, 1e6),
    more=st.floats(0, 1e5),
    window=st.integers(0, 5000),
    ratio=st.sampled_from([0.0, 4.0, 128.0, math.inf]),
    topk=st.sampled_from([512.0, 2048.0, math.inf]),
)
def test_a_longer_context_is_never_read_less(
    context: float, more: float, window: int, ratio: float, topk: float
) -> None:
    group = AttentionGroup(
        layers=1,
        params=AttentionParams(1, 1, 1),
        cache_heads=1,
        numbers=1,
        pair_flops=1,
        window=window,
        ratio=ratio,
        topk=topk,
    )
    assert group.entries(context + more) >= group.entries(context) >= 0
    assert group.entries(context) <= context * (1 + 1 / (ratio or math.inf))
    several = group.entries(np.array([context, more]), np.minimum)
    assert several.tolist() == [group.entries(context), group.entries(more)]


def test_compressed_attention_has_the_published_size() -> None:
    """DeepSeek-V4-Flash: 284 B parameters, 13 B of them active, as its card says."""
    model = model_from_table(V4_FLASH, "v4")
    assert model.total_params / 1e9 == pytest.approx(284, rel=0.02)
    assert model.active_params / 1e9 == pytest.approx(13, rel=0.02)
    # an entry of 512 numbers for four tokens, or for 128, and 132 bytes of index for the former
    per_token = 21 * (512 + 132) / 4 + 20 * 512 / 128
    assert model.kv_bytes_per_token(1) == per_token
    window = 43 * 128 * 512
    far = window + 21 * (512 * 512 + 132 * 25_000) + 20 * 512 * 100_000 / 128
    assert kv_bytes_of_context(model, 100_000, 1) == far


def test_layers_may_be_halves() -> None:
    """Nemotron-3-Nano: 23 Mamba-2 layers, 23 of experts without a gate and 6 of attention."""
    mamba = 2688 * (2 * 4096 + 2 * 8 * 128 + 64) + 4096 * 2688
    table = {
        "layers": 52,
        "hidden": 2688,
        "vocab": 131072,
        "heads": 32,
        "kv_heads": 2,
        "head_dim": 128,
        "ffn_matrices": 2,
        "experts": 128,
        "experts_per_token": 6,
        "shared_inter": 3712,
        "moe_inter": 1856,
        "ffn_only_layers": 23,
        "mixer_only_layers": 29,
        "linear_layers": 23,
        "linear_params": mamba,
    }
    model = model_from_table(table, "nano")
    assert (model.full_layers, model.moe_layers, model.depth) == (6, 23, 26)
    assert model.total_params / 1e9 == pytest.approx(31.6, rel=0.01)  # the model's card
    assert model.kv_bytes_per_token() == 6 * 2 * 2 * 128 * 2


def test_windowed_layers_may_be_shaped_otherwise() -> None:
    """Gemma-4: full layers have fewer and wider heads, whose K and V are one projection."""
    table = {
        "layers": 6,
        "hidden": 1024,
        "vocab": 1000,
        "heads": 16,
        "kv_heads": 2,
        "head_dim": 512,
        "shared_kv": True,
        "ffn_inter": 4096,
        "sliding_window": 1024,
        "sliding_layers": 5,
        "sliding_heads": 16,
        "sliding_kv_heads": 8,
        "sliding_head_dim": 256,
    }
    full, sliding = model_from_table(table, "gemma").attention_groups
    assert full.params.total == 1024 * 512 * (2 * 16 + 2)
    assert sliding.params.total == 1024 * 256 * (2 * 16 + 2 * 8)
    assert (full.numbers, sliding.numbers) == (2 * 2 * 512, 2 * 8 * 256)
    assert sliding.entries(5000) == 1024
    assert full.entries(5000) == 5000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compressed": [[2, 0]]}, "compressed"),
        ({"compressed": [[43]]}, "compressed"),
        ({"compressed": [3]}, "not a list"),
        ({"index_heads": 0}, "index_heads"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"o_groups": 0}, "o_groups"),
        ({"ffn_only_layers": 44}, "layers"),
    ],
)
def test_shapes_that_contradict_themselves_are_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model_from_table({**V4_FLASH, **changes}, "x")
