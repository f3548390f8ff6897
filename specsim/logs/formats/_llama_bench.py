"""llama.cpp without a server: llama-batched-bench, llama-sweep-bench and llama-bench.

Steps of plain decoding by batch, which is what verifying as many tokens costs too.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from specsim.logs.entry import LogEntry, Timing
from specsim.logs.formats._benchmarks import names
from specsim.logs.formats._grids import value_of
from specsim.logs.formats._results import agree, row_of
from specsim.logs.unread import CONTRADICTION, DAMAGED_ROW, MISSING, Unread, check
from specsim.setting import NO_SPECULATION

NAME = "llama_bench"
_BATCHED = {"PP", "TG", "N_KV", "T_TG s", "S_TG t/s"}
_OF_BATCHES = {"T s", "S t/s", "t", "speed"}
_BENCH = {"model", "test", "t/s"}
_FIELDS = {"n_prompt", "n_gen", "avg_ts"}
_TEST = re.compile(r"(pp|tg)(\d{1,7})(?:\+tg(\d{1,7}))?(?: @ d(\d{1,9}))?")
_DIGITS = 0.006  # half of the last digit of seconds (three) and speeds (two), and what floats add


def wanted(cells: tuple[str, ...]) -> bool:
    """Whether the columns of a table are those of one of the benchmarks."""
    return any(set(cells) >= of for of in (_BATCHED, _BENCH, _FIELDS))


def is_json(record: Mapping[str, object]) -> bool:
    """Whether a record is of ``llama-bench`` or ``llama-batched-bench``."""
    return any(record.keys() >= of for of in (_FIELDS, {"pl", "tg", "t_tg", "speed_tg"}))


def of_json(record: Mapping[str, object]) -> LogEntry:
    """Read a record of ``llama-bench -o json`` or ``llama-batched-bench --output-format jsonl``."""
    heads = names(NAME)
    cells = {heads.get(key, key): str(value) for key, value in record.items()}
    return entry("", cells)


class _Figures(NamedTuple):
    """What a row says: decoding of a batch, and its prompts; 0 for what it did not do."""

    batch: float
    made: float  # tokens of each
    made_s: float
    before: float  # tokens of context
    prompt: float  # tokens
    prompt_s: float
    prompts: int


def entry(label: str, record: Mapping[str, str]) -> LogEntry:
    """Read a row, by the columns of the table."""
    batched = not (record.keys() >= {"test", "t/s"} or record.keys() >= _FIELDS)
    said = _batched(record) if batched else _bench(record)
    rows, timings = [], []
    if said.made:
        check(said.made_s > 0, DAMAGED_ROW)
        step_s = said.made_s / said.made
        figures = {"batch_size": said.batch, "concurrency": said.batch, "round_time_s": step_s}
        figures |= {"accept_length": 1.0, "output_tps": said.batch / step_s}
        figures |= {"input_len": said.before, "output_len": said.made}
        context = {"context_len": said.before + said.made / 2}
        row = row_of(figures, kind="steady_decode", extra=context)
        rows = [replace(row, input_len=said.before)]  # of 0 tokens, too
    if said.prompt and said.prompt_s:
        prompts, tokens = said.prompts, said.prompt
        timings = [Timing("prefill", said.prompt_s, batch_size=prompts, prompt_tokens=tokens)]
    model = record.get("model") or record.get("model_type")
    settings = {**NO_SPECULATION, **({"model": model} if model else {})}
    name, engine = NAME, "llama.cpp"
    return LogEntry(
        "", name, engine, None, settings, tuple(rows), timings=tuple(timings), label=label
    )


def _batched(record: Mapping[str, str]) -> _Figures:
    """Read a row of llama-batched-bench, or of ik_llama's llama-sweep-bench (no column B)."""
    columns = ("PP", "TG", "N_KV", "T_TG s", "S_TG t/s", "T_PP s", "S_PP t/s")
    pp, tg, n_kv, tg_s, tg_tps, pp_s, pp_tps = (_number(record, name) for name in columns)
    batch = _number(record, "B") if "B" in record else 1.0
    check("B" in record or not record.keys() & _OF_BATCHES, DAMAGED_ROW)  # B's name is broken
    check(all(n % 1 == 0 for n in (pp, tg, n_kv, batch)) and batch >= 1, DAMAGED_ROW)
    check(tg, MISSING)
    check(_tells(batch * tg, tg_s, tg_tps), CONTRADICTION)
    shared = _tells(pp, pp_s, pp_tps)  # one prompt for all
    check(not pp or shared or _tells(batch * pp, pp_s, pp_tps), CONTRADICTION)
    if "B" in record:
        check(n_kv in (batch * (pp + tg), pp + batch * tg), CONTRADICTION)
    before = pp if "B" in record else n_kv
    return _Figures(batch, tg, tg_s, before, pp, pp_s, 1 if shared else round(batch))


def _bench(record: Mapping[str, str]) -> _Figures:
    """Read a row of llama-bench: one stream that decodes, or one prompt."""
    if "test" in record:
        test, tps = _TEST.fullmatch(record["test"]), _number(record, "t/s")
        check(test is not None, DAMAGED_ROW)
        kind, n, more, depth = test.groups() if test else ("", 0, 0, 0)
        prompt, made = (float(n), float(more or 0)) if kind == "pp" else (0.0, float(n))
    else:  # CSV and JSON
        prompt, made, tps = (_number(record, key) for key in ("n_prompt", "n_gen", "avg_ts"))
        depth = _number({"n_depth": "0", **record}, "n_depth")
    check(not (prompt and made), "prompt and decoding in one figure")
    check(tps > 0 and prompt + made > 0, DAMAGED_ROW)
    return _Figures(1.0, made, made / tps, float(depth or 0), prompt, prompt / tps, 1)


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
