"""Nsight Systems: ``cuda_gpu_kern_sum`` as CSV or text."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

from specsim.logs.entry import LogEntry, Timing
from specsim.logs.format import Format
from specsim.logs.formats._profiles import LONGEST_NAME, kernel_phase, profile_entry
from specsim.logs.source import Source
from specsim.logs.unread import (
    CONTRADICTION,
    DAMAGED_ROW,
    MOST_KINDS,
    OUT_OF_RANGE,
    TOO_MANY,
    TRUNCATED,
    Unread,
    check,
)

_MARKS = (b"Total Time (ns)", b"Instances")
_NUMBERS = re.compile(
    r"(\d{1,18}) (\d{1,18})" + 2 * r" (\d{1,18}(?:\.\d{1,6})?)" + 2 * r" (\d{1,18})"
)
_COLUMNS = ("Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)")
_TEXT_ROW = re.compile(
    rb"\s*\d{1,3}\.\d +([\d,]{1,24} +[\d,]{1,14}" + 4 * rb" +[\d,.]{1,24}" + rb") +[\d,.]{1,24} +"
    rb"(?:\d[\d ]* \d[\d ]* )?([A-Za-z_<(~][^\n]*?)\s*[\r\n]"
)


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read ``nsys stats -r cuda_gpu_kern_sum``, as text or with ``--format csv``.

    Of an all-reduce it gives the least duration: the rest waits for peers.
    """
    unread: Counter[str] = Counter()
    timings: list[Timing] = []
    columns: list[str] | None = None
    in_table = False
    for line in source.lines():
        if all(mark in line for mark in _MARKS):
            in_table = True
            columns = _cells(line) if b"," in line else None
        elif in_table and line.strip(b" -\r\n") and line[:1] != b"#":
            try:
                check(len(timings) < MOST_KINDS, TOO_MANY)
                timings.append(_timing(*(_csv_row(line, columns) if columns else _text_row(line))))
            except Unread as error:
                unread[error.reason] += 1
    return [profile_entry(source.path, "nsys_kernel_summary", timings, unread)]


def _cells(line: bytes) -> list[str]:
    try:
        (cells,) = csv.reader([line.decode("utf-8", "replace")])
    except (csv.Error, ValueError):
        return []
    return [cell.strip() for cell in cells]


def _csv_row(line: bytes, columns: list[str]) -> tuple[str, Sequence[str]]:
    cells = _cells(line)
    check(line.endswith((b"\n", b"\r")), TRUNCATED)
    check(len(cells) == len(columns), DAMAGED_ROW)
    row = dict(zip(columns, cells, strict=True))
    return row.get("Name", ""), [row.get(name, "") for name in _COLUMNS]


def _text_row(line: bytes) -> tuple[str, Sequence[str]]:
    found = _TEXT_ROW.match(line)
    if found is None:
        raise Unread(DAMAGED_ROW if line.endswith((b"\n", b"\r")) else TRUNCATED)
    return found[2].decode("utf-8", "replace"), found[1].decode().replace(",", "").split()


def _timing(name: str, texts: Sequence[str]) -> Timing:
    """Check total = count x mean, and that mean and median lie between the extremes."""
    found = _NUMBERS.fullmatch(" ".join(texts))
    if not name or not found:
        raise Unread(DAMAGED_ROW)
    total, count, mean, median, least, most = map(float, found.groups())
    low, high = min(mean, median), max(mean, median)
    check(count >= 1 and mean > 0 and least - 1 <= low <= high <= most + 1, OUT_OF_RANGE)
    check(abs(count * mean - total) <= 0.002 * total + count, CONTRADICTION)
    phase = kernel_phase(name)
    return Timing(
        phase=phase,
        seconds=(max(least, 1.0) if phase == "allreduce" else median) * 1e-9,
        seconds_mean=mean * 1e-9,
        seconds_min=least * 1e-9,
        count=int(count),
        name=name[:LONGEST_NAME],
    )


FORMAT = Format(
    name="nsys_kernel_summary",
    mark=re.compile(rb"Total Time \(ns\)[^\n]{1,16}Instances"),
    parse=parse,
)
