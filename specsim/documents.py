"""Results as JSON documents: the same bytes for the same content."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

SIGNIFICANT_DIGITS = 10
"""Of a float in a document: beyond them the order of a sum shows, and bytes must be stable."""


def _nan_is_null(value: object) -> object:
    return None if isinstance(value, float) and math.isnan(value) else value


Finite = Annotated[float, Field(allow_inf_nan=False)]
Number = Annotated[Finite | None, BeforeValidator(_nan_is_null)]
Amount = Annotated[
    Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, BeforeValidator(_nan_is_null)
]
Count = Annotated[int, Field(ge=0)]


class Record(BaseModel):
    """What all parts of a document share: strict, frozen, no unknown keys, built on first use."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)


def document(
    schema: str, content: object, *, digits: int = SIGNIFICANT_DIGITS, indent: int = 2
) -> str:
    """Return a result as its JSON document, the same bytes for the same content.

    Parameters
    ----------
    schema
        Name and number, e.g. ``specsim.curve/1``: the first key.
    content
        A dataclass or mapping of numbers, texts, tuples and further dataclasses. Keys stand in the
        order of the fields; a field whose metadata say ``{"json": False}`` is left out; floats are
        rounded, what is not finite is null.
    digits
        Significant ones that are kept of a float.
    indent
        Blanks before a level.

    Examples
    --------
    >>> print(document("specsim.example/1", {"ratio": 1 / 3, "missing": math.nan}), end="")
    {
      "schema": "specsim.example/1",
      "ratio": 0.3333333333,
      "missing": null
    }
    """
    plain = _rounded(_plain(content), digits)
    return json.dumps({"schema": schema, **plain}, indent=indent, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return dataclasses as dictionaries, all the way down."""
    if is_dataclass(value):
        shown = (f.name for f in fields(value) if f.metadata.get("json", True))
        return {name: _plain(getattr(value, name)) for name in shown}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def to_json(document: BaseModel) -> str:
    """Return the document as JSON, the same bytes for the same content.

    Keys stand in the order of the models; floats are rounded to 10 significant digits; the text
    is ASCII, so that no locale changes it, and ends with a newline.
    """
    content = _rounded(document.model_dump(by_alias=True))
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _rounded(value: Any, digits: int = SIGNIFICANT_DIGITS) -> Any:
    """Round the floats of nested dicts and sequences; -0.0 becomes 0.0, NaN null."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        rounded = float(f"{value:.{digits}g}") + 0.0
        return rounded if math.isfinite(rounded) else value  # the largest floats round to inf
    if isinstance(value, dict):
        return {key: _rounded(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry, digits) for entry in value]
    return value
