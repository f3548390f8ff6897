"""setup.toml: the contract's example, round trips, and one clear line for whatever is wrong."""

from __future__ import annotations

import copy
import pickle
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.engine import EngineSpec
from specsim.errors import FormatError, InputError, SpecsimError, UnknownNameError
from specsim.hardware import Gpu, gpu_from_table
from specsim.server import (
    HardwareSpec,
    ModelSpec,
    Setup,
    SourceSpec,
    read_setup,
    setup_from_mapping,
    setup_to_mapping,
)
from specsim.setting import SpecSetting
from specsim.workload import Lengths, Workload

# The founding server, as the format's own description gives it.
EXAMPLE = """\
schema = "specsim.setup/1"
[hardware]
gpu = "rtx-pro-6000"
gpu_count = 8
link = "pcie5-x16"
allreduce = "fused"
[model]
id = "kimi-k2.5"
quantisation = "int4-experts"
[draft]
id = "kimi-k2.5-eagle3"
[engine]
name = "sglang"
version = "0.5.9"
tp = 8
dp = 1
ep = 1
attention_backend = "flashinfer"
kv_dtype = "bf16"
max_running_requests = 48
cuda_graph_max_bs = 128
mem_fraction_static = 0.88
kv_tokens = 190000
chunked_prefill_size = 8192
page_size = 1
[workload]
input_len = 1024
output_len = 512
input_cached = 0
dataset = "coding/agentic"
temperature = 0.0
evidence = "assumed"
[current]
algorithm = "EAGLE3"
topk = 1
num_steps = 2
num_draft_tokens = 3
scheduler = "overlap"
[source]
text = "..."
date = "2026-02-01"
"""

MINIMAL: dict[str, Any] = {
    "schema": "specsim.setup/1",
    "hardware": {"gpu": "h100-sxm"},
    "model": {"id": "llama-3.1-8b"},
    "engine": {"name": "vllm", "version": "0.33.0"},
}

OWN_GPU: dict[str, object] = {"mem_bytes": 96e9, "mem_bandwidth": 1.6e12, "flops_bf16": 4e14}

Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> dict[str, Any]:
    mapping = tomllib.loads(EXAMPLE)
    change(mapping)
    return mapping


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "setup.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_example_of_the_format(tmp_path: Path) -> None:
    setup = read_setup(write(tmp_path, EXAMPLE))
    assert setup.hardware == HardwareSpec("rtx-pro-6000", 8, "pcie5-x16", "fused")
    assert setup.model == ModelSpec(id="kimi-k2.5", quantisation="int4-experts")
    assert setup.draft is not None
    assert setup.draft.id == "kimi-k2.5-eagle3"
    assert setup.engine.max_running_requests == 48
    assert setup.engine.mem_fraction_static == 0.88
    assert setup.current == SpecSetting("EAGLE3", 1, 2, 3, "overlap")
    assert setup.workload.output_len.mean == 512
    assert setup.source == SourceSpec("...", "2026-02-01")


def test_what_is_left_out_is_the_engines_default() -> None:
    setup = setup_from_mapping(MINIMAL)
    assert setup == Setup(
        HardwareSpec("h100-sxm"), ModelSpec(id="llama-3.1-8b"), EngineSpec("vllm", "0.33.0")
    )
    assert setup.draft is None
    assert setup.current is None
    assert setup.engine.max_running_requests is None
    assert setup.workload.evidence == "assumed"


def test_an_empty_text_is_a_key_left_out() -> None:
    mapping = copy.deepcopy(MINIMAL)
    mapping["engine"] |= {"max_running_requests": "", "kv_tokens": "  ", "attention_backend": ""}
    mapping["current"] = {"algorithm": "none", "topk": "", "num_steps": "", "scheduler": ""}
    setup = setup_from_mapping(mapping)
    assert setup.engine == EngineSpec("vllm", "0.33.0")
    assert setup.current == SpecSetting.none()


