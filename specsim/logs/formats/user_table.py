"""Tables of people, CSV or markdown: a column of clients and one of speeds, whatever their names.

A row is read only as far as the names of its columns are known and say their unit. Columns of text
tell servers apart, and so do words before a speed (``EAGLE3 tok/s``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from specsim.errors import UnknownNameError
from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._benchmarks import names
from specsim.logs.formats._grids import Grid, grids, value_of
from specsim.logs.formats._results import entry_of, joined, row_of, with_unread
from specsim.logs.settings import NO_SPECULATION, chain_settings
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED_ROW, Unread, check, counted
from specsim.setting import parse_algorithm

_LOADS, _SPEEDS = {"concurrency", "batch_size"}, {"output_tps", "user_tps"}
_SETTINGS = {"num_steps", "topk", "num_draft_tokens", "k", "tp"}
_OTHERS = re.compile(
    r"input|prompt|prefill|total|median|p\d\d|max|min|std|peak|per|gpu|cached?|/?user|x|gain|uplift"
    r"|speedup|predicted|expected|target|theoretical|goodput|error|delta"
)
"""Words before a speed that make it another figure, not that of a named server."""
_PLAIN = {
    "baseline",
    "base",
    "none",
    "no",
    "vanilla",
    "off",
    "without",
    "no spec",
    "autoregressive",
}
_UNIT = re.compile(r"\s*(?:tok(?:en)?s?/s(?:ec)?|t/s|tps)\Z", re.IGNORECASE)
_AMOUNT = re.compile(r"[~+<>=-]?\s*\d[\d.,]*\s*(?:%|[a-z%/]{1,8})?", re.IGNORECASE)
"""A cell that holds an amount."""
_GPUS = re.compile(r"(?<!/)\bgpus?\b")
_TIMED = re.compile(r"(.*\d)\s*(ms|s|us)")
CLIENT_SLACK = 1.1
"""So much faster than one token per TPOT of every client nothing is: requests differ."""


class Column(NamedTuple):
    """What a column holds: a figure, of the server that its other words name."""

    name: str
    factor: float = 1.0
    server: str = ""


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read tables, one entry per server that their text tells apart."""
    unread: Counter[str] = Counter()
    by_server: dict[tuple[object, ...], list[LogEntry]] = {}
    for grid in grids(source.lines(), _wanted, unread):
        for result in _results(grid, unread):
            key = (result.label, *sorted(result.settings.items(), key=str))
            by_server.setdefault(key, []).append(result)
    results = (result for of in by_server.values() for result in of)
    return with_unread(joined(results, source.path), unread, source.path, FORMAT.name)


def _wanted(cells: tuple[str, ...]) -> bool:
    found = {column.name for cell in cells if (column := column_of(cell))}
    return bool(found & _LOADS) and bool(found & (_SPEEDS | {"tpot_s"}))


@cache
def column_of(head: str) -> Column | None:
    """Return what the head of a column names, None if it is not known; a time may lack its unit.

    >>> column_of("Mean TPOT (ms)"), column_of("output_throughput"), column_of("p99_ttft_ms")
    (Column(name='tpot_s', factor=0.001, server=''), Column(name='output_tps', ...), None)
    """
    text = re.sub(r"tok(?:en)?s? per sec(?:ond)?", "tok/s", head.lower().replace("_", " "))
    known, units = names("words"), names("units")
    words = [word.strip(".") for word in re.findall(r"[a-z0-9%/.+]+", text)]
    words = [known.get(word, word) for word in words]
    words = [word for word in words if word]
    factor = units.get(words[-1]) if len(words) > 1 else None
    bare = " ".join(words[:-1] if factor is not None else words)
    for name, heads in names("columns").items():
        if bare in heads and name.endswith("_s"):
            return Column(name, factor or 0.0)
        if bare in heads:
            return Column(name)
    for count in range(1, len(words)):
        server, speed = words[:count], " ".join(words[count:])
        if speed in names("columns")["output_tps"] and "/" in speed:
            other = any(_OTHERS.fullmatch(word) for word in server)
            return None if other else Column("output_tps", server=" ".join(server))
    return None


