"""Doors: an engine is one record, hardware and shapes one table each; versions have one home."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import tinyserve

import specsim
from specsim import engine
from specsim.cli.main import run
from specsim.engine import engine_named, engine_names
from specsim.errors import EngineRefusal
from specsim.profile import load_profile
from specsim.server import read_setup, setup_from_mapping, setup_to_mapping
from specsim.server.system import assemble
from specsim.setting import SpecSetting

PACKAGE = Path(specsim.__file__).parent

# --- an engine: one file, and one entry


@pytest.fixture
def _tinyserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.ENGINES, "tinyserve", "tinyserve")


@pytest.mark.usefixtures("_tinyserve")
def test_an_engine_is_one_record() -> None:
    assert engine_named("TinyServe") is tinyserve.ENGINE
    mapping = setup_to_mapping(load_profile().setup)
    mapping["engine"] = {"name": "tinyserve", "version": "3.1.4", "tp": 8}
    system = assemble(setup_from_mapping(mapping))
    chain = system.plan(SpecSetting.of(1, 2))
    assert chain.running_cap == 16
    assert system.kv_pool_tokens(chain) > 0
    assert engine.engine_named(chain.engine).launch_flags(chain, system.engine, None) == [
        "--depth",
        "2",
    ]
    assert engine_named(chain.engine).launch_env(chain) == {}
    with pytest.raises(EngineRefusal, match="no trees"):
        system.plan(SpecSetting.of(2, 2))


@pytest.mark.parametrize("name", engine_names())
def test_a_record_is_filed_under_its_name(name: str) -> None:
    record = engine_named(name)
    assert record.name == name
    for version in (record.newest, *record.other_rules):
        assert engine.parse_version(version)


@pytest.mark.usefixtures("_tinyserve")
@pytest.mark.parametrize(
    "words",
    [
        "predict --topk 1 --steps 2 --engine tinyserve --solver analytic --json --concurrency 1,8",
        "predict --topk 1 --steps 2 --engine tinyserve --model llama-3.1-8b --gpu h100-sxm --tp 1 "
        "--draft eagle3 --solver analytic --json --concurrency 1,8",
        "recommend --set engine=tinyserve --concurrency 1,8 --json",
        "schedule --set engine=tinyserve --json",
    ],
)
def test_commands_take_a_new_engine(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 0
    assert "tinyserve" in json.dumps(json.loads(capsys.readouterr().out))


# --- a version string has one home


def versions_in(path: Path) -> list[str]:
    """Texts of a module that are wholly a version; documentation does not count."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    version = re.compile(r"v?\d+\.\d+\.\d+(\.?(post|rc|dev)\d+)?|b\d{3,}")
    return [text for text in texts if version.fullmatch(text)]


def test_versions_of_engines_stand_in_their_engines_file_only() -> None:
    homes: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        # a log layout is dated where it is described; our own version is ours
        if not name.startswith(("engine/", "logs/")) and name != "__init__.py":
            homes[name] = versions_in(path)
    assert {name: found for name, found in homes.items() if found} == {}


# --- hardware and shapes of one's own: one table each

GPU = """
name = "My card"
link = "nvlink4"
mem_bytes = 96e9
mem_bandwidth = 1.6e12
flops_bf16 = 4e14
"""
LINK = 'kind = "ethernet"\nbytes_per_s = 12e9\n'
MODEL = "layers = 4\nhidden = 256\nvocab = 1000\nheads = 4\nffn_inter = 512\n"
DRAFT = 'kind = "eagle3"\ndraft_vocab = 500\n'
SETUP = """
schema = "specsim.setup/1"
hardware = { gpu = "my-gpu.toml", gpu_count = 2, link = "my-link.toml" }
model = { id = "my-model.toml" }
draft = { id = "my-draft.toml" }
engine = { name = "sglang", version = "0.5.9", tp = 2 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"gpu": GPU, "link": LINK, "model": MODEL, "draft": DRAFT}
    for name, text in texts.items():
        (tmp_path / f"my-{name}.toml").write_text(text)
    (tmp_path / "setup.toml").write_text(SETUP)
    return tmp_path


def test_files_stand_wherever_an_id_does(folder: Path) -> None:
    setup = read_setup(folder / "setup.toml")
    system = assemble(setup)
    assert (system.gpu.id, system.gpu.name) == ("my-gpu", "My card")
    assert {s.source for s in system.gpu.sources} == {"my-gpu.toml"}
    assert (system.link.id, system.link.kind) == ("my-link", "ethernet")
    assert system.cost.target.model.id == "my-model"
    assert system.cost.draft is not None
    assert system.cost.draft.draft.shape.vocab == 500
    assert setup_from_mapping(setup_to_mapping(setup)) == setup  # the GPU travels with it


def test_a_config_stands_for_a_model(folder: Path) -> None:
    config: dict[str, object] = {
        "model_type": "llama",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 1000,
        "intermediate_size": 512,
    }
    config["quantization_config"] = {"quant_method": "odd"}  # the setup says what it is
    (folder / "config.json").write_text(json.dumps(config))
    text = SETUP.replace('id = "my-model.toml"', 'config = "config.json", quantisation = "bf16"')
    (folder / "other.toml").write_text(text)
    one, other = (read_setup(folder / name) for name in ("setup.toml", "other.toml"))
    target = assemble(other).cost.target.model
    assert replace(target, id="my-model", evidence="assumed", source="") == (
        assemble(one).cost.target.model
    )
