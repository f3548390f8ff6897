"""Damage to files, byte by byte and line by line.

`faithful` damage never makes one number into another: it cuts, breaks lines, inserts characters
that no number has, and repeats, drops or moves whole lines. A reader that still gives a number
after it must give one that the undamaged text says. `wild` damage does anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable

# No digits, no sign and no exponent: with these one number could become another.
FOREIGN = b"#$%&@~;abcdfghxyzXYZ\x00\xff\x1b.,:\"{}[]()=|_ \t<>/\\'\xc3"

Damage = Callable[[bytes, random.Random], bytes]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes(rng.choices(FOREIGN, k=rng.randint(1, 4))) + data[at:]


def _break_line(data: bytes, rng: random.Random) -> bytes:
    # Not before the last characters of a line: what is cut off must be seen to be missing.
    at = rng.randrange(len(data) + 1)
    end = data.find(b"\n", at)
    if end < 0 or end - at < 12:
        return data
    return data[:at] + rng.choice((b"\n", b"\r\n", b"\r")) + data[at:]


def _lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 1:
        lines.insert(i, lines[j])
    elif kind == 2:
        del lines[i]
    else:
        at = rng.randrange(len(lines[i]) + 1)
        protected = b"batch" in lines[i] or b"throughput" in lines[i]
        if lines[i][at - 1 : at].isdigit() and not protected:
            return data  # what stands before the other line may be a whole, shorter number
        lines[i] = lines[i][:at] + lines[j] + lines[i][at:]
    return b"".join(lines)


def _flip(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if out:
            out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def _digits(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    text = rng.choice((b"9" * rng.randint(1, 40), b"-", b"0", b"1e308", b"NaN", b"Infinity", b"."))
    return data[:at] + text + data[at + rng.randint(0, 3) :]


def _delete(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randint(1, 60) :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.randint(1, 200)]
    return data[:at] + piece * rng.randint(2, 20) + data[at:]


def _number(data: bytes, rng: random.Random) -> bytes:
    places = [i for i, c in enumerate(data) if 48 <= c <= 57]
    if not places:
        return data
    at = rng.choice(places)
    return data[:at] + bytes([rng.randrange(48, 58)]) + data[at + 1 :]


FAITHFUL: tuple[Damage, ...] = (_cut, _insert, _break_line, _lines)
WILD: tuple[Damage, ...] = (*FAITHFUL, _flip, _digits, _delete, _repeat, _number)


def faithful(data: bytes, rng: random.Random) -> bytes:
    """Damage `data` once or twice without making new numbers."""
    for _ in range(rng.randint(1, 2)):
        data = rng.choice(FAITHFUL)(data, rng)
    return data


def wild(data: bytes, rng: random.Random) -> bytes:
    """Damage `data` in one to six places in any way."""
    for _ in range(rng.randint(1, 6)):
        data = rng.choice(WILD)(data, rng)
    return data
