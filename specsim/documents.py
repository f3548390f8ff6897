"""Results as JSON documents: the same bytes for the same content."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

SIGNIFICANT_DIGITS = 10
"""Of a float in a document: beyond them the order of a sum shows, and bytes must be stable."""


def document(
    schema: str, content: object, *, digits: int = SIGNIFICANT_DIGITS, indent: int = 2
) -> str:
    """Return a result as its JSON document, the same bytes for the same content.

    Parameters
    ----------
    schema
        Name and number, e.g. ``specsim.curve/2``: the first key.
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
    plain = _plain(content, digits)
    return json.dumps({"schema": schema, **plain}, indent=indent, allow_nan=False) + "\n"


def _plain(value: Any, digits: int) -> Any:
    """Return dataclasses as dictionaries, floats rounded (-0.0 as 0.0, NaN as null)."""
    if is_dataclass(value):
        shown = (f.name for f in fields(value) if f.metadata.get("json", True))
        return {name: _plain(getattr(value, name), digits) for name in shown}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, digits) for entry in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}") + 0.0
    return rounded if math.isfinite(rounded) else value  # the largest floats round to inf
