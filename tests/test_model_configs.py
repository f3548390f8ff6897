"""Configs of public models, written here from public facts: read like the library, or refused.

`tests/configs/` holds the keys that matter of each: dense, experts (routed, shared, fine-grained,
dense first layers), latent and sparse attention, windows and chunks, linear layers, halves of
layers, V4's compressed cache, multimodal wrappers, quantised checkpoints.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import setup_of

from specsim.architecture import ModelArchitecture, load_model, model_from_table, model_names
from specsim.architecture.hf_config import Config, table_of_config
from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.library import read_library
from specsim.server.system import assemble
from specsim.sharding import shard

FOLDER = Path(__file__).parent / "configs"
CONFIGS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
FIGURES = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "figures_models.py"))

NAMED: dict[str, str | None] = {
    "qwen3-32b-fp8": "qwen3-32b",
    "kimi-k2.5-nvfp4": "kimi-k2.5",
    "glm-5": "glm-5.1",
    **dict.fromkeys(("mimo-7b", "step-3.7-flash", "nemotron-4-340b", "gpt2-xl"), None),
    **dict.fromkeys(("opt-66b", "falcon-7b"), None),
}
"""Configs whose library entry has another name, or that have none."""

NAMED |= {"qwen3.5-27b": None, "glm-4.6": "glm-4.7", "qwen3-vl-30b-a3b": "qwen3-30b-a3b"}


def test_there_are_as_many_as_asked_for() -> None:
    assert len(CONFIGS) >= 40
    assert len(model_names()) >= 60


@pytest.mark.parametrize("figure", [*FIGURES["figures"]()], ids=lambda f: f"{f.model}-{f.what}")
def test_shapes_agree_with_published_figures(figure: Any) -> None:
    assert figure.ours == pytest.approx(figure.published, rel=FIGURES["TARGET"])


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    FIGURES["main"]()
    page = Path(__file__).parents[1] / "docs" / "validation" / "models.md"
    assert capsys.readouterr().out.rstrip() in page.read_text()


def sizes(model: ModelArchitecture) -> tuple[float, ...]:
    """What a step costs by, as far as the shape says."""
    part = shard(model, "bf16")
    read = [part.attention_work(context) for context in (100.0, 10_000.0, 300_000.0)]
    numbers = (model.total_params, model.active_params, model.kv_bytes_per_token(), model.depth)
    return (*numbers, part.state_bytes_per_request, *(x for pair in read for x in pair))


def shape(config: dict[str, Any], folder: Path) -> ModelArchitecture:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return load_model(str(file))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_read_as_the_library_has_it(name: str) -> None:
    read = load_model(str(FOLDER / f"{name}.json"))
    assert read.total_params > read.active_params * 0.99
    entry = NAMED.get(name, name)
    if entry is not None:
        assert sizes(read) == pytest.approx(sizes(load_model(entry)), rel=1e-12)


OPTIONAL = {
    # what a config may be silent about, for then the model has none of it, or it is only said twice
    *("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
    *("moe_latent_size", "routed_expert_hidden_size", "mla_use_output_gate"),
    *("tie_word_embeddings", "quantization_config", "expert_dtype", "sliding_window"),
}
CLASS_RULE = {"mistral-nemo": "head_dim", "mistral-small-24b": "head_dim"}  # hidden / heads


@given(data=st.data())
def test_no_dimension_has_a_silent_default(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without a key a config is refused, or means the same: nothing is filled in."""
    name = data.draw(st.sampled_from(sorted(CONFIGS)))
    config = CONFIGS[name]
    inner = config.get("text_config", config)
    key = data.draw(st.sampled_from(sorted({*inner} - OPTIONAL)))
    if CLASS_RULE.get(name) == key:
        return
    rest = {k: v for k, v in inner.items() if k != key}
    folder = tmp_path_factory.mktemp("hf")
    try:
        read = shape({**config, "text_config": rest} if inner is not config else rest, folder)
    except InputError as error:
        named = str(error)
    else:
        assert sizes(read) == pytest.approx(sizes(shape(config, folder)), rel=1e-12)
        return
    assert key in named or "has no key" in named


