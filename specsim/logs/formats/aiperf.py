"""AIPerf and GenAI-Perf: their tables in the console, their CSV, their JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._grids import Grid, grids, value_of
from specsim.logs.formats._results import LEAST_RATE, entry_of, joined, row_of, with_unread
from specsim.logs.json_values import MAX_WHOLE, json_values, number, table, text
from specsim.logs.settings import chain_settings
from specsim.logs.source import Source
from specsim.logs.unread import DAMAGED, DAMAGED_ROW, TWO_IN_ONE, Unread, check, counted

FIGURES = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "tpot_s",  # of a request: (latency - first token) / (tokens - 1)
    "inter_chunk_latency": "itl_s",
    "request_latency": "e2e_s",
    "output_token_throughput": "output_tps",
    "request_throughput": "request_throughput",
    "request_count": "num_requests",
    "benchmark_duration": "duration_s",
    "input_sequence_length": "input_len",
    "output_sequence_length": "output_len",
    "token_weighted_acceptance_length": "accept_length",
    "overall_draft_acceptance_rate": "accept_rate",
    "total_steps": "drafts",
    "total_accepted_draft_tokens": "accepted",
    "total_draft_tokens": "drafted",
}
"""Metric -> name of the figure. The mean over requests of accept lengths is not that of rounds."""
UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9, "%": 1e-2}
_NAMED = re.compile(r"([A-Za-z0-9 _./-]{1,64}?)(?: *\(([^()]{1,32})\))?")
_CLIENTS = re.compile(rb"(?:--concurrency[ =]|[Cc]oncurrency: *)(\d{1,6})(?![\d.])")
_WHOLE_DEPTH = 0.02
"""Relative distance to a whole number up to which drafts are all of that depth."""


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read runs: tables of metrics, where one that comes again begins another run, or JSON."""
    unread: Counter[str] = Counter()
    is_json = source.head.lstrip()[:1] in (b"{", b"[")
    results = list(_of_json(source, unread) if is_json else _of_tables(source, unread))
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
                yield from _entries(said, {}, label, unread)
                said = {}
            said, label = said | found, grid.label
            if clients:
                said["concurrency"] = clients[-1]
    yield from _entries(said, {}, label, unread)


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
                value = _scaled(name, value, named[2] or "")
                check(said.setdefault(name, value) == value, TWO_IN_ONE)
        elif name and row[column] != "N/A":
            unread[DAMAGED_ROW] += 1
    return said


def _scaled(name: str, value: float, unit: str) -> float:
    """Return a figure in its SI unit; times and shares must say theirs."""
    needed = name.endswith("_s") or name == "accept_rate"
    check(unit in UNITS or not needed, DAMAGED)
    return value * UNITS.get(unit, 1.0)


def _figure(metric: str) -> str | None:
    tag = re.sub(r"[ -]+", "_", metric.strip().lower())
    return FIGURES.get(tag.replace("spec_decode_", ""))


def _of_json(source: Source, unread: Counter[str]) -> Iterator[LogEntry]:
    """Read exported profiles: {metric: {"unit": ..., "avg": ...}, "input_config": {...}}."""
    for value in json_values(source.lines()):
        with counted(unread):
            if isinstance(value, Unread):
                raise value
            said: dict[str, float] = {}
            for key in value if isinstance(value, dict) else ():
                of, name = table(value, key), _figure(key)
                if name and (mean := number(of, "avg")) is not None:
                    said[name] = _scaled(name, mean, text(of, "unit") or "")
            config = table(value, "input_config")
            clients = _unique(config, "concurrency")
            if isinstance(clients, int) and 0 < clients <= MAX_WHOLE:
                said["concurrency"] = float(clients)
            model = _unique(config, "model_names") or _unique(config, "model")
            settings: dict[str, object] = {"model": model} if isinstance(model, str) else {}
            yield from _entries(said, settings, "", unread)


def _unique(config: Mapping[str, Any], key: str) -> Any:
    """Return what a configuration says under a key, however deep; None if it says several."""
    found, stack = [], [config]
    while stack:
        node = stack.pop()
        for name, value in node.items():
            if name == key and value is not None:
                found.append(value[0] if isinstance(value, list) and len(value) == 1 else value)
            elif isinstance(value, dict):
                stack.append(value)
    return found[0] if found and all(value == found[0] for value in found) else None


def _entries(
    said: dict[str, float], settings: dict[str, object], label: str, unread: Counter[str]
) -> Iterator[LogEntry]:
    """Yield the entry of a run, if it measured anything of decoding."""
    with counted(unread):
        if not said.keys() - {"concurrency"}:
            return
        served = said.get("request_throughput", 0.0)
        if "concurrency" not in said and served > LEAST_RATE and "e2e_s" in said:
            said["in_flight"] = served * said["e2e_s"]  # Little's law
        accept, rate = said.get("accept_length"), said.get("accept_rate")
        if accept and rate and not said.get("drafted"):
            said["drafted_per_round"] = (accept - 1) / rate
        row = row_of(said, accept_length_scope="run")
        each = row.drafted_per_round or 0.0
        k = round(each)
        if k and abs(each - k) <= _WHOLE_DEPTH * k:
            settings = settings | chain_settings(k)
            settings["inferred"] = ["topk", "num_steps", "num_draft_tokens"]
        yield replace(entry_of(FORMAT.name, row, settings), label=label)


FORMAT = Format(
    name="aiperf",
    mark=re.compile(
        "NVIDIA (?:AIPerf|GenAI-Perf) [|]|^ ?(?:[|]|│|┃) *(?:Output Token Throughput|Token-"
        'Weighted Acceptance Length)\\b|^Metric,avg,|"output_token_throughput": *[{]'.encode(),
        re.MULTILINE,
    ),
    parse=parse,
)
