"""Launch lines under the releases' own argument parsers (benchmarks/launch_lines.py)."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "launch_lines.py"
WHEELS = os.environ.get("SPECSIM_WHEELS", "")
"""Folder of unpacked wheels, as the script takes it."""

FIELDS = """
class Spec:
    speculative_algorithm: A[Optional[str], "help"] = None
    speculative_draft_model_path: A[str, Arg(aliases=["--speculative-draft-model"])] = None
    speculative_num_steps: A[Optional[int], "help"] = None
    speculative_eagle_topk: A[Optional[int], "help"] = None
    speculative_num_draft_tokens: A[Optional[int], "help"] = None
    max_running_requests: A[Optional[int], "help"] = None
    cuda_graph_max_bs_decode: A[Optional[int], "help"] = None
    cuda_graph_max_bs_prefill: A[Optional[int], "help"] = None
    disable_overlap_schedule: A[bool, "help"] = False
    internal: A[int, Arg(no_cli=True)] = 0
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("launch_lines", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    fields = tmp_path / "sglang/srt/arg_groups/fields"
    fields.mkdir(parents=True)
    (fields / "spec.py").write_text(FIELDS)
    (tmp_path / "sglang/srt/server_args.py").write_text("")
    return tmp_path


def test_a_parser_is_what_its_declarations_say(script: ModuleType, wheel: Path) -> None:
    parser = script.sglang_parser(wheel)
    said = parser.parse_args(["--speculative-draft-model", "a", "--speculative-num-steps", "3"])
    assert (said.speculative_draft_model_path, said.speculative_num_steps) == ("a", 3)
    for words in (["--internal", "1"], ["--speculative-num-steps", "three"]):
        with pytest.raises(script.Refused):
            parser.parse_args(words)
    with pytest.raises(script.Refused, match="ambiguous"):
        parser.parse_args(["--cuda-graph-max-bs", "8"])


def test_lines_of_a_release_without_a_flag_are_refused(script: ModuleType, wheel: Path) -> None:
    taken, refused = script.check("sglang", "0.5.21", wheel)
    assert taken > 20
    assert refused  # of n-gram lookups and tables, whose flags this wheel does not have
    assert all("unrecognized" in line for line in refused)
    assert all("ngram" in line or "adaptive" in line for line in refused)


@pytest.mark.skipif(not WHEELS, reason="SPECSIM_WHEELS names no folder of unpacked wheels")
def test_every_release_takes_every_line(script: ModuleType) -> None:
    for folder in Path(WHEELS).iterdir():
        engine, _, version = folder.name.partition("-")
        if engine in script.PARSERS:
            assert script.check(engine, version, folder)[1] == []
