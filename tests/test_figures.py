"""Figures: the CSVs beside the scripts are what the scripts make today."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "figures"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in ("make", "founding"))

TOLERANCE = 2e-3
"""Profiles are the same, so only libraries' rounding can differ, which the roots of a fit or of a
bisection may enlarge; two in a thousand cannot be seen in a picture."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    ours = [*NAMES, "founding", "make"]  # others have a make.py too
    for name in ours:
        sys.modules.pop(name, None)
    yield
    for name in ours:
        sys.modules.pop(name, None)


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_every_script_has_a_picture_and_numbers() -> None:
    assert len(NAMES) == 10
    assert script("make").names() == NAMES
    listed = (FOLDER / "README.md").read_text()
    for name in NAMES:
        assert f"`{name}.py`" in listed
        assert (FOLDER / f"{name}.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_what_the_script_makes(name: str) -> None:
    module = script(name)
    text = script("founding").as_csv(module.HEADER, module.rows())
    made, kept = (
        list(csv.reader(lines))
        for lines in (text.splitlines(), (FOLDER / f"{name}.csv").read_text().splitlines())
    )
    assert made[0] == kept[0]
    assert len(made) == len(kept)
    for one, other in zip(made[1:], kept[1:], strict=True):
        for new, old in zip(one, other, strict=True):
            try:
                number = float(old)
            except ValueError:
                assert new == old
            else:
                assert float(new) == pytest.approx(number, rel=TOLERANCE, abs=1e-6), (
                    "run: python figures/make.py"
                )


def test_the_stack_shows_every_part_once_and_ends_where_the_round_does() -> None:
    module = script("round_time")
    (axes,) = module.figure().axes
    assert len(axes.get_legend_handles_labels()[1]) == len(module.PARTS)
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert max(tops) == pytest.approx(1e3 * module.rounds(30).round_s.max(), rel=1e-12)


def test_the_speedup_is_the_curve_s_gain_in_per_cent() -> None:
    module = script("speedup")
    (axes,) = module.figure().axes
    shown = module.curve()
    labels = axes.get_legend_handles_labels()[1]
    assert labels[0].endswith("(runs today)")
    assert len(labels) == len(shown.series) - 1
    asked = next(line for line in axes.lines if line.get_label() == labels[1])
    assert list(asked.get_ydata()) == [100 * point.gain for point in shown.series[2].points]


def test_the_bound_of_the_accept_length_is_never_below_it() -> None:
    for _, built, bound in script("accept_length").lengths(4, (2, 4, 8, 16)):
        assert 1.0 < built <= bound + 1e-9


def test_the_all_reduce_shows_its_switches() -> None:
    axes = script("allreduce").figure().axes[0]
    assert any(text.get_text().endswith("iB") for text in axes.texts)
    assert "measured" in axes.get_legend_handles_labels()[1]
