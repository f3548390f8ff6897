"""The JSON documents of the command line: curve and log; their fields and their bytes.

These models are the schemas ``specsim.curve/1`` and ``specsim.log/1``: the
fields in the order in which they are written, with strict types. SI units, as the names say;
fractions are fractions. A number that could not be had is null, never NaN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

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


class LogWindows(Record):
    """The log lines (or records) that measured something: read, used, and dropped by reason."""

    read: Count = 0
    used: Count = 0
    dropped: dict[str, Count] = {}


class _Measured(Record):
    concurrency: Count | None = None
    batch_size: Amount = None
    output_tps: Amount = None
    accept_length: Amount = None
    survival: tuple[Amount, ...] | None = None
    tpot_s: Amount = None
    ttft_s: Amount = None
    round_time_s: Amount = None
    windows: LogWindows = LogWindows()


class LogRow(_Measured):
    """What a log says of one load level.

    `prefill_mixed`: prefill ran within the windows, so the throughput is not pure decoding.
    """

    cuda_graph: bool | None = None
    prefill_mixed: bool = False


class LogTiming(Record):
    """A duration that a profiler or a collective benchmark measured."""

    phase: str
    batch_size: Count | None
    size_bytes: Count | None
    seconds: Amount
    count: Count | None
    rank: Count | None
    ranks: Count | None
    name: str
    prompt_tokens: Amount = None


class LogSettings(BaseModel):
    """The launch settings that a log shows; further ones may follow the named ones."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", defer_build=True)
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    algorithm: str | None = None
    topk: Count | None = None
    num_steps: Count | None = None
    num_draft_tokens: Count | None = None


class Diagnosis(Record):
    """Something in the log that bends the curve or spoils the numbers."""

    code: str
    message: str


class _LogIdentity(Record):
    path: str
    format: str
    engine: str | None = None
    engine_version: str | None = None
    settings: LogSettings = LogSettings()


class LogFile(_Measured, _LogIdentity):
    """What was read from one file: its main load level, then all of them.

    `unread_lines` look like measurements and could not be read; `timings` is there only if the
    file holds some.
    """

    rows: tuple[LogRow, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    unread_lines: Count = 0
    timings: tuple[LogTiming, ...] = Field(default=(), exclude_if=lambda timings: not timings)


class LogDocument(Record):
    """``read --json``."""

    schema_: Literal["specsim.log/1"] = Field(default="specsim.log/1", alias="schema")
    files: tuple[LogFile, ...]


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


def to_json(document: LogDocument) -> str:
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
