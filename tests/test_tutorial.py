"""Every step of the tutorial works, for a user of SGLang and for one of vLLM."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from specsim.cli.main import run

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tutorial.md"
COMMAND = re.compile(r"^\.venv/bin/specsim (.+)$", re.M)


def steps(engine: str) -> list[list[str]]:
    """Commands in the order of the page, with the other engine's files if it is asked for."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    lines = [line for block in blocks for line in COMMAND.findall(block)]
    return [shlex.split(line.replace("sglang", engine)) for line in lines]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_every_step_works(
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    told = {}
    for words in steps(engine):
        assert run(words) == 0, (words, capsys.readouterr().err)
        told[words[0]] = capsys.readouterr().out
    assert {"example", "calibrate", "recommend", "predict", "validate"} <= set(told)
    assert Path("report.html").stat().st_size > 10_000
    assert "Is topk=1 steps=5 worth a GPU hour?" in told["predict"]
    flag = {"sglang": "--speculative-num-steps", "vllm": "--speculative-config"}[engine]
    assert flag in told["recommend"]
    # measured 2 % off: sixteen of sixteen cells within a few per cent of what is predicted
    error = re.search(r"mean absolute error (\S+)%", told["validate"])
    assert error is not None
    assert float(error[1]) < 6.0


def test_samples_are_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["example", "copy", "here"]) == 0
    assert run(["example", "copy", "here"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(["example", "burn", "here"]) == 2
