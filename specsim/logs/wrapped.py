"""Pastes that a terminal wrapped: lines of its width whose rest stands in the next line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from specsim.logs.paste import label_of, separates

_RECORDS = tuple(
    map(
        re.compile,
        (
            rb"\[?\d{4}-\d\d-\d\d[ T]",
            rb"\(\w{1,32} pid=",
            rb"(?:INFO|WARNING|ERROR|DEBUG)[ :]",
            rb"(?:\[\d{1,9}\] )?\d{1,5}\.\d\d\.\d{3}\.\d{3} ",
            rb"\[\d{1,9}\] ",
            rb"(?:slot|srv) ",
            rb"Decode batch|Prefill batch",
            rb"Engine \d|SpecDecoding metrics",
            rb"[\w.-]{1,40} +\| ",
        ),
    )
)
"""How the lines of a log begin: one of these."""
_COMPLETE = re.compile(rb"(?:#queue-req: \d+,?|%|generated\)|per second\)) *\Z")
LEAST_WIDTH, MOST_WIDTH = 40, 400
AT_ONCE = 4096
STRIPPED = 12
"""Blanks at the end of a line that a copy may have lost."""


def wrapping(head: bytes) -> tuple[re.Pattern[bytes], int] | None:
    r"""Return how records begin and how wide the lines are, of a text that was wrapped.

    >>> wrapping(b"[2026-01-01 00:00:00] Decode batch, #runni\nng-req: 1, #token: 7\n")[1]
    42
    """
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")]
    record = max(_RECORDS, key=lambda begins: sum(map(bool, map(begins.match, lines))))
    goes_on = [
        len(line)
        for line, after in pairwise(lines)
        if record.match(line) and _continues(after, record) and not _COMPLETE.search(line)
    ]
    if not goes_on:
        return None
    width = max(goes_on)
    whole = sum(1 for line in lines if record.match(line) and len(line) >= width - STRIPPED)
    cut = Counter(length >= width - STRIPPED for length in goes_on)[True]
    fits = LEAST_WIDTH <= width <= MOST_WIDTH and max(map(len, lines)) <= width
    return (record, width) if fits and cut >= 0.6 * whole else None


def unwrapped(lines: Iterable[bytes], record: re.Pattern[bytes], width: int) -> Iterator[bytes]:
    """Join lines that were wrapped; yields them many at a time."""
    done: list[bytes] = []
    last = 0  # length of the line before
    for line in lines:
        text = line.rstrip(b"\r\n")
        if done and last >= width - STRIPPED and _continues(text, record):
            begun = done[-1].rstrip(b"\r\n")
            lost = width - last or (begun[-1:] in b",:" and text[:1] != b" ")
            done[-1] = begun + b" " * lost + line
        else:
            if len(done) >= AT_ONCE:
                yield b"".join(done)
                done = []
            done.append(line)
        last = len(text)
    yield b"".join(done)


def _continues(line: bytes, record: re.Pattern[bytes]) -> bool:
    """Whether a line may be the rest of one."""
    return bool(line.strip()) and not (record.match(line) or label_of(line) or separates(line))
