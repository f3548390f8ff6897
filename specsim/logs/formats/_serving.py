"""Serving benchmarks of SGLang and vLLM, and what was made after them: JSON and tables."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specsim.logs.diagnose import told
from specsim.logs.entry import LogEntry
from specsim.logs.formats._benchmarks import in_si, names
from specsim.logs.formats._results import engine_of, entry_of, row_of
from specsim.logs.formats.sglang.facts import settings_of_args
from specsim.logs.json_values import number, table, text, whole
from specsim.logs.paste import Headings, label_of
from specsim.logs.settings import algorithm_name, chain_settings
from specsim.logs.unread import MISSING, TRUNCATED, check, counted

RATES = "spec_decode_per_position_acceptance_rates"

_SGLANG_KEYS = {
    *("accept_length", "total_throughput", "server_info", "total_input_text_tokens"),
    *("total_output_tokens_retokenized", "concurrency", "max_itl_ms"),
}
_TEXTS = {"backend": "backend", "dataset_name": "dataset", "tag": "tag"}
_TITLE = re.compile(r"(?:Serving|Offline Throughput) Benchmark Result")
_END = re.compile(r"\s*={20,}\s*")
_LINE = re.compile(r"([A-Z][A-Za-z0-9 ()/.]{1,48}):[ \t]+(\S{1,32})[ \t]*")
_POSITION = re.compile(r"[ \t]*Position (\d{1,2}):[ \t]+(\d{1,3}\.\d{1,4})[ \t]*")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_MEASURE = re.compile(r"(?:Mean|Median|P9\d|Output|Total|Request|Accept|Benchmark)\b")


def serving(record: Mapping[str, Any], suffix: str = "") -> LogEntry:
    """Read a record of ``sglang.bench_serving`` or ``vllm bench serve``, by the keys of their JSON.

    `suffix` goes to the name of the format. Raises :class:`Unread` if it makes no measurement.
    """
    known = names("serving")
    check(all(number(record, k) is not None for k in known if record.get(k) is not None), MISSING)
    said = in_si({n: v for key, n in known.items() if (v := number(record, key)) is not None})
    check(whole(record, "completed") is not None and said.get("duration_s"), MISSING)
    check(said["num_requests"], "no request completed")
    check(said.get("output_tps"), MISSING)
    rates = record.get(RATES)
    survival = rates if isinstance(rates, list) and rates else None
    check(all(type(r) in (int, float) for r in survival or ()), "per-position rates are damaged")
    info = table(record, "server_info")
    settings = _settings(record, info, survival)
    if settings.get("algorithm") == "none":
        said.setdefault("accept_length", 1.0)
    if rate := _request_rate(record):
        said["request_rate"] = rate
    elif "concurrency" not in said and "max_concurrency" in record:
        said["concurrency"] = said["num_requests"]  # all were sent at once
    vllm = _is_vllms(record)
    # SGLang reports the mean since the server started, vLLM that of this run.
    row = row_of(said, survival, accept_length_scope="run" if vllm else "pooled")
    later = said.get("e2e_s", 0.0) - said.get("ttft_s", 0.0)
    if not vllm and row.tpot_s is None and row.ttft_s and (row.output_len or 0) > 1 and later > 0:
        row = replace(row, tpot_s=later / ((row.output_len or 0.0) - 1))
    return entry_of(
        ("vllm_bench_serve" if vllm else "sglang_bench_serving") + suffix,
        row,
        settings,
        _engine(record, vllm),
        text(info, "version"),
        # SGLang's own client spreads the gap between two chunks over their tokens
        chunks=text(record, "backend") != "sglang",
        # that prints an accept length only where a drafter is loaded
        drafts=not vllm and "accept_length" in record and settings.get("algorithm") != "none",
    )


def _is_vllms(record: Mapping[str, Any]) -> bool:
    """Whether vLLM's client wrote it: SGLang's has keys of its own, whatever server it asks."""
    ours = (text(record, "backend") or "").startswith("sglang")
    return not ours and not _SGLANG_KEYS & record.keys()


def _engine(record: Mapping[str, Any], vllm: bool) -> str | None:
    """Return the engine that was asked: a backend may name an interface that others have too."""
    own = "openai" if "user_throughput" in record else "vllm"  # TensorRT-LLM's copy of vLLM's
    engine = engine_of(text(record, "backend") or own)
    if vllm:
        return engine or ("vllm" if any(key.startswith("spec_decode_") for key in record) else None)
    return "sglang" if engine == "sglang" or "server_info" in record else None


def _request_rate(record: Mapping[str, Any]) -> float | None:
    """Return requests per second; None where all were sent at once."""
    value = record.get("request_rate")
    try:
        rate = None if isinstance(value, bool) else float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return None
    return rate if rate and 0 < rate < math.inf else None


def _settings(
    record: Mapping[str, Any], info: Mapping[str, Any], survival: Sequence[float] | None
) -> dict[str, object]:
    settings = settings_of_args(info) if info else {}
    if survival:
        settings.update(chain_settings(len(survival)))
    if model := text(record, "model_id"):
        settings.setdefault("model", model)
    settings |= {name: value for key, name in _TEXTS.items() if (value := text(record, key))}
    if algorithm := text(record, "speculative_algorithm"):
        settings["algorithm"] = algorithm_name(algorithm)
    return settings


@dataclass(slots=True)
class ServingTables:
    """Takes printed tables of serving benchmarks out of a text: a title, lines, a rule."""

    results: list[LogEntry]  # where they go
    unread: Counter[str]
    record: dict[str, Any] | None = None  # of the table that is open
    before: dict[str, Any] = field(default_factory=dict)  # labelled lines above one
    above: Headings = field(default_factory=Headings)
    label: str = ""

    def others(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the lines outside of such tables, a blank one for each title."""
        for line in lines:
            text = line.decode("utf-8", "replace").strip("\r\n")
            if _TITLE.search(text):
                self._close("the table has no end: its last lines are missing")
                self.record = dict(self.before)
                yield b"\n"
            elif self.record is None:
                self._outside(line, text)
                yield line
            elif _END.fullmatch(text):
                self._close()
            else:
                self._inside(self.record, line, text)
        self._close("the table has no end: its last lines are missing")

    def _outside(self, line: bytes, text: str) -> None:
        found = _LINE.fullmatch(text)
        if self.above.read(line):
            self.label = ""
        elif not found:
            self.label = label_of(line) or self.label
        elif key := names("lines", "serving").get(found[1]):
            self._state(self.before, key, found[2], line)

    def _inside(self, record: dict[str, Any], line: bytes, text: str) -> None:
        found, position = _LINE.fullmatch(text), _POSITION.fullmatch(text)
        if position:
            record.setdefault(RATES, {})[int(position[1])] = float(position[2]) / 100
        elif not found:
            self.unread[TRUNCATED] += _MEASURE.match(text) is not None
            self.label = label_of(line) or self.label
        elif key := names("lines", "serving").get(found[1]):
            if key in record and key not in self.before:
                self.unread["two tables written into one"] += 1
                self.record = None
            else:
                self._state(record, key, found[2], line)

    def _state(self, record: dict[str, Any], key: str, value: str, line: bytes) -> None:
        """Take a figure of a table, or one printed above it."""
        if not line.endswith((b"\n", b"\r")):
            self.unread[TRUNCATED] += 1
        elif value not in ("None", "not"):  # "not set"
            record[key] = float(value) if _NUMBER.fullmatch(value) else value

    def _close(self, cut: str = "") -> None:
        """End the table that is open."""
        if self.record is None:
            return
        rates = self.record.pop(RATES, {})
        if rates and sorted(rates) == list(range(len(rates))):
            self.record[RATES] = [rates[i] for i in sorted(rates)]
        with counted(self.unread):
            result = serving(self.record, suffix="_table")
            diagnoses = (*result.diagnoses, *told([("truncated", cut)]))
            label = ", ".join(filter(None, (self.above.label, self.label)))
            self.results.append(replace(result, label=label, diagnoses=diagnoses))
        self.record, self.before = None, {}