@pytest.mark.parametrize(
    ("current", "setting"),
    [
        ({"algorithm": "none"}, SpecSetting.none()),
        ({"algorithm": "none", "topk": 1, "num_steps": 0, "num_draft_tokens": 1}, None),
        ({"algorithm": "None", "topk": 0, "num_steps": 0, "num_draft_tokens": 0}, None),
        ({"algorithm": "nextn", "num_steps": 3}, SpecSetting("MTP", 1, 3, 4)),
        ({"algorithm": "EAGLE", "topk": 2, "num_steps": 2}, SpecSetting("EAGLE", 2, 2, 7)),
    ],
)
def test_current_setting_is_normalised(
    current: dict[str, Any], setting: SpecSetting | None
) -> None:
    setup = setup_from_mapping(MINIMAL | {"current": current})
    assert setup.current == (setting or SpecSetting.none())


def test_measured_allreduce_is_sorted_by_bytes_and_round_trips(tmp_path: Path) -> None:
    text = EXAMPLE.replace('"fused"', '{"65536" = 81e-6, "4096" = 35e-6}')
    setup = read_setup(write(tmp_path, text))
    assert setup.hardware.allreduce == ((4096, 35e-6), (65536, 81e-6))
    assert setup_from_mapping(setup_to_mapping(setup)) == setup


def test_gpu_may_be_a_table_with_evidence(tmp_path: Path) -> None:
    table = (
        "{mem_bytes = 96e9, flops_bf16 = 4e14,"
        ' mem_bandwidth = {value = 1.6e12, evidence = "measured"}}'
    )
    setup = read_setup(write(tmp_path, EXAMPLE.replace('"rtx-pro-6000"', table)))
    gpu = setup.hardware.gpu
    assert isinstance(gpu, Gpu)
    assert (gpu.mem_bytes, gpu.mem_bandwidth) == (96e9, 1.6e12)
    assert gpu.evidence_of("mem_bandwidth") == "measured"
    assert setup_to_mapping(setup)["hardware"]["gpu"]["mem_bytes"] == 96e9
    assert setup_from_mapping(setup_to_mapping(setup)) == setup
    assert pickle.loads(pickle.dumps(setup)) == setup
    assert hash(setup) == hash(copy.deepcopy(setup))


def test_relative_config_counts_from_the_file(tmp_path: Path) -> None:
    text = EXAMPLE.replace('id = "kimi-k2.5"\n', 'config = "model/config.json"\n')
    setup = read_setup(write(tmp_path, text))
    assert setup.model.config == str(tmp_path / "model" / "config.json")
    absolute = text.replace("model/config.json", "/srv/config.json")
    assert read_setup(write(tmp_path, absolute)).model.config == "/srv/config.json"


def test_toml_date_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    text = "\ufeff" + EXAMPLE.replace('"2026-02-01"', "2026-02-01").replace("\n", "\r\n")
    path = tmp_path / "setup.toml"
    path.write_bytes(text.encode("utf-8"))
    assert read_setup(path).source.date == "2026-02-01"