JUNK: list[object] = [
    *(None, True, False, 0, -1, 1, 2.5, 1e308, 10**12, "", "auto", "LLLG", "M*E-", [], [1], [[1]]),
    *({}, {"a": 1}, {"full_attn_layers": ["x"]}, [0, 1] * 30, ["conv"] * 48, [None] * 48),
]


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    key=st.sampled_from(sorted({k for c in CONFIGS.values() for k in c.get("text_config", c)})),
    value=st.sampled_from(JUNK),
)
def test_a_spoiled_config_is_read_or_refused(name: str, key: str, value: object) -> None:
    config = json.loads(json.dumps(CONFIGS[name]))
    config.get("text_config", config)[key] = value
    try:
        read = Config("config.json", config)
        model = model_from_table(read.shape(), "x")
        read.refuse_what_is_left()
    except InputError:
        return
    assert shard(model, "bf16").attention_work(1e4)[0] >= 0


UNHEARD = (
    *("num_memory_slots", "index_topk_v2", "cross_attention_layers", "expert_width", "ffn_dims"),
    *("kv_share_groups", "engram_layer_ids", "num_shared_kv_layers", "hidden_size_per_layer"),
)


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    key=st.sampled_from(UNHEARD),
    value=st.integers(2, 64) | st.lists(st.integers(1, 9), min_size=1),
)
def test_a_key_that_is_not_understood_is_named(name: str, key: str, value: object) -> None:
    config = json.loads(json.dumps(CONFIGS[name]))
    config.get("text_config", config)[key] = value
    read = Config("config.json", config)
    read.shape()
    with pytest.raises(FormatError, match=key):
        read.refuse_what_is_left()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attention_gate_width": True}, "attention_gate_width"),
        ({"use_cla": True, "cla_share_factor": 2}, "cla_share_factor"),
        ({"layer_types": ["retrieval_attention"] * 32}, "retrieval_attention"),
        ({"layer_types": ["full_attention"] * 31}, "layer_types"),
        ({"num_hidden_layers": 10**8}, "more than any model"),
        (
            {"model_type": "glm4_moe_lite", "mlp_layer_types": ["dense"] * 31 + ["odd"]},
            "odd|has no key",
        ),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window"),
        ({"linear_attn_config": {"window_heads": 3}}, "window_heads"),
        ({"model_type": "glm9_moe"}, "glm9_moe.*did you mean 'glm4_moe'"),
        ({"model_type": ""}, "model_type"),
        ({"num_key_value_heads": None, "model_type": "llama"}, ""),
        ({"attn_pdrop": 0.1, "rope_scaling": {"factor": 8.0}, "new_scale": 0.3}, ""),
        ({"num_local_experts": 8}, "num_local_experts"),
    ],
)
def test_what_a_family_does_not_have_is_named(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    config = {**CONFIGS["llama-3.1-8b"], **change}
    if not named:
        assert shape(config, tmp_path).layers == 32
        return
    with pytest.raises((FormatError, UnknownNameError), match=named):
        shape(config, tmp_path)


def test_null_kv_heads_are_as_many_as_heads(tmp_path: Path) -> None:
    config = {**CONFIGS["llama-3.1-8b"], "num_key_value_heads": None}
    assert shape(config, tmp_path).kv_heads == 32


def test_a_list_that_is_null_says_nothing(tmp_path: Path) -> None:
    """As GLM-4.7-Flash's class has it: null stands for one dense layer, which is not guessed."""
    config = {**CONFIGS["glm-4.7-flash"], "mlp_layer_types": None}
    assert shape(config, tmp_path).dense_layers == 1
    del config["first_k_dense_replace"]
    with pytest.raises(FormatError, match="first_k_dense_replace"):
        shape(config, tmp_path)


def test_a_number_that_stands_for_no_limit_is_read(tmp_path: Path) -> None:
    config = {**CONFIGS["nemotron-3-nano"], "time_step_limit": [0.0, 1e308]}
    assert shape(config, tmp_path).layers == 52


# --- names


@pytest.mark.parametrize(
    ("written", "id", "scheme", "kv"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", "fp8", "fp8"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", "fp8", ""),
        ("nvidia/Kimi-K2.5-NVFP4", "kimi-k2.5", "nvfp4-experts", "fp8"),
        ("somebody/GLM-5.1-FP4", "glm-5.1", "nvfp4-experts", ""),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b", "fp8", ""),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama-3.1-8b", "int8", ""),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "gptq", ""),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "w8a16", ""),
        ("mlx-community/Llama-3.3-70B-Instruct-4bit", "llama-3.3-70b", "mlx-4bit", ""),
        ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "llama-3.3-70b", "nf4-double", ""),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", "awq", ""),
        ("DeepSeek V3.2", "deepseek-v3.2", "fp8-block", ""),
        ("llama 3.1 8b instruct", "llama-3.1-8b", "bf16", ""),
        ("GLM_4.7", "glm-4.7", "bf16", ""),
    ],
)
def test_names_as_people_write_them(written: str, id: str, scheme: str, kv: str) -> None:
    model = load_model(written)
    assert (model.id, model.native_quantisation, model.kv_dtype) == (id, scheme, kv)


