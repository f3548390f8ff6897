"""Who sends requests: loads as people write them, traces, clients and arrivals.

    ramp:A..B@T         clients from A to B and back to A in T; A..B..C goes the way it says
    burst:A..B,D/P@T    A clients, and B for the last D of every period P, for T
    trace:FILE          a CSV with the columns arrival_s, input_len, output_len

Levels are clients in flight, or with ``/s`` behind them Poisson arrivals per second.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simpy
from numpy.typing import ArrayLike

from specsim.arrays import Floats, Ints
from specsim.errors import FormatError, InputError
from specsim.textfile import read_text
from specsim.workload import Unit, VaryingLoad

Steps = Generator[simpy.Event, Any, None]
"""A SimPy process."""

Answered = Callable[[], object]
Submit = Callable[[Answered | None], object]
"""Sends a request now; what it is given, if anything, is called when the request is answered."""

UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

COLUMNS = ("arrival_s", "input_len", "output_len")

LIMIT_BYTES = 100_000_000
"""A longer trace is refused: about three million requests."""

SHAPE = "write ramp:1..64@600s, burst:1..20/s,10s/60s@600s or trace:FILE"

DRAWN = 256
"""Interarrival times drawn together."""

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_TIME = rf"{_NUMBER}(?:ms|s|min|m|h)"


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests to replay; arrays of equal length, arrivals in rising order."""

    arrival_s: Floats  # seconds >= 0
    input_len: Ints  # whole tokens, at least 0
    output_len: Ints  # whole tokens, at least 1

    def __post_init__(self) -> None:
        shapes = {self.arrival_s.shape, self.input_len.shape, self.output_len.shape}
        if len(shapes) != 1 or self.arrival_s.ndim != 1 or self.arrival_s.size == 0:
            raise InputError(
                f"trace of {sorted(shapes)}",
                "needs columns of one length",
                "give a row per request",
            )
        if not np.isfinite(self.arrival_s).all() or (self.arrival_s < 0).any():
            raise InputError("trace arrivals", "must be finite and >= 0", "give seconds")
        if (np.diff(self.arrival_s) < 0).any():
            raise InputError("trace arrivals", "must be in rising order", "sort the rows")
        if (self.input_len < 0).any() or (self.output_len < 1).any():
            raise InputError(
                "trace lengths", "must be at least 0 in and 1 out", "give whole tokens"
            )

    @classmethod
    def of(cls, arrival_s: ArrayLike, input_len: ArrayLike, output_len: ArrayLike) -> Trace:
        """Build a trace from anything array-like."""
        return cls(
            np.asarray(arrival_s, dtype=np.float64),
            np.asarray(input_len, dtype=np.int64),
            np.asarray(output_len, dtype=np.int64),
        )

    @property
    def label(self) -> str:
        """What it is, in a few words."""
        span = self.arrival_s[-1] - self.arrival_s[0]
        return f"trace of {len(self.arrival_s)} requests over {span:.0f} s"


# --- as people write them


def parse_load(text: str) -> VaryingLoad | Trace:
    """Read a changing load.

    Raises :class:`InputError` or :class:`FormatError`, which names what cannot be read.

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
    seconds = [_seconds(match[i]) for i in range(3, match.re.groups + 1)]
    if kind == "ramp":
        there_and_back = (*levels, levels[0]) if len(levels) == 2 else levels
        return VaryingLoad.ramp(there_and_back, seconds[0], unit)
    if len(levels) != 2:
        raise InputError(f"load {text!r}", "has not two levels", SHAPE)
    burst_s, period_s, duration_s = seconds
    return VaryingLoad.burst(levels[0], levels[1], burst_s, period_s, duration_s, unit)


def _seconds(text: str) -> float:
    number = text.rstrip("mshin")
    return float(number) * UNITS_S[text[len(number) :]]


def read_trace(path: str | Path) -> Trace:
    """Read a CSV of requests: arrival_s, input_len, output_len, in any order of the columns.

    Further columns are left alone, blank lines and those that begin with ``#`` skipped. Rows must
    be in the order of arrival. Raises :class:`FormatError` if it is not such a table;
    :class:`InputError` if a cell is no number or out of range; the message names the line.
    """
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
    requests = []
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
        requests.append((arrival, prompt, answer))
    if not requests:
        raise FormatError(path, "has no requests", "give a row per request")
    return Trace.of(*zip(*requests, strict=True))


# --- as what happens


def clients(submit: Submit, budget: Iterator[object]) -> Callable[[], None]:
    """Return what a client does when its last request is answered: send the next, without a pause.

    `budget` is shared by all clients: each request takes one of it.
    """

    def ask() -> None:
        for _ in budget:
            submit(ask)
            return

    return ask


def visit(
    env: simpy.Environment, submit: Submit, load: VaryingLoad, number: int, leave: Answered
) -> None:
    """Be a client while more than `number` (of this one, from 0) clients are in, until the end."""

    def later(pause_s: float) -> Steps:
        yield env.timeout(pause_s)
        submit(ask)

    def ask() -> None:
        at = load.reaches(number + 1.0, env.now)
        if at >= load.duration_s:
            leave()
        elif at > env.now:
            env.process(later(at - env.now))
        else:
            submit(ask)

    ask()


def poisson(
    env: simpy.Environment,
    submit: Submit,
    rate: float,
    count: int,
    rng: np.random.Generator,
) -> Steps:
    """Send `count` requests, `rate` per second, whether or not others are answered."""
    for first in range(0, count, DRAWN):
        gaps = rng.exponential(1.0 / rate, DRAWN)
        for gap in gaps[: count - first].tolist():
            yield env.timeout(gap)
            submit(None)


def replay(env: simpy.Environment, submit: Submit, trace: Trace) -> Steps:
    """Send requests when the trace says so; those of one moment arrive together."""
    for arrival in trace.arrival_s.tolist():
        if arrival > env.now:
            yield env.timeout(arrival - env.now)
        submit(None)
