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