def test_a_name_that_is_not_sure_is_not_guessed() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'qwen3-4b'"):
        load_model("Qwen/Qwen4-4B")
    with pytest.raises(UnknownNameError, match=r"'qwen3\.5-2b'"):  # not qwen2.5-3b
        load_model("Qwen/Qwen3.5-2B")
    names = [*read_library("models")]
    for id, table in read_library("models").items():
        for alias in table.get("aliases", []):  # type: ignore[attr-defined]
            assert load_model(str(alias)).id == id
        names.remove(id)
    assert not names


def test_a_repository_is_found_in_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    home = tmp_path / "models--acme--My-8B" / "snapshots" / "0a1b"
    home.mkdir(parents=True)
    (home / "config.json").write_text(json.dumps(CONFIGS["llama-3.2-1b"]))
    model = load_model("acme/My-8B")
    assert (model.id, model.layers) == ("My-8B", 16)
    for name in ("acme/Other-8B", "../../etc", "acme/*"):
        with pytest.raises(UnknownNameError):
            load_model(name)


def test_the_hub_is_asked_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for huggingface_hub: its function, and the error it has for no network."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama-3.2-1b"]))
    code = """
import pathlib
def hf_hub_download(repo, file):
    if repo != "acme/Fresh-1B":
        raise OSError("no network")
    return pathlib.Path(__file__).with_name(file)
"""
    (tmp_path / "huggingface_hub.py").write_text(code)
    monkeypatch.delitem(sys.modules, "huggingface_hub", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_model("acme/Fresh-1B").id == "Fresh-1B"
    with pytest.raises(UnknownNameError):
        load_model("acme/Stale-1B")
    sys.modules.pop("huggingface_hub", None)


def test_an_automatic_kv_type_is_that_of_the_checkpoint() -> None:
    def kv_bytes(model: str, **engine: object) -> float:
        return assemble(setup_of(model, "h100-sxm", **engine)).cost.target.kv_dtype_bytes

    fp8 = "nvidia/Llama-3.1-8B-Instruct-FP8"
    assert kv_bytes(fp8, kv_dtype="auto") == 1.0
    assert kv_bytes(fp8, kv_dtype="bf16") == kv_bytes("llama-3.1-8b", kv_dtype="auto") == 2.0


def test_an_entry_is_as_the_reader_would_write_it() -> None:
    _, table = table_of_config(FOLDER / "nemotron-3-super.json")
    assert sizes(model_from_table(table, "x")) == pytest.approx(
        sizes(load_model("nemotron-3-super"))
    )
