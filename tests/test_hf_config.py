"""Shapes read from Hugging Face config.json files, written here by hand in their form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import kv_bytes_of_context

from specsim.architecture import ModelArchitecture, load_model
from specsim.errors import FormatError, InputError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
KIMI: dict[str, Any] = {
    "model_type": "kimi_k25",
    "text_config": {
        **DEEPSEEK,
        "model_type": "kimi_k2",
        "num_attention_heads": 64,
        "n_routed_experts": 384,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 0,
        "vocab_size": 163840,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}
            },
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
        },
    },
}
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "vocab_size": 201088,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN3_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def _read(tmp_path: Path, config: dict[str, Any], **options: Any) -> ModelArchitecture:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    return load_model(str(file), **options)


@pytest.mark.parametrize(
    ("config", "id"),
    [
        (LLAMA, "llama-3.1-8b"),
        (DEEPSEEK, "deepseek-v3"),
        (KIMI, "kimi-k2.5"),
        (GPT_OSS, "gpt-oss-120b"),
        (QWEN3_MOE, "qwen3-30b-a3b"),
    ],
)
def test_configs_agree_with_the_library(tmp_path: Path, config: dict[str, Any], id: str) -> None:
    read, known = _read(tmp_path, config), load_model(id)
    assert read.total_params == known.total_params
    assert read.active_params == known.active_params
    assert kv_bytes_of_context(read, 5000) == kv_bytes_of_context(known, 5000)
    assert read.native_quantisation == known.native_quantisation
    assert read.mtp_layers == known.mtp_layers
    assert read.moe_layers == known.moe_layers


# Published totals, 1e9 parameters: Mixtral-8x7B 46.7 (12.9 active, of which .13 embedding),
# GLM-4.5-Air 106 (12 active), Qwen1.5-MoE 14.3 (2.7 active, embedding not counted),
# Qwen3-Next 80 (3 active), Gemma-2-9B 9.24. 3 %: biases, norms and MTP are not counted.
@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        (
            LLAMA
            | {
                "model_type": "mixtral",
                "vocab_size": 32000,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
            },
            46.7,
            12.75,
        ),
        (
            {
                "model_type": "glm4_moe",
                "num_hidden_layers": 46,
                "hidden_size": 4096,
                "intermediate_size": 10944,
                "moe_intermediate_size": 1408,
                "num_attention_heads": 96,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "num_experts_per_tok": 8,
                "first_k_dense_replace": 1,
                "num_nextn_predict_layers": 1,
                "vocab_size": 151552,
            },
            106,
            12.8,
        ),
        (
            {
                "model_type": "qwen2_moe",
                "num_hidden_layers": 24,
                "hidden_size": 2048,
                "intermediate_size": 5632,
                "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "num_experts": 60,
                "num_experts_per_tok": 4,
                "decoder_sparse_step": 1,
                "vocab_size": 151936,
            },
            14.3,
            2.4,
        ),
        (
            {
                "model_type": "qwen3_next",
                "num_hidden_layers": 48,
                "hidden_size": 2048,
                "intermediate_size": 5120,
                "moe_intermediate_size": 512,
                "shared_expert_intermediate_size": 512,
                "num_attention_heads": 16,
                "num_key_value_heads": 2,
                "head_dim": 256,
                "attn_output_gate": True,
                "full_attention_interval": 4,
                "linear_num_key_heads": 16,
                "linear_num_value_heads": 32,
                "linear_key_head_dim": 128,
                "linear_value_head_dim": 128,
                "num_experts": 512,
                "num_experts_per_tok": 10,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
                "vocab_size": 151936,
            },
            80,
            3.55,
        ),
        (
            {
                "model_type": "gemma2",
                "num_hidden_layers": 42,
                "hidden_size": 3584,
                "intermediate_size": 14336,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "head_dim": 256,
                "sliding_window": 4096,
                "vocab_size": 256000,
            },
            9.24,
            9.24,
        ),
    ],
    ids=["mixtral", "glm4_moe", "qwen2_moe", "qwen3_next", "gemma2"],
)
def test_other_families(
    tmp_path: Path, config: dict[str, Any], total: float, active: float
) -> None:
    model = _read(tmp_path, config)
    assert model.total_params / 1e9 == pytest.approx(total, rel=0.03)
    assert model.active_params / 1e9 == pytest.approx(active, rel=0.03)


def test_windows_by_family(tmp_path: Path) -> None:
    mistral = _read(tmp_path, LLAMA | {"model_type": "mistral", "sliding_window": 4096})
    assert (mistral.sliding_layers, mistral.sliding_window) == (32, 4096)
    qwen = LLAMA | {"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 28}
    with pytest.raises(FormatError, match="use_sliding_window"):
        _read(tmp_path, qwen)
    assert _read(tmp_path, qwen | {"use_sliding_window": True}).sliding_layers == 4
    assert _read(tmp_path, qwen | {"use_sliding_window": False}).sliding_layers == 0
    window = {"sliding_window": 512, "sliding_window_pattern": 6, "head_dim": 128}
    gemma3 = LLAMA | {"model_type": "gemma3", **window}
    assert _read(tmp_path, gemma3).sliding_layers == 32 - 32 // 6
    assert _read(tmp_path, gemma3).tied_embeddings
    assert not _read(tmp_path, LLAMA).tied_embeddings


def test_dense_layers_by_family(tmp_path: Path) -> None:
    def dense(**change: Any) -> int:
        return _read(tmp_path, QWEN3_MOE | change).dense_layers

    assert dense(decoder_sparse_step=2) == 24
    assert dense(mlp_only_layers=[0, 1, 2]) == 3
    assert dense(moe_layer_freq=[0] + [1] * 47) == 1
    assert dense(first_k_dense_replace=2, moe_layer_freq=2) == 2 + 23


@pytest.mark.parametrize(
    ("about", "scheme"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "gptq", "bits": 8}, "w8a16"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt_fp8", "quant_algo": "FP8"}, "fp8"),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*"]},
            "nvfp4-ffn",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
    ],
)
def test_quantisation_configs(tmp_path: Path, about: dict[str, Any], scheme: str) -> None:
    config = LLAMA | {"quantization_config": about}
    assert _read(tmp_path, config).native_quantisation == scheme


@pytest.mark.parametrize(
    "about",
    [
        {"quant_method": "bitsandbytes"},
        {"quant_method": "awq", "bits": 3},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {}}}},
        {},
    ],
)
def test_unknown_quantisation_names_the_way_out(tmp_path: Path, about: dict[str, Any]) -> None:
    config = LLAMA | {"quantization_config": {"x": 1, **about}}
    with pytest.raises(FormatError, match=r"\[model\] quantisation"):
        _read(tmp_path, config)
    assert _read(tmp_path, config, quantisation="awq").native_quantisation == "awq"


@pytest.mark.parametrize(
    ("base", "key"),
    [(LLAMA, k) for k in LLAMA if k.endswith(("layers", "size", "attention_heads"))]
    + [(DEEPSEEK, k) for k in ("qk_rope_head_dim", "num_experts_per_tok", "v_head_dim")],
)
def test_missing_keys_are_named(tmp_path: Path, base: dict[str, Any], key: str) -> None:
    with pytest.raises(FormatError, match=rf"{key}.*add"):
        _read(tmp_path, {k: v for k, v in base.items() if k != key})


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size", "head_dim"])
@pytest.mark.parametrize(
    "value", [0, -1, 1.5, 2**31, 1e39, float("nan"), float("inf"), "many", True, [1]], ids=str
)
def test_senseless_numbers_are_refused(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(InputError):
        _read(tmp_path, LLAMA | {key: value})


@given(
    key=st.sampled_from(sorted({*LLAMA, *DEEPSEEK, *GPT_OSS, *QWEN3_MOE})),
    value=st.none() | st.booleans() | st.integers(-3, 300) | st.text(max_size=3),
    base=st.sampled_from([LLAMA, DEEPSEEK, KIMI, GPT_OSS, QWEN3_MOE]),
)
def test_a_spoiled_config_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object, base: dict[str, Any]
) -> None:
    config = {**base, "text_config": {**base.get("text_config", {}), key: value}}
    try:
        model = _read(tmp_path_factory.mktemp("hf"), config)
    except InputError:
        return
    assert model.total_params > 0


@pytest.mark.parametrize("kind", ["mamba2", "zamba2", "gemma3n", "longcat_flash"])
def test_models_of_another_make_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(FormatError, match=kind):
        _read(tmp_path, LLAMA | {"model_type": kind})
    with pytest.raises(FormatError, match="encoder"):
        _read(tmp_path, LLAMA | {"is_encoder_decoder": True})


def test_files_and_names(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert load_model(str(folder)).id == "my-model"
    with pytest.raises(InputError, match="does not exist"):
        load_model(str(tmp_path / "none.json"))
    for text, message in (("{", "not JSON"), ("[1]", "not a JSON object")):
        (folder / "config.json").write_text(text)
        with pytest.raises(FormatError, match=message):
            load_model(str(folder))


@pytest.mark.parametrize(
    ("kind", "tied"), [("cohere", True), ("gemma", True), ("llama", False), ("gpt_neox", False)]
)
def test_a_head_is_tied_as_the_class_has_it(tmp_path: Path, kind: str, tied: bool) -> None:
    assert _read(tmp_path, LLAMA | {"model_type": kind, "head_dim": 128}).tied_embeddings is tied
    said = LLAMA | {"model_type": kind, "head_dim": 128, "tie_word_embeddings": not tied}
    assert _read(tmp_path, said).tied_embeddings is not tied
