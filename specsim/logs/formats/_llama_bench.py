"""llama.cpp without a server: llama-batched-bench, llama-sweep-bench and llama-bench.

Steps of plain decoding by batch, which is what verifying as many tokens costs too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from specsim.logs.entry import LogEntry, LogRow, Timing
from specsim.logs.formats._grids import value_of
from specsim.logs.formats._results import agree, row_of
from specsim.logs.settings import NO_SPECULATION
from specsim.logs.unread import CONTRADICTION, DAMAGED_ROW, MISSING, Unread, check

NAME = "llama_bench"
_BATCHED = {"PP", "TG", "N_KV", "T_TG s", "S_TG t/s"}
_OF_BATCHES = {"T s", "S t/s", "t", "speed"}
_BENCH = {"model", "test", "t/s"}
_FIELDS = {"n_prompt", "n_gen", "avg_ts"}
_JSON = {
    "pp": "PP",
    "tg": "TG",
    "pl": "B",
    "n_kv": "N_KV",
    "t_pp": "T_PP s",
    "t_tg": "T_TG s",
    "speed_pp": "S_PP t/s",
    "speed_tg": "S_TG t/s",
}
_TEST = re.compile(r"(pp|tg)(\d{1,7})(?:\+tg(\d{1,7}))?(?: @ d(\d{1,9}))?")
_DIGITS = 0.006
"""Half of the last printed digit of seconds (three) and speeds (two), and what floats add."""


def wanted(cells: tuple[str, ...]) -> bool:
    """Whether the columns of a table are those of one of the benchmarks."""
    return any(set(cells) >= of for of in (_BATCHED, _BENCH, _FIELDS))


def is_json(record: Mapping[str, object]) -> bool:
    """Whether a record is of ``llama-bench`` or ``llama-batched-bench``."""
    return any(record.keys() >= of for of in (_FIELDS, {"pl", "tg", "t_tg", "speed_tg"}))


def of_json(record: Mapping[str, object]) -> LogEntry:
    """Read a record of ``llama-bench -o json`` or ``llama-batched-bench --output-format jsonl``."""
    cells = {_JSON.get(key, key): str(value) for key, value in record.items()}
    return entry("", cells)


def entry(label: str, record: Mapping[str, str]) -> LogEntry:
    """Read a row, by the columns of the table."""
    if record.keys() >= _FIELDS:  # as CSV and JSON of llama-bench have them
        n, made, depth = (record.get(key, "0") for key in ("n_prompt", "n_gen", "n_depth"))
        test = f"pp{n}+tg{made}" if "0" not in (n, made) else f"tg{made}" if n == "0" else f"pp{n}"
        test += f" @ d{depth}" if depth != "0" else ""
        record = {**record, "test": test, "t/s": record["avg_ts"]}
    row, timing = _bench_row(record) if record.keys() >= {"test", "t/s"} else _batched_row(record)
    model = record.get("model") or record.get("model_type")
    return LogEntry(
        "",
        NAME,
        "llama.cpp",
        settings={**NO_SPECULATION, **({"model": model} if model else {})},
        rows=(row,) if row else (),
        timings=(timing,) if timing else (),
        label=label,
    )


def _batched_row(record: Mapping[str, str]) -> tuple[LogRow, Timing | None]:
    """Read a row of llama-batched-bench, or of ik_llama's llama-sweep-bench (no column B)."""
    names = ("PP", "TG", "N_KV", "T_TG s", "S_TG t/s", "T_PP s", "S_PP t/s")
    pp, tg, n_kv, tg_s, tg_tps, pp_s, pp_tps = (_number(record, name) for name in names)
    batch = _number(record, "B") if "B" in record else 1.0
    check("B" in record or not record.keys() & _OF_BATCHES, DAMAGED_ROW)  # B's name is broken
    check(all(n % 1 == 0 for n in (pp, tg, n_kv, batch)) and batch >= 1, DAMAGED_ROW)
    if not tg:
        raise Unread(MISSING)
    check(_tells(batch * tg, tg_s, tg_tps), CONTRADICTION)
    shared = _tells(pp, pp_s, pp_tps)  # one prompt for all
    check(not pp or shared or _tells(batch * pp, pp_s, pp_tps), CONTRADICTION)
    if "B" in record:
        check(n_kv in (batch * (pp + tg), pp + batch * tg), CONTRADICTION)
    before = pp if "B" in record else n_kv
    row = _step(batch, tg_s / tg, before + tg / 2)
    prompts = 1 if shared else round(batch)
    timing = Timing("prefill", pp_s, batch_size=prompts, prompt_tokens=pp) if pp and pp_s else None
    return replace(row, input_len=before, output_len=tg), timing


def _bench_row(record: Mapping[str, str]) -> tuple[LogRow | None, Timing | None]:
    """Read a row of llama-bench: one stream that decodes, or one prompt."""
    test, tps = _TEST.fullmatch(record["test"]), _number(record, "t/s")
    check(test is not None and tps > 0, DAMAGED_ROW)
    if test is None or test[3]:
        raise Unread("prompt and decoding in one figure")
    n, depth = int(test[2]), float(test[4] or 0)
    check(n, DAMAGED_ROW)
    if test[1] == "tg":
        return replace(_step(1.0, 1.0 / tps, depth + n / 2), input_len=depth, output_len=n), None
    return None, Timing("prefill", n / tps, batch_size=1, prompt_tokens=n)


def _step(batch: float, seconds: float, context: float) -> LogRow:
    check(seconds > 0, DAMAGED_ROW)
    said = {"batch_size": batch, "concurrency": batch, "round_time_s": seconds}
    said |= {"accept_length": 1.0, "output_tps": batch / seconds}
    return row_of(said, kind="steady_decode", extra={"context_len": context})


def _number(record: Mapping[str, str], name: str) -> float:
    value = value_of(record.get(name, ""))
    if value is None:
        raise Unread(DAMAGED_ROW)
    return value


def _tells(tokens: float, seconds: float, tps: float) -> bool:
    """Whether a printed speed is that of tokens in printed seconds."""
    if not seconds:
        return tokens == 0
    error = (0.0006 / seconds + _DIGITS / max(tps, _DIGITS)) + 1e-4
    return agree(tokens / seconds, tps, error)
