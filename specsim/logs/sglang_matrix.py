"""Many decode lines of one layout at once: the lines as a matrix of bytes, a cursor per line.

A gigabyte holds five million lines; one by one they would take a minute. What this parser accepts
is exactly what the strict one does (a test compares them); any other line is left to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats
from numpy.typing import NDArray

from specsim.logs.columns import floats, seconds
from specsim.logs.sglang_lines import (
    DecodeLine,
    Layout,
    parse_prefix,
)

WIDTH = 1024
"""Longer lines are left to the strict parser."""
COLUMNS = 8
_DIGITS = 12
_PAD = 64
_STAMP = slice(1, 20)

Bytes = NDArray[np.uint8]
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Batch:
    """Columns of decode lines: `values` has one row per column of a line, NaN if absent.

    The graph column is 1, 0, or NaN. `tails` are the prefixes after the time stamp.
    """

    time_s: Floats
    tails: Sequence[bytes]
    values: Floats

    def __len__(self) -> int:
        return len(self.time_s)

    def part(self, start: int, stop: int) -> Batch:
        """Return lines ``start:stop``."""
        return Batch(self.time_s[start:stop], self.tails[start:stop], self.values[:, start:stop])


def join(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        np.concatenate([b.time_s for b in batches]),
        [tail for b in batches for tail in b.tails],
        np.concatenate([b.values for b in batches], axis=1),
    )


def one_line(line: DecodeLine) -> Batch:
    """Return a line that the strict parser read."""
    stamp, tail = parse_prefix(line.prefix)
    row = [{b"True": b"1", b"False": b"0"}.get(v, v) for v in line.row]
    return Batch(seconds([stamp]), [tail], floats(row)[:, None])


def read_lines(
    lines: Sequence[bytes], starts: Sequence[int], layout: Layout
) -> tuple[Batch, Flags]:
    """Read lines that are presumably of one layout.

    Parameters
    ----------
    lines
        Lines with their ends.
    starts
        Where ``Decode batch`` begins in each.
    layout
        What they should look like.

    Returns
    -------
    Batch, mask
        The columns, and which lines are really of that layout; the others hold nonsense.
    """
    length = np.fromiter(map(len, lines), dtype=np.intp, count=len(lines))
    width = int(min(length.max(), WIDTH)) + _PAD
    text = np.array(lines, dtype=f"S{width}").view(np.uint8)
    row_start = np.arange(len(lines), dtype=np.intp) * width
    start = np.array(starts, dtype=np.intp)
    ok = (length <= WIDTH) & (start <= WIDTH)
    cursor = row_start + np.minimum(start, WIDTH)
    values = np.full((COLUMNS, len(lines)), np.nan)
    for field in layout.fields:
        cursor = _expect(text, cursor, field.literal, ok)
        value, cursor = _PARSERS[field.kind](text, cursor, ok)
        if field.column is not None:
            values[field.column] = value
    end = row_start + np.minimum(length, WIDTH)
    _expect_end(text, cursor, end, layout.signature.trailing_comma, ok)
    time_s, tails = _prefixes(lines, start, text.reshape(len(lines), width))
    return Batch(time_s, tails, values), ok


def _expect(text: Bytes, cursor: Index, literal: bytes, ok: Flags) -> Index:
    wanted = np.frombuffer(literal, dtype=np.uint8)
    for i, char in enumerate(wanted):
        ok &= text.take(cursor + i, mode="clip") == char
    return cursor + len(wanted)


def _digits(text: Bytes, cursor: Index, ok: Flags, most: int) -> tuple[Floats, Index]:
    """Read 1 to `most` digits that no digit follows."""
    value = np.zeros(len(cursor))
    going = np.ones(len(cursor), dtype=bool)
    count = np.zeros(len(cursor), dtype=np.intp)
    for i in range(most + 1):
        digit = text.take(cursor + i, mode="clip") - np.uint8(48)
        going = going & (digit < 10)
        if not going.any():
            break
        value = np.where(going, value * 10 + digit, value)
        count += going
    ok &= (count >= 1) & (count <= most)
    return value, cursor + count


def _int(text: Bytes, cursor: Index, ok: Flags) -> tuple[Floats, Index]:
    return _digits(text, cursor, ok, 9)


def _two_decimals(text: Bytes, cursor: Index, ok: Flags) -> tuple[Floats, Index]:
    whole, cursor = _digits(text, cursor, ok, 9)
    cursor = _expect(text, cursor, b".", ok)
    tenths, hundredths = (text.take(cursor + i, mode="clip") - np.uint8(48) for i in (0, 1))
    ok &= (tenths < 10) & (hundredths < 10)
    # Whole hundredths divided once round as the printed text does when it is parsed.
    return (whole * 100 + tenths * 10.0 + hundredths) / 100, cursor + 2


def _bool(text: Bytes, cursor: Index, ok: Flags) -> tuple[Floats, Index]:
    true, false = np.ones_like(ok), np.ones_like(ok)
    after_true, after_false = (
        _expect(text, cursor, b"True", true),
        _expect(text, cursor, b"False", false),
    )
    ok &= true | false
    return true.astype(np.float64), np.where(true, after_true, after_false)


def _any(text: Bytes, cursor: Index, ok: Flags) -> tuple[Floats, Index]:
    """Pass over a number of a field that is not used."""
    going = np.ones_like(ok)
    count, dots = np.zeros((2, len(cursor)), dtype=np.intp)
    for i in range(20):
        char = text.take(cursor + i, mode="clip")
        going = going & (((char >= 48) & (char <= 57)) | (char == 46))
        if not going.any():
            break
        count += going
        dots += going & (char == 46)
    ok &= (count >= 1) & (dots <= 1)
    percent = text.take(cursor + count, mode="clip") == 37
    return np.zeros(len(cursor)), cursor + count + percent


def _expect_end(text: Bytes, cursor: Index, end: Index, comma: bool, ok: Flags) -> None:
    """After the last value only ``,``, a space and the line end may follow."""
    if comma:
        cursor = _expect(text, cursor, b",", ok)
    cursor = cursor + (text.take(cursor, mode="clip") == 32)
    cursor = cursor + (text.take(cursor, mode="clip") == 13)
    ok &= (text.take(cursor, mode="clip") == 10) & (cursor + 1 == end)


_PARSERS = {"int": _int, "two_decimals": _two_decimals, "bool": _bool, "any": _any}


def _prefixes(
    lines: Sequence[bytes], start: Index, text: NDArray[np.uint8]
) -> tuple[Floats, Sequence[bytes]]:
    """Time and ranks; fast where all lines begin alike."""
    first = int(start[0])
    if 21 <= first <= WIDTH and (start == first).all() and (text[:, 0] == ord("[")).all():
        tail = text[:, 20:first]
        stamps = np.ascontiguousarray(text[:, _STAMP]).view("S19").ravel()
        if (tail == tail[0]).all() and tail[0, 0] in b" ]":
            return seconds(stamps), [tail[0].tobytes()] * len(lines)
    pairs = [parse_prefix(line[:at]) for line, at in zip(lines, start.tolist(), strict=True)]
    stamps_, tails = zip(*pairs, strict=True)
    return seconds(stamps_), tails
