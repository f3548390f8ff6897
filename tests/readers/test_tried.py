"""Invented pastes of the kinds that stand in issues, each with its right reading written first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.logs import read_file

FOLDER = Path(__file__).parent / "tried"
EXPECTED: dict[str, list[dict[str, Any]]] = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_paste_is_read_rightly(name: str) -> None:
    """Servers, their settings, and every figure of each load within half a per cent."""
    entries = read_file(FOLDER / f"{name}.txt")
    assert len(entries) == len(EXPECTED[name])
    for entry, expected in zip(entries, EXPECTED[name], strict=True):
        assert entry.engine == expected.get("engine", entry.engine)
        said = expected.get("settings", {})
        assert {key: entry.settings.get(key) for key in said} == said
        assert set(expected.get("says", ())) <= set(entry.codes)
        assert not entry.unread
        rows = expected.get("rows", [{}] * len(entry.rows))
        assert len(entry.rows) == len(rows)
        for row, figures in zip(entry.rows, rows, strict=True):
            found = {key: getattr(row, key) for key in figures}
            assert found == pytest.approx(figures, rel=0.006)