def _results(grid: Grid, unread: Counter[str]) -> Iterator[LogEntry]:
    columns = [column_of(head) for head in grid.header]
    speeds = [c.server for c in columns if c and c.name in _SPEEDS]
    several = len(set(speeds)) > 1
    texts = _text_columns(grid, columns)
    labels = [i for i, name in texts.items() if not name]
    for server in dict.fromkeys(speeds or [""]):
        for row in grid.rows:
            with counted(unread):
                said = _figures(row, columns, server, several)
                stated = {name: row[i] for i, name in texts.items() if name not in ("", "none")}
                yield _entry(said, stated, [grid.label, *(row[i] for i in labels), server])


def _text_columns(grid: Grid, columns: Sequence[Column | None]) -> dict[int, str]:
    """Columns that are not known and in no row a number: settings by name, or without one.

    The latter tell servers apart.
    """
    known = {head: name for name, heads in names("texts").items() for head in heads}
    found = {}
    for i, (head, column) in enumerate(zip(grid.header, columns, strict=True)):
        name = head.lower().replace("_", " ")
        cells = [row[i].strip("*`_ ") for row in grid.rows]
        amounts = any(map(_AMOUNT.fullmatch, cells)) and not _GPUS.search(name)
        if column is None and not amounts and any(re.search(r"\w", cell) for cell in cells):
            found[i] = known.get(name, "")
    return found


def _figures(
    row: Sequence[str], columns: Sequence[Column | None], server: str, several: bool
) -> dict[str, float]:
    """Return the figures of a row; of several servers in it only their speeds are."""
    said: dict[str, float] = {}
    for column, cell in zip(columns, row, strict=True):
        if column is None or (column.name in _SPEEDS and column.server != server):
            continue
        if several and column.name not in _LOADS | _SPEEDS | {"input_len", "output_len", "tp"}:
            continue
        timed = None if column.factor else _TIMED.fullmatch(cell)
        factor = names("units")[timed[2]] if timed else column.factor
        value = value_of(timed[1] if timed else _UNIT.sub("", cell))
        if not factor:
            continue  # a time without its unit
        if value is not None:
            said.setdefault(column.name, value * factor)
        elif re.search(r"\d", cell):
            raise Unread(DAMAGED_ROW)
    check(said.keys() & _LOADS and said.keys() - _LOADS - _SETTINGS, DAMAGED_ROW)
    return said


def _entry(said: dict[str, float], stated: Mapping[str, object], texts: Sequence[str]) -> LogEntry:
    whole = {name: said.pop(name) for name in _SETTINGS if name in said}
    clients = said.setdefault("concurrency", said.get("batch_size", 0.0))
    check(clients >= 1, DAMAGED_ROW)
    check(all(n % 1 == 0 for n in (clients, *whole.values())), DAMAGED_ROW)
    each = said.pop("user_tps", None)
    if each:
        said.setdefault("tpot_s", 1 / each)
    tps, tpot_s = said.get("output_tps"), said.get("tpot_s")
    if tps and tpot_s:
        check(tps <= CLIENT_SLACK * clients / tpot_s, CONTRADICTION)
        check(clients == 1 or not 0.9 < tps * tpot_s < CLIENT_SLACK, "speed of one request or all")
    settings = dict(stated)
    if k := int(whole.pop("k", 0)):
        settings |= chain_settings(k)
    settings |= {name: int(value) for name, value in whole.items()}
    for text in texts:
        settings |= _algorithm(text)
    entry = entry_of(FORMAT.name, row_of(said), settings)
    return replace(entry, label=", ".join(text for text in texts if text))


def _algorithm(text: str) -> dict[str, object]:
    """Return the setting that a text states, if it is nothing but one."""
    if text.strip(" *`").lower() in _PLAIN:
        return dict(NO_SPECULATION)
    try:
        return {"algorithm": parse_algorithm(text.strip(" *`"))}
    except UnknownNameError:
        return {}


FORMAT = Format(
    name="user_table",
    mark=re.compile(
        rb"^(?=[^\n:]*(?:[|,;\t]|\xe2\x94[\x82\x83]))"
        rb"(?=[^\n:]*(?:conc|clients?\b|users?\b|streams\b|batch|\bbs\b|parallel|\bc\b))"
        rb"(?=[^\n:]*(?:tok(?:en)?s?/s|tps\b|t/s|throughput|tput|gen/s|per[ _]sec|tpot))[^\n:]*$",
        re.MULTILINE | re.IGNORECASE,
    ),
    parse=parse,
    remedy="give a table with a column of clients and one of tokens per second",
)