@pytest.mark.parametrize(
    ("change", "error", "parts"),
    [
        # a misspelt key names the nearest one, and a misplaced one its section
        (lambda m: m["engine"].update(max_runing_requests=4), UnknownNameError,
         ("[engine]", "'max_runing_requests'", "did you mean 'max_running_requests'")),
        (lambda m: m["hardware"].update(tp=8), UnknownNameError, ("'tp'", "[engine]")),
        (lambda m: m.update(gpu_count=8), UnknownNameError, ("'gpu_count'", "[hardware]")),
        (lambda m: m.update(harware=m.pop("hardware")), UnknownNameError,
         ("'harware'", "did you mean 'hardware'")),
        (lambda m: m["engine"].update(name="sglan"), UnknownNameError, ("name", "'sglang'")),
        (lambda m: m["hardware"].update(allreduce="ncl"), UnknownNameError, ("'nccl'",)),
        (lambda m: m["workload"].update(evidence="guess"), UnknownNameError, ("published",)),
        (lambda m: m["current"].update(scheduler="v2"), UnknownNameError, ("overlap",)),
        (lambda m: m["current"].update(algorithm="EAGLE9"), UnknownNameError, ("[current]",)),
        # what is missing
        (lambda m: m.pop("model"), FormatError, ("[model]", "missing")),
        (lambda m: m.pop("hardware"), FormatError, ("[hardware]", "missing")),
        (lambda m: m["engine"].pop("version"), FormatError, ("[engine] version", "missing")),
        (lambda m: m["engine"].update(version=""), FormatError, ("[engine] version", "missing")),
        (lambda m: m.update(model={}), FormatError, ("[model]", "id or config")),
        (lambda m: m["model"].update(config="c.json"), FormatError, ("either id or config",)),
        (lambda m: m.update(current={"topk": 1}), FormatError, ("[current] algorithm",)),
        (lambda m: m["current"].pop("num_steps"), FormatError, ("[current]", "steps")),
        # numbers out of range or not numbers
        (lambda m: m["hardware"].update(gpu_count=-8), FormatError, ("gpu_count = -8", "1")),
        (lambda m: m["hardware"].update(gpu_count=8.0), FormatError, ("gpu_count = 8.0",)),
        (lambda m: m["engine"].update(tp=True), FormatError, ("tp = True", "integer")),
        (lambda m: m["engine"].update(kv_tokens="190k"), FormatError, ("kv_tokens = '190k'",)),
        (lambda m: m["engine"].update(kv_tokens=10**5000), FormatError, ("kv_tokens",)),
        (lambda m: m["engine"].update(mem_fraction_static=88), FormatError, ("0.88, not 88",)),
        (lambda m: m["engine"].update(version=0.5), FormatError, ("version = 0.5", "quotes")),
        (lambda m: m["workload"].update(input_len=float("nan")), FormatError, ("nan", "finite")),
        (lambda m: m["workload"].update(output_len=float("inf")), FormatError, ("inf", "finite")),
        (lambda m: m["workload"].update(output_len=0), FormatError, ("output_len = 0",)),
        (lambda m: m["workload"].update(temperature=-1), FormatError, ("temperature = -1",)),
        (lambda m: m["workload"].update(input_cached=5000), FormatError, ("[workload]", "1024")),
        (lambda m: m["workload"].update(output_len_cv=11), FormatError, ("[workload]", "cv")),
        (lambda m: m["model"].update(weight_bytes=0), FormatError, ("weight_bytes = 0",)),
        (lambda m: m["model"].update(weight_bytes=10**400), FormatError, ("weight_bytes",)),
        (lambda m: m["current"].update(topk=-1), FormatError, ("topk = -1",)),
        (lambda m: m["current"].update(topk=4, num_draft_tokens=99), FormatError, ("21",)),
        (lambda m: m["current"].update(algorithm="none"), FormatError, ("1, steps 0",)),
        # tables and texts in each other's place
        (lambda m: m.update(model="kimi-k2.5"), FormatError, ("[model]", "table")),
        (lambda m: m["hardware"].update(gpu=6000), FormatError, ("gpu", "6000", "table")),
        (lambda m: m["hardware"].update(gpu=OWN_GPU | {"mem_bytes": float("inf")}), FormatError,
         ("mem_bytes = inf", "finite")),
        (lambda m: m["hardware"].update(gpu=OWN_GPU | {"mem_bytes": [1]}), FormatError,
         ("mem_bytes",)),
        (lambda m: m["hardware"].update(allreduce={}), FormatError, ("allreduce",)),
        (lambda m: m["hardware"].update(allreduce={"4k": 1e-5}), FormatError, ("4k", "bytes")),
        (lambda m: m["hardware"].update(allreduce={"4096": -1e-5}), FormatError, ("seconds",)),
        (lambda m: m["source"].update(date=7), FormatError, ("date = 7", "quotes")),
        # schemas
        (lambda m: m.pop("schema"), FormatError, ("schema", "missing")),
        (lambda m: m.update(schema="specsim.curve/1"), FormatError, ("specsim.setup/1",)),
        (lambda m: m.update(schema=1), FormatError, ("specsim.setup/1",)),
        (lambda m: m.update(schema="specsim.setup/2"), FormatError,
         ("written by a newer specsim; upgrade specsim",)),
    ],
)  # fmt: skip
def test_one_line_names_the_file_the_key_and_the_remedy(
    change: Change, error: type[SpecsimError], parts: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        setup_from_mapping(changed(change), "box.toml")
    message = str(caught.value)
    assert message.startswith("box.toml: ")
    assert "\n" not in message
    assert len(message) < 300
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"\xff\xfe[\x00m\x00", "not UTF-8"),
        (b"schema = \"specsim.setup/1\"\n\x00\x01", "binary"),
        (b"\x1f\x8b\x08\x00\xb4", "not UTF-8"),
        (b"schema = ", "not TOML"),
        (b"[model]\n[model]\n", "not TOML"),
        (b"x = " + b"[" * 100_000, "nested too deep"),
        (b"x = " + b"9" * 5000, "not TOML"),
        (b"#" * 5_000_001, "longer than 5 MB"),
    ],
)  # fmt: skip
def test_files_that_are_no_setup(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "setup.toml"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=part) as caught:
        read_setup(path)
    assert str(path) in str(caught.value)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is a directory"):
        read_setup(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        read_setup(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="cannot be read"):
        read_setup(write(tmp_path, EXAMPLE) / "below.toml")
    with pytest.raises(InputError, match="cannot be read"):
        read_setup("nul\0byte")


positive = st.floats(1e-3, 1e9)
counts = st.integers(1, 10**6)
words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)
setups = st.builds(
    Setup,
    hardware=st.builds(
        HardwareSpec,
        gpu=words | st.just(gpu_from_table(OWN_GPU | {"name": "x"})),
        gpu_count=counts,
        link=words,
        allreduce=st.sampled_from(["nccl", "custom", "fused", "symmetric"])
        | st.dictionaries(counts, positive, min_size=1).map(lambda d: tuple(sorted(d.items()))),
    ),
    model=st.builds(
        ModelSpec,
        id=words,
        quantisation=st.none() | words,
        weight_bytes=st.none() | st.floats(1, 1e12),
    ),
    engine=st.builds(
        EngineSpec,
        name=st.sampled_from(["sglang", "vllm", "tensorrt-llm", "llama.cpp"]),
        version=st.sampled_from(["0.5.9", "0.5.12.post1", "b4567", "main"]),
        tp=counts,
        kv_tokens=st.none() | counts,
        mem_fraction_static=st.none() | st.floats(0.01, 1.0),
    ),
    workload=st.builds(
        Workload,
        st.builds(Lengths, st.floats(0, 1e6)),
        st.builds(Lengths, st.floats(1, 1e6), st.floats(0, 10)),
    ),
    current=st.none()
    | st.builds(SpecSetting.of, topk=st.integers(1, 8), num_steps=st.integers(1, 8))
    | st.just(SpecSetting.none("sequential")),
)


