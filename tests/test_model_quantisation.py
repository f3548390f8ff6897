"""What a checkpoint is quantised to, as the tables of the tools say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_model_configs import CONFIGS, FOLDER, JUNK, shape

from specsim.architecture import load_model
from specsim.errors import FormatError
from specsim.quantisation import load_quantisation, scheme_of_config


def test_a_quantised_checkpoint_states_its_weights_and_cache(tmp_path: Path) -> None:
    kimi = load_model(str(FOLDER / "kimi-k2.5-nvfp4.json"))
    assert (kimi.native_quantisation, kimi.kv_dtype) == ("nvfp4-experts", "fp8")
    assert load_model(str(FOLDER / "qwen3-32b-fp8.json")).kv_dtype == "fp8"
    v4 = load_model(str(FOLDER / "deepseek-v4-pro.json"))
    assert v4.native_quantisation == "mxfp4-experts-fp8"
    # ModelOpt's older checkpoints say it in a file beside the config
    beside = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    read = shape(CONFIGS["llama-3.1-8b"], tmp_path)
    assert (read.native_quantisation, read.kv_dtype) == ("nvfp4", "fp8")
    assert load_model(str(tmp_path), "bf16").kv_dtype == ""


@pytest.mark.parametrize(
    ("about", "scheme", "kv"),
    [
        ({"quant_method": "fp8", "expert_dtype": "fp4"}, "mxfp4-experts-fp8", ""),
        ({"quant_method": "w4afp8"}, "int4-experts-fp8", ""),
        ({"quant_method": "auto-round", "bits": 4}, "gptq", ""),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}},
            "mxfp4",
            "",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
            "fp8",
            "fp8",
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.3.mlp.experts": {"quant_algo": "W4A16_NVFP4"},
                    "model.layers.3.mlp.shared_expert.up_proj": {"quant_algo": "W4A16_NVFP4"},
                    "model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
                },
            },
            "nvfp4-experts-fp8",
            "",
        ),
    ],
)
def test_quantised_checkpoints(tmp_path: Path, about: dict[str, Any], scheme: str, kv: str) -> None:
    read = shape({**CONFIGS["mixtral-8x7b"], "quantization_config": about}, tmp_path)
    assert (read.native_quantisation, read.kv_dtype) == (scheme, kv)
    groups = {"a": {"weights": {"num_bits": 8, "type": "float"}}, "b": {"weights": {"num_bits": 4}}}
    mixed = {"quant_method": "compressed-tensors", "config_groups": groups}
    with pytest.raises(FormatError, match="quantisation"):
        shape({**CONFIGS["mixtral-8x7b"], "quantization_config": mixed}, tmp_path)


ATTENTION = [
    f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(32) for part in "qkvo"
]


def tensors(kind: str, bits: int, **more: object) -> dict[str, Any]:
    """A group of compressed-tensors, whose activations are compressed too."""
    weights = {"type": kind, "num_bits": bits, **more}
    return {"weights": weights, "input_activations": {"num_bits": 8}}


@pytest.mark.parametrize(
    ("method", "about", "dense", "routed"),
    [
        # attention left in bf16, in each tool's words: said of all layers, of each, of too few
        ("fbgemm_fp8", {"modules_to_not_convert": ["lm_head", *ATTENTION]}, "fp8-ffn", ""),
        ("fp8", {"modules_to_not_convert": ATTENTION[:8]}, "fp8", "fp8"),
        ("fp8", {"modules_to_not_convert": ["visual.blocks.0.attn.qkv"]}, "fp8", "fp8"),
        ("awq", {"bits": 4, "modules_to_not_convert": ["self_attn"]}, "awq-ffn", "awq-experts"),
        ("gptq", {"bits": 4, "dynamic": {"-:.*self_attn.*": {}}}, "gptq-ffn", "gptq-experts"),
        (
            "auto-round",
            {"bits": 4, "extra_config": {a: {"bits": 16} for a in ATTENTION}},
            "gptq-ffn",
            "",
        ),
        ("auto-round", {"bits": 4, "extra_config": {"lm_head": {"bits": 8}}}, "gptq", "gptq"),
        # several schemes in one checkpoint
        (
            "compressed-tensors",
            {
                "config_groups": {
                    "a": {**tensors("float", 4, group_size=16), "targets": ["re:.*mlp.*"]},
                    "b": {**tensors("float", 8), "targets": ["re:.*self_attn.*"]},
                }
            },
            "nvfp4-ffn-fp8",
            "nvfp4-experts-fp8",
        ),
        (
            "quark",
            {
                "global_quant_config": {"weight": {"dtype": "fp4"}},
                "layer_quant_config": {"*self_attn*": {"weight": {"dtype": "fp8_e4m3"}}},
            },
            "mxfp4-ffn-fp8",
            "mxfp4-experts-fp8",
        ),
        ("gptq", {"bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}}, None, None),
        # weights that are unpacked before the product
        (
            "compressed-tensors",
            {"config_groups": {"a": {"weights": {"type": "int", "num_bits": 8}}}},
            "w8a16",
            "",
        ),
        ("compressed-tensors", {"config_groups": {"a": tensors("int", 8)}}, "int8", "int8"),
        ("gptq", {"bits": 8}, "w8a16", "w8a16"),
        # other tools
        (
            "bitsandbytes",
            {"load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            "nf4-double",
            "",
        ),
        ("bitsandbytes", {"load_in_8bit": True}, "int8", "int8"),
        ("", {"bits": 4, "group_size": 64}, "mlx-4bit", "mlx-4bit"),
        ("", {"bits": 4, "group_size": 64, "lm_head": {"bits": 6}}, "mlx-4bit", "mlx-4bit"),
        ("", {"bits": 4, "group_size": 32, "mode": "mxfp4"}, "mxfp4", "mxfp4"),
        ("", {"bits": 4, "group_size": 48}, None, None),
        ("modelopt", {"quant_algo": "W4A8_AWQ"}, "w4a8", "w4a8"),
        ("modelopt", {"quant_algo": "MXFP8"}, "mxfp8", "mxfp8"),
        ("modelopt", {"quant_algo": "NEW_ALGO"}, None, None),
        ("hqq", {"nbits": 4}, None, None),
    ],
)
def test_what_a_checkpoint_compresses(
    tmp_path: Path, method: str, about: dict[str, Any], dense: str | None, routed: str | None
) -> None:
    """Of a dense model and of one with experts: the scheme, or a refusal that names the kind."""
    about = {**about, **({"quant_method": method} if method else {})}
    for name, scheme in (("llama-3.1-8b", dense), ("mixtral-8x7b", routed)):
        config = {**CONFIGS[name], "quantization_config": about}
        if scheme is None:
            with pytest.raises(FormatError, match="quantization_config"):
                shape(config, tmp_path)
        elif scheme:
            assert shape(config, tmp_path).native_quantisation == scheme


TOOLS = ("compressed-tensors", "gptq", "quark", "modelopt", "auto-round", "", "fp8", 5, None)
TABLES = ("ignore", "config_groups", "quantized_layers", "dynamic", "extra_config", "bits")


@given(
    method=st.sampled_from(TOOLS),
    about=st.dictionaries(
        st.sampled_from((*TABLES, "layer_quant_config", "global_quant_config")),
        st.sampled_from(JUNK) | st.dictionaries(st.text(max_size=4), st.sampled_from(JUNK)),
    ),
)
def test_any_table_of_a_tool_is_read_or_none(method: object, about: dict[str, Any]) -> None:
    scheme, _ = scheme_of_config({**about, "quant_method": method}, 32, routed=True)
    assert not scheme or load_quantisation(scheme)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("qwen3:32b", "q4_k_m"),  # Ollama's tags: Q4_K_M where they name nothing else
        ("llama3.1:8b-instruct-q8_0", "q8_0"),
        ("gpt-oss:20b", "mxfp4-experts"),  # published so
    ],
)
def test_tags_of_ollama(name: str, scheme: str) -> None:
    assert load_model(name).native_quantisation == scheme


def test_a_path_in_a_cache_names_its_repository() -> None:
    path = "/root/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e"
    assert load_model(path).id == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"quant_method": "modelopt", "quant_algo": "W2A16"}, "modelopt W2A16"),
        ({"quant_method": "auto-round", "bits": 2}, "auto-round 2"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8}}},
                "sparsity_config": {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"},
            },
            "2:4 sparse weights",
        ),
    ],
)
def test_weights_that_are_not_modelled_are_refused_by_name(
    tmp_path: Path, about: dict[str, Any], words: str
) -> None:
    config = json.loads((FOLDER / "llama-3.1-8b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": about}))
    with pytest.raises(FormatError, match=words):
        load_model(str(tmp_path / "config.json"))
