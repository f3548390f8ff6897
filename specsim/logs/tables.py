"""Printed results: serving tables, send_one and one-batch grids, evalscope's summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from specsim.logs.bench_json import grouped, with_unread
from specsim.logs.entry import Diagnosis, LogEntry, LogRow
from specsim.logs.paste import label_of
from specsim.logs.serving import Result, serving_result
from specsim.logs.source import as_lines

SERVING_TITLE = "Serving Benchmark Result"
_LABELS = {
    "Backend": "backend",
    "Traffic request rate": "request_rate",
    "Request rate configured (RPS)": "request_rate",
    "Max request concurrency": "max_concurrency",
    "Maximum request concurrency": "max_concurrency",
    "Successful requests": "completed",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Request throughput (req/s)": "request_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Total token throughput (tok/s)": "total_token_throughput",
    "Total Token throughput (tok/s)": "total_token_throughput",
    "Peak concurrent requests": "max_concurrent_requests",
    "Concurrency": "concurrency",
    "Accept length": "accept_length",
    "Acceptance length": "spec_decode_acceptance_length",
    "Drafts": "spec_decode_num_drafts",
    "Draft tokens": "spec_decode_draft_tokens",
    "Accepted tokens": "spec_decode_accepted_tokens",
}
_LATENCY = re.compile(r"(Mean|Median|P90|P95|P99) (TTFT|TPOT|ITL|E2E Latency|E2EL) \(ms\)")
_LINE = re.compile(r"([A-Z][A-Za-z0-9 ()/.]{1,48}):[ \t]+(\S{1,32})[ \t]*")
_POSITION = re.compile(r"[ \t]*Position (\d{1,2}):[ \t]+(\d{1,3}\.\d{1,4})[ \t]*")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_MEASURE = re.compile(r"(?:Mean|Median|P9\d|Output|Total|Request|Accept|Benchmark)\b")
_GRID = re.compile(r"[+|][-=+|]{3,}")


def read_tables(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read printed results, one entry per table.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.
    """
    reader = _Tables()
    for line in as_lines(lines):
        reader.read(line)
    reader.close(ended=False)
    return with_unread(grouped(reader.results, path), reader.unread, path, "table")