@settings(deadline=None)  # the first call builds the schema
@given(setups)
def test_a_mapping_reads_back_to_the_same_setup(setup: Setup) -> None:
    assert setup_from_mapping(setup_to_mapping(setup)) == setup


texts = st.text("a0 \n'é", max_size=6)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
SECTIONS = ["hardware", "model", "draft", "engine", "workload", "current", "source"]


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from([*SECTIONS, "x"]), json_like),
    st.dictionaries(
        st.sampled_from(["gpu", "gpu_count", "allreduce", "id", "tp", "version", "topk"]), json_like
    ),
    st.sampled_from(SECTIONS),
)
def test_anything_is_either_a_setup_or_an_error_of_ours(
    junk: dict[str, Any], keys: dict[str, Any], section: str
) -> None:
    mapping = tomllib.loads(EXAMPLE) | junk
    if isinstance(mapping[section], dict):
        mapping[section] |= keys
    try:
        setup = setup_from_mapping(mapping, "box.toml")
    except InputError:
        return
    assert setup_from_mapping(setup_to_mapping(setup)) == setup


@pytest.mark.parametrize("name", ["vLLM", "SGLang", "TensorRT-LLM", " llama.CPP "])
def test_an_engine_is_known_in_any_case(name: str) -> None:
    mapping = {
        "schema": "specsim.setup/1",
        "hardware": {"gpu": "h100-sxm"},
        "model": {"id": "llama-3.1-8b"},
        "engine": {"name": name, "version": "main"},
    }
    assert setup_from_mapping(mapping).engine.name == name.strip().lower()
