"""What is printed: every number also stands in ``--json``, and no line is wider than asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_verdict import SYSTEMS, random_profile
from test_verdict import systems as systems  # a fixture

from specsim.cli.main import run
from specsim.profile import save_profile
from specsim.report import amount

NUMBER = re.compile(r"\d+(?:\.\d+)?")
RULE = {"90", "75"}
"""Per cent of intervals and of the threshold, which the glossary has."""
LOADS = "--concurrency 1,4,16,64,128"
FEW = "--max-draft-tokens 16 --max-steps 6 --max-topk 4"
COMMANDS = (
    f"predict -p P --topk 2 --steps 2 --solver analytic {LOADS}",
    f"predict -p P 2,2,5 3,1,4 --solver analytic --full {LOADS}",
    f"recommend -p P {LOADS} {FEW}",
    f"recommend -p P --full {LOADS} {FEW}",
    f"recommend -p P {LOADS} {FEW} --slo tpot=20ms --gpu-hour-price 2.5",
    f"recommend -p P {FEW} --mix 1:0.5,16:0.5",
    "schedule -p P --load burst:0.2..2/s,10s/20s@60s --repeats 2",
    f"breakeven -p P --topk 2 --steps 2 {LOADS}",
    "plan -p P --concurrency 1,16",
    f"compare P --set accept_length=2.6 {LOADS}",
)


def leaves(value: Any) -> Iterator[Any]:
    """Keys and values of a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def shown(value: float) -> set[str]:
    """How a number may be printed: as it is, in per cent, in thousandths, in GB; its complement."""
    scaled = [abs(value) * scale for scale in (1.0, 100.0, 1e3, 1e-9)]
    texts = {form.format(x) for x in scaled for form in ("{:.0f}", "{:.1f}", "{:.2f}", "{:.3g}")}
    return texts | {amount(x) for x in scaled} | {f"{100 * (1 - value):.0f}"}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("seed", range(max(1, SYSTEMS // 3)))
def test_no_number_is_printed_that_the_document_has_not(
    systems: ModuleType,
    seed: int,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = str(tmp_path / "p.toml")
    save_profile(random_profile(systems, seed), profile)
    words = [profile if word == "P" else word for word in command.split()]
    assert run(words) == 0
    told = capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    known = set(RULE)
    for leaf in leaves(json.loads(capsys.readouterr().out)):
        if isinstance(leaf, str):
            known |= set(NUMBER.findall(leaf))
        elif isinstance(leaf, int | float):
            known |= shown(float(leaf))
    places = [told[max(0, m.start() - 40) : m.end() + 20] for m in NUMBER.finditer(told)]
    numbers = NUMBER.findall(told)
    unknown = [place for n, place in zip(numbers, places, strict=True) if n not in known]
    assert len(numbers) > 10
    assert not unknown


@pytest.mark.parametrize("columns", [80, 100])
def test_no_line_is_wider_than_the_terminal(
    columns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a fit and its check; the words of a table are broken, no number is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(["example", "copy", "sample"]) == 0
    capsys.readouterr()
    logs = "sample/sglang-none.log sample/sglang-spec.log --model llama-3.1-8b --gpu h100-sxm"
    commands = (
        f"read {logs.partition(' --')[0]}",
        f"calibrate {logs} --tp 1 --input-len 900 --output-len 400 -o my.toml",
        "validate sample/sglang.csv --profile my.toml",
    )
    for command in commands:
        assert run(command.split()) == 0
        told = capsys.readouterr().out
        assert max(map(len, told.splitlines())) <= columns, command
        assert "prior" in told or "calibrate" not in command
