"""The README's commands and outputs are what the code does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def shown() -> str:
    """Output of the founding command as the README shows it."""
    block = README.split("$ python -m specsim predict --topk 2 --steps 2\n", 1)[1]
    return block.split("```", 1)[0]


def printed() -> str:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "predict", "--topk", "2", "--steps", "2"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},  # pytest runs with the width of its own terminal
    ).stdout


def test_the_founding_command_prints_what_the_readme_shows() -> None:
    now, then = printed().split(), shown().split()
    words_now = [NUMBER.sub("#", word) for word in now]
    words_then = [NUMBER.sub("#", word) for word in then]
    assert words_now[:40] == words_then[:40]
    numbers_now = [float(n) for n in NUMBER.findall(" ".join(now))]
    numbers_then = [float(n) for n in NUMBER.findall(" ".join(then))]
    assert len(numbers_now) == pytest.approx(len(numbers_then), abs=4)
    # other builds of numpy and BLAS move the last digit of a simulation, not more; a model that
    # changed by a percent must show
    table_now, table_then = numbers_now[:150], numbers_then[:150]
    assert table_now == pytest.approx(table_then, rel=0.005, abs=1.05)


def test_the_verdict_stands_first_and_the_page_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) < 120
    assert next(i for i, line in enumerate(lines) if "worth a GPU hour here" in line) < 16


def test_figures_agree_with_the_validation_pages() -> None:
    """To what a rounding or another BLAS moves, half a point."""
    kimi = (ROOT / "docs" / "validation" / "kimi.md").read_text(encoding="utf-8")
    trees = (ROOT / "docs" / "validation" / "acceptance.md").read_text(encoding="utf-8")

    def table(row: str) -> list[float]:
        return [float(n) for n in NUMBER.findall(README.split(f"| {row} |", 1)[1].split("\n")[0])]

    cells = kimi.split("all eight fitted:", 1)[1].split("fitted numbers:", 1)[0]
    errors = [abs(float(e)) for e in re.findall(r"([+-]\d+\.\d)%", cells)]
    assert len(errors) == 8
    worst, count = table("founding cells, fitted")
    assert worst == pytest.approx(max(errors), abs=0.5)
    assert count == 8
    told = re.search(r"predicts it: model: C=1 ([+-]\S+)%, C=100 ([+-]\S+)%", kimi)
    assert told is not None
    assert table("its trees, fitted without them") == pytest.approx(
        [float(told[1]), float(told[2])], abs=0.5
    )
    held = re.search(r"none (\S+)%   speculating (\S+)%", kimi)
    assert held is not None
    assert table("Kimi-K2.6 on vLLM, 10 cells fitted, 34 held out") == pytest.approx(
        [float(held[1]), float(held[2])], abs=0.5
    )
    figure = re.search(r"FIGURE SpecBundle \(7, 4, 8\): mean absolute error (\S+)%", trees)
    assert figure is not None
    row = "accept length of (7, 4, 8) from chains and one other tree, 9 drafters"
    assert table(row) == pytest.approx([float(figure[1])], abs=0.5)
    page = (ROOT / "docs" / "validation" / "servers.md").read_text(encoding="utf-8")
    means = [float(n) for n in re.findall(r"mean over servers +(\S+)", page)]
    row = "sweep and accept length given; one speculating cell too; all but one cell"
    assert [
        float(n) for n in re.findall(r"(\d+\.\d) %", README.split(row)[1].split("\n")[0])
    ] == means


def test_the_test_command_is_what_ci_runs() -> None:
    assert "python -m pytest -n auto -q" in README
    assert "python -m pytest -n auto -q" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_python_example_runs() -> None:
    code = README.split("```python\n", 1)[1].split("```", 1)[0]
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    assert "output_tps" in result.stdout


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_every_runtime_dependency_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[<>=!~ ]", d)[0] for d in project["dependencies"]}
    wanted = "numpy pandas simpy matplotlib packaging pydantic rich click jinja2 tomlkit"
    assert names == set(wanted.split())


def test_observations_example_is_readable(tmp_path: Path) -> None:
    from specsim.observations import read_observations

    text = README.split("```csv\n", 1)[1].split("```", 1)[0]
    path = tmp_path / "observations.csv"
    path.write_text(text, encoding="utf-8")
    assert len(read_observations(path).rows) == 4
