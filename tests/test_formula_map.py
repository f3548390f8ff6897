"""docs/formula-map.md names functions, equations and tests that exist."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "formula-map.md").read_text(encoding="utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return cells[2:]


def test_the_map_is_not_empty() -> None:
    assert len(rows()) >= 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_row_resolves(row: list[str]) -> None:
    _, function, equation, source, test = row
    module_name, _, name = function.strip("`").rpartition(".")
    target = getattr(importlib.import_module(module_name), name)
    assert source
    if equation:
        module = inspect.getsourcefile(target)
        assert module is not None
        assert equation in Path(module).read_text(encoding="utf-8")
    text = (ROOT / test.strip("`")).read_text(encoding="utf-8")
    assert name in text
