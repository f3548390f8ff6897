"""Changing loads as people write them: ``ramp:1..64@600s``, ``burst:1..20/s,10s/60s@600s``, a file.

    ramp:A..B@T         clients from A to B and back to A in T; A..B..C goes the way it says
    burst:A..B,D/P@T    A clients, and B for the last D of every period P, for T
    trace:FILE          a CSV with the columns arrival_s, input_len, output_len

Levels are clients in flight, or with ``/s`` behind them Poisson arrivals per second.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from specsim.errors import FormatError, InputError
from specsim.simulate.demand import Trace
from specsim.workload import Unit, VaryingLoad

UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

COLUMNS = ("arrival_s", "input_len", "output_len")

LIMIT_BYTES = 100_000_000
"""A longer trace is refused: about three million requests."""

SHAPE = "write ramp:1..64@600s, burst:1..20/s,10s/60s@600s or trace:FILE"

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_TIME = rf"{_NUMBER}(?:ms|s|min|m|h)"


def parse_load(text: str) -> VaryingLoad | Trace:
    """Read a changing load.

    Raises
    ------
    InputError, FormatError
        Names what cannot be read.

    Examples
    --------
    >>> parse_load("ramp:1..64@10m").label
    'ramp of 1..64 clients over 600 s'
    >>> parse_load("burst:0.5..20/s,10s/60s@600s").label
    'burst of 0.5..20 requests/s over 600 s'
    """
    kind, colon, rest = text.strip().partition(":")
    if kind == "trace" and colon:
        return read_trace(rest)
    course = rf"({_NUMBER}(?:\.\.{_NUMBER})+)(/s)?"
    times = rf",({_TIME})/({_TIME})" if kind == "burst" else ""
    match = re.fullmatch(rf"{course}{times}@({_TIME})", rest.replace(" ", ""))
    if kind not in ("ramp", "burst") or match is None:
        raise InputError(f"load {text!r}", "cannot be read", SHAPE)
    levels = tuple(float(level) for level in match[1].split(".."))
    unit: Unit = "requests_per_s" if match[2] else "clients"
    if kind == "ramp":
        course_levels = (*levels, levels[0]) if len(levels) == 2 else levels
        return VaryingLoad.ramp(course_levels, _seconds(match[3]), unit)
    if len(levels) != 2:
        raise InputError(f"load {text!r}", "has not two levels", SHAPE)
    burst_s, period_s, duration_s = (_seconds(match[i]) for i in (3, 4, 5))
    return VaryingLoad.burst(levels[0], levels[1], burst_s, period_s, duration_s, unit)


def _seconds(text: str) -> float:
    match = re.fullmatch(rf"({_NUMBER})([a-z]+)", text)
    assert match is not None
    return float(match[1]) * UNITS_S[match[2]]


def read_trace(path: str | Path) -> Trace:
    """Read a CSV of requests: arrival_s, input_len, output_len, in any order of the columns.

    Further columns are left alone, blank lines and those that begin with ``#`` skipped. Rows must
    be in the order of arrival.

    Raises
    ------
    FormatError
        If it is not such a table.
    InputError
        If a cell is no number or out of range; the message names the line.
    """
    from specsim.textfile import read_text

    lines = read_text(path, "a CSV of requests", LIMIT_BYTES).splitlines()
    kept = [(i, line) for i, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"]
    rows = csv.reader(line for _, line in kept)
    names = [name.strip() for name in next(rows, [])]
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise FormatError(
            f"{path}, line {kept[0][0]}",
            f"has no column {', '.join(missing)}",
            f"begin with a line {','.join(COLUMNS)}",
        )
    place = [names.index(name) for name in COLUMNS]
    arrival_s, input_len, output_len = [], [], []
    for (line, _), cells in zip(kept[1:], rows, strict=False):
        try:
            arrival, prompt, answer = (float(cells[i]) for i in place)
            if prompt != int(prompt) or answer != int(answer):
                raise ValueError
        except (ValueError, IndexError, OverflowError):
            raise InputError(
                f"{path}, line {line}",
                "does not hold seconds and two whole numbers of tokens",
                "write e.g. 12.5,1024,256",
            ) from None
        arrival_s.append(arrival)
        input_len.append(int(prompt))
        output_len.append(int(answer))
    if not arrival_s:
        raise FormatError(path, "has no requests", "give a row per request")
    return Trace.of(arrival_s, input_len, output_len)