class _Tables:
    """Collects the rows of the table that is open."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.unread: Counter[str] = Counter()
        self.serving: dict[str, object] | None = None
        self.before: dict[str, object] = {}
        self.positions: dict[int, float] = {}
        self.header: list[str] = []
        self.summary: dict[str, str] | None = None
        self.complete = False
        self.label = ""

    def read(self, line: bytes) -> None:
        """Read one line."""
        text = line.decode("utf-8", "replace").strip("\r\n")
        bare = text.strip()
        if SERVING_TITLE in text:
            self.close(ended=False)
            self.serving, self.positions = dict(self.before), {}
        elif self.serving is not None and re.fullmatch(r"={20,}", bare):
            self.close(ended=True)
        elif bare.startswith("|"):
            self._cells([c.strip() for c in bare.strip("|").split("|")], bare.endswith("|"))
        elif bare.startswith("+") and self.summary is not None:
            self.complete = bool(_GRID.fullmatch(bare))
        else:
            self._labelled(line, text)

    def _labelled(self, line: bytes, text: str) -> None:
        found, position = _LINE.fullmatch(text), _POSITION.fullmatch(text)
        if position and self.serving is not None:
            self.positions[int(position[1])] = float(position[2]) / 100
            return
        label = label_of(line)
        if not found:
            self.label = label or self.label
            if self.serving is not None and _MEASURE.match(text):
                self.unread["truncated"] += 1
            return
        key = _key(found[1])
        if key is None:
            return
        if not line.endswith((b"\n", b"\r")):
            self.unread["truncated"] += 1
            return
        target = self.before if self.serving is None else self.serving
        if key in target and target is self.serving and key not in self.before:
            self.unread["two tables written into one"] += 1
            self.serving = None
            return
        value = _value(found[2])
        if value is not None:
            target[key] = value

    def _cells(self, cells: list[str], ended: bool) -> None:
        """Take one row of a grid."""
        if not ended:
            self.unread["truncated"] += 1
            return
        if cells == ["Key", "Value"]:
            self.close(ended=False)
            self.summary, self.complete = {}, False
        elif self.summary is not None and len(cells) == 2:
            self.summary[cells[0]] = cells[1]
        elif any(c.lower() in _COLUMNS for c in cells):
            self.header = [_COLUMNS.get(c.lower(), "") for c in cells]
        elif self.header and not all(set(c) <= set("-: ") for c in cells):
            if len(cells) != len(self.header):
                self.unread["damaged row"] += 1
                return
            result = _grid_row(dict(zip(self.header, cells, strict=True)), self.label)
            self._keep(result)

    def close(self, ended: bool) -> None:
        """End the table that is open."""
        if self.serving is not None:
            record = dict(self.serving)
            if sorted(self.positions) == list(range(len(self.positions))) and self.positions:
                record["spec_decode_per_position_acceptance_rates"] = [
                    self.positions[i] for i in sorted(self.positions)
                ]
            result = serving_result(record, "table")
            if isinstance(result, Result):
                result = replace(result, label=self.label)
                if not ended:
                    result = _cut(result, "the table has no end: its last lines are missing")
            self._keep(result)
            self.label, self.before = "", {}
        if self.summary is not None:
            summary = _evalscope(self.summary, self.label)
            if isinstance(summary, Result) and not self.complete:
                summary = _cut(summary, "the grid is cut: its last rows are missing")
            self._keep(summary)
        self.serving, self.summary, self.complete = None, None, False

    def _keep(self, result: Result | str) -> None:
        if isinstance(result, str):
            self.unread[result] += 1
        else:
            self.results.append(result)


def _cut(result: Result, text: str) -> Result:
    return replace(result, diagnoses=(*result.diagnoses, Diagnosis("truncated", text)))


def _key(label: str) -> str | None:
    """Key of the JSON record that a printed label stands for."""
    latency = _LATENCY.fullmatch(label)
    if latency:
        metric = {"E2E Latency": "e2e_latency"}.get(latency[2], latency[2].lower())
        return f"{latency[1].lower()}_{metric}_ms"
    return _LABELS.get(label)


def _value(text: str) -> object:
    if text in ("None", "not"):  # "not set"
        return None
    if _NUMBER.fullmatch(text):
        return float(text)
    return text


_COLUMNS = {
    "latency (s)": "latency",
    "tokens": "tokens",
    "acc length": "acc_length",
    "speed (token/s)": "speed",
    "batch size": "batch_size",
    "input len": "input_len",
    "output len": "output_len",
    "output throughput (tok/s)": "output_throughput",
}


def _grid_row(cells: Mapping[str, str], label: str) -> Result | str:
    """One row of send_one's grid (a single stream), or of bench_one_batch_server's."""
    values = {k: float(v) for k, v in cells.items() if k and _NUMBER.fullmatch(v)}
    latency, accept = values.get("latency"), values.get("acc_length")
    if accept is not None and not 1 <= accept <= 129:
        return "accept length out of range"
    if "speed" in cells:
        tokens, speed = values.get("tokens"), values.get("speed")
        if not latency or not tokens or not speed or accept is None:
            return "a field is missing or damaged"
        if abs(tokens / latency - speed) > 0.01 * speed:
            return "numbers contradict each other"
        batch, tps, out = 1.0, speed, tokens
    else:
        tps, batch = values.get("output_throughput", 0.0), values.get("batch_size", 0.0)
        if tps <= 0 or batch < 1 or batch % 1 or not latency:
            return "a field is missing or damaged"
        out = values.get("output_len", 0.0)
    row = LogRow(
        kind="closed_loop",
        batch_size=batch,
        concurrency=batch,
        output_tps=tps,
        accept_length=accept,
        accept_length_scope="run" if "speed" in cells else "pooled",
        round_time_s=accept * batch / tps if accept else None,
        num_requests=int(batch),
        input_len=values.get("input_len"),
        output_len=out or None,
        duration_s=latency,
    )
    name = "sglang_send_one" if "speed" in cells else "sglang_bench_one_batch_table"
    return Result(name, "sglang", None, {}, row, label=label)


_EVALSCOPE = {
    "Time taken for tests (s)": "duration",
    "Number of concurrency": "concurrency",
    "Total requests": "total",
    "Succeed requests": "completed",
    "Output token throughput (tok/s)": "tps",
    "Average time to first token (s)": "ttft",
    "Average time per output token (s)": "tpot",
    "Average input tokens per request": "input_len",
    "Average output tokens per request": "output_len",
}


def _evalscope(cells: Mapping[str, str], label: str) -> Result | str:
    values = {
        _EVALSCOPE[k]: float(v)
        for k, v in cells.items()
        if k in _EVALSCOPE and _NUMBER.fullmatch(v)
    }
    if any(values.get(name, 0) % 1 for name in ("concurrency", "total", "completed")):
        return "a count is no whole number"
    duration, done = values.get("duration"), values.get("completed")
    if not duration or not done:
        return "a field is missing or damaged"
    tps, out = values.get("tps"), values.get("output_len")
    if tps and out and abs(out * done / duration - tps) > 0.03 * tps:
        return "numbers contradict each other"
    if done > values.get("total", done):
        return "numbers contradict each other"
    row = LogRow(
        kind="closed_loop",
        concurrency=values.get("concurrency"),
        output_tps=tps,
        ttft_s=values.get("ttft"),
        tpot_s=values.get("tpot"),
        num_requests=int(done),
        input_len=values.get("input_len"),
        output_len=out,
        duration_s=duration,
    )
    return Result("evalscope", None, None, {}, row, label=label)
