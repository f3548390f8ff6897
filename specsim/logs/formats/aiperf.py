"""AIPerf and GenAI-Perf: their tables in the console and in CSV."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._benchmarks import names, scaled
from specsim.logs.formats._grids import Grid, grids, value_of
from specsim.logs.formats._results import joined, run_entry, with_unread
from specsim.logs.source import Source
from specsim.logs.unread import DAMAGED_ROW, TWO_IN_ONE, check, counted

_NAMED = re.compile(r"([A-Za-z0-9 _./-]{1,64}?)(?: *\(([^()]{1,32})\))?")
_CLIENTS = re.compile(rb"(?:--concurrency[ =]|[Cc]oncurrency: *)(\d{1,6})(?![\d.])")


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read runs: tables of metrics, where one that comes again begins another run."""
    unread: Counter[str] = Counter()
    results = list(_of_tables(source, unread))
    return with_unread(joined(results, source.path), unread, source.path, FORMAT.name)


def _of_tables(source: Source, unread: Counter[str]) -> Iterator[LogEntry]:
    clients: list[float] = []

    def noting_flags() -> Iterator[bytes]:
        for line in source.lines():
            clients.extend(float(n) for n in _CLIENTS.findall(line))
            yield line

    said: dict[str, float] = {}
    label = ""
    for grid in grids(noting_flags(), _wanted, unread):
        with counted(unread):
            found = _means(grid, unread)
            if found.keys() & said.keys():
                yield from _entries(said, label, unread)
                said = {}
            said, label = said | found, grid.label
            if clients:
                said["concurrency"] = clients[-1]
    yield from _entries(said, label, unread)


def _wanted(cells: tuple[str, ...]) -> bool:
    return cells[:1] in (("Metric",), ("Statistic",)) and bool({"avg", "Value"} & set(cells))


def _means(grid: Grid, unread: Counter[str]) -> dict[str, float]:
    """Return the means in a table of metrics, SI units."""
    column = grid.header.index("avg" if "avg" in grid.header else "Value")
    said: dict[str, float] = {}
    for row in grid.rows:
        named, value = _NAMED.fullmatch(row[0]), value_of(row[column])
        name = _figure(named[1]) if named else None
        if named and name and value is not None:
            with counted(unread):
                value = scaled(name, value, named[2] or "")
                check(said.setdefault(name, value) == value, TWO_IN_ONE)
        elif name and row[column] != "N/A":
            unread[DAMAGED_ROW] += 1
    return said


def _figure(metric: str) -> str | None:
    tag = re.sub(r"[ -]+", "_", metric.strip().lower())
    name: str | None = names("metrics").get(tag)
    return name


def _entries(said: dict[str, float], label: str, unread: Counter[str]) -> Iterator[LogEntry]:
    """Yield the entry of a run, if it measured anything of decoding."""
    with counted(unread):
        if said.keys() - {"concurrency"}:
            yield replace(run_entry(FORMAT.name, said), label=label)


FORMAT = Format(
    name="aiperf",
    mark=re.compile(
        "NVIDIA (?:AIPerf|GenAI-Perf) [|]|^ ?(?:[|]|│|┃) *(?:Output Token Throughput|Token-"
        "Weighted Acceptance Length)\\b|^Metric,avg,".encode(),
        re.MULTILINE,
    ),
    parse=parse,
)
