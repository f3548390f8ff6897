"""The columns of observations.csv, and the checked reading of the cells of one row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from specsim.errors import InputError, UnknownNameError

SURVIVAL = tuple(f"survival_{depth}" for depth in range(1, 9))
"""Survival by depth, as deep as the format goes."""

COLUMNS = (
    *("kind", "algorithm", "topk", "num_steps", "num_draft_tokens", "scheduler"),
    *("engine_version", "concurrency", "request_rate", "batch_size", "max_running_requests"),
    *("num_requests", "input_len", "output_len", "input_cached", "context_len", "window_s"),
    *("output_tps", "accept_length", "accept_length_scope", *SURVIVAL),
    *("ttft_s", "tpot_s", "itl_s", "round_time_s", "draft_time_s"),
    *("dataset", "temperature", "weight", "source"),
)
"""In the order of the format; ``draft_time_s`` is our own addition to it."""

PERCENTILE = re.compile(r"(ttft|tpot|itl|round_time)_p[0-9]{1,3}_s")
"""Further columns, of percentiles of times, e.g. ``ttft_p99_s``."""

LARGEST = 1e15
"""Nothing measured here is larger, and above it a float skips whole numbers."""

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)

Name = TypeVar("Name", bound=str)


def remedy(column: str) -> str:
    """Return what to do about a wrong cell."""
    if column in SURVIVAL:
        return "write a fraction: 0.45, not 45"
    unit = "give seconds" if column.endswith("_s") else "correct it"
    return f"{unit}, or leave the cell empty if it is not known"


@dataclass(frozen=True, slots=True)
class Cells:
    """One row of cells, as text, and where it stands.

    Parameters
    ----------
    where
        File and line, for messages.
    texts
        Cell by column; a missing or empty one is not stated.
    """

    where: str
    texts: Mapping[str, str]

    def text(self, column: str) -> str | None:
        """Return a text, None if it is not stated."""
        return self.texts.get(column) or None

    def number(
        self, column: str, least: float = 0.0, most: float = LARGEST, *, above: bool = False
    ) -> float | None:
        """Return a number in `least`..`most` (`above`: without `least`), None if not stated.

        Raises
        ------
        InputError
            If it is not a finite number within the bounds.
        """
        text = self.text(column)
        if text is None:
            return None
        if _NOT_FINITE.fullmatch(text):
            raise self.refusal(column, "is not finite")
        if not _NUMBER.fullmatch(text):
            raise self.refusal(column, "is not a number")
        value = float(text) + 0.0
        if not math.isfinite(value):
            raise self.refusal(column, "is not finite")
        if value < least or (above and value == least) or value > most:
            bound = f"above {least:g}" if above else f"at least {least:g}"
            raise self.refusal(column, f"must be {bound} and at most {most:g}")
        return value

    def positive(self, column: str) -> float | None:
        """Return a number above 0, None if it is not stated."""
        return self.number(column, above=True)

    def count(self, column: str, least: int = 0) -> int | None:
        """Return a whole number (``30`` or ``30.0``), None if it is not stated."""
        value = self.number(column, least)
        if value is not None and not value.is_integer():
            raise self.refusal(column, "must be a whole number")
        return None if value is None else int(value)

    def tokens(self, column: str) -> float | None:
        """Return a number of tokens, None if it is not stated; ``16k`` is 16384."""
        text = self.text(column)
        if text is None or text[-1] not in "kK":
            return self.number(column)
        thousands = Cells(self.where, {column: text[:-1].rstrip() or "k"}).number(column)
        return None if thousands is None else 1024 * thousands

    def name(self, column: str, known: tuple[Name, ...]) -> Name | None:
        """Return the one of `known` that the cell names in any case, None if it is not stated.

        Raises
        ------
        UnknownNameError
            Names the nearest one.
        """
        text = self.text(column)
        if text is None:
            return None
        for name in known:
            if name == text.lower():
                return name
        raise UnknownNameError(f"{self.where}, column {column}:", text, known)

    def refusal(self, column: str, reason: str, what_to_do: str | None = None) -> InputError:
        """Return the error that names file, line, column and value."""
        value = self.texts.get(column, "")
        shown = value if len(value) <= 60 else value[:57] + "..."
        return InputError(
            f"{self.where}, column {column}: {shown!r}", reason, what_to_do or remedy(column)
        )
