"""The words of diagnoses: each is said somewhere, each that is said is there, with its figures."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

import specsim.logs
from specsim.logs.diagnose import finding, words
from specsim.logs.entry import CODES
from specsim.logs.formats import listed

SOURCE = "\n".join(path.read_text() for path in Path(specsim.logs.__path__[0]).rglob("*.py"))
ROWS = [(code, name) for code, texts in listed("diagnoses").items() for name in texts]


def test_codes_are_those_of_the_contract() -> None:
    assert set(listed("diagnoses")) <= set(CODES)


@pytest.mark.parametrize(("code", "name"), ROWS)
def test_words_are_said_and_filled_in(code: str, name: str) -> None:
    assert f'"{name}"' in SOURCE
    text = listed("diagnoses", code, name)
    figures = [field for _, field, _, _ in string.Formatter().parse(text) if field]
    said = finding(code, name, **dict.fromkeys(figures, 2))  # type: ignore[arg-type]
    assert said.code == code
    assert "{" not in said.message


def test_all_that_is_said_has_words() -> None:
    said = re.findall(r'(?:finding|words)\(\s*"([a-z_]+)",\s*"([^"]+)"', SOURCE)
    assert said
    assert set(said) <= set(ROWS)


def test_a_figure_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError):
        words("eager", "above")
