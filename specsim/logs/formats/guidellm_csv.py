"""GuideLLM's CSV: three lines of headings, then a line per load."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._benchmarks import figures_of, names
from specsim.logs.formats._grids import value_of
from specsim.logs.formats._results import joined, run_entry, with_unread
from specsim.logs.source import Source
from specsim.logs.unread import DAMAGED_ROW, MISSING, TRUNCATED, Unread, check, counted

_STRATEGY = re.compile(r"(?:(concurrent|constant|poisson)@(\d{1,7}(?:\.\d{1,9})?)|synchronous)")


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read the means of completed requests, by the names of their columns."""
    unread: Counter[str] = Counter()
    results: list[LogEntry] = []
    heads: list[list[str]] = []
    for line in source.lines():
        cells = next(csv.reader([line.decode("utf-8", "replace")]), [])
        if len(heads) < 3:
            heads.append(cells)
        elif not line.endswith((b"\n", b"\r")):
            unread[TRUNCATED] += 1
        else:
            with counted(unread):
                results.append(_result(heads, cells))
    return with_unread(joined(results, source.path), unread, source.path, FORMAT.name)


def _result(heads: Sequence[Sequence[str]], cells: Sequence[str]) -> LogEntry:
    check(len({len(cells), *map(len, heads)}) == 1, DAMAGED_ROW)
    known, said = names("guidellm_csv"), dict[str, float]()
    for head, cell in zip(zip(*heads, strict=True), cells, strict=True):
        name = known.get(" | ".join(filter(None, head)))
        if name == "strategy":
            found = _STRATEGY.fullmatch(cell)
            kind = "concurrency" if found and found[1] in (None, "concurrent") else "request_rate"
            said |= {kind: float(found[2] or 1)} if found else {}
        elif name and cell:
            value = value_of(cell)
            if value is None or name in said:
                raise Unread(DAMAGED_ROW)
            said[name] = value
    check(said.get("output_tps"), MISSING)
    return run_entry(FORMAT.name, figures_of(said))


FORMAT = Format(
    name="guidellm_csv",
    mark=re.compile(
        rb"^(?=[^\n]*,Server Throughput,)(?=[^\n]*,Token (?:Throughput|Metrics),)", re.M
    ),
    parse=parse,
)
