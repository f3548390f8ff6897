"""vLLM offline: its example of speculative decoding, and ``vllm bench throughput``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specsim.logs.entry import Diagnosis, LogEntry, LogRow
from specsim.logs.format import Format
from specsim.logs.formats._results import entry_of, joined, ratio, row_of, with_unread
from specsim.logs.settings import algorithm_name, chain_settings
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, MISSING, TRUNCATED, check, counted

_COUNTS = {
    "total_num_output_tokens": "output_tokens",
    "num_drafts": "drafts",
    "num_draft_tokens": "drafted",
    "num_accepted_tokens": "accepted",
    "mean acceptance length": "accept_length",
    "Total num prompt tokens": "input_tokens",
    "Total num output tokens": "output_tokens",
}
_COUNT = re.compile(rf"({'|'.join(_COUNTS)}):\s+(\d{{1,12}}(?:\.\d{{1,6}})?)\s*")
_POSITION = re.compile(r"acceptance at token (\d{1,2}):\s*(\d\.\d{2,6})\s*")
_STARTED = re.compile(rf"(?:{'|'.join(_COUNTS)}|acceptance at token \d|Throughput)\b")
_BAR = re.compile(
    r"Processed prompts: +100%\|[^|]*\| *(?P<n>\d{1,7})/(?P=n) \[[\d:]{4,9}<[\d:]{4,9}, +"
    r"[\d.]{1,9} ?(?:it/s|s/it), est\. speed input: (?P<into>\d{1,9}\.\d\d) toks/s, "
    r"output: (?P<out>\d{1,9}\.\d\d) toks/s\]?\s*"
)
_THROUGHPUT = re.compile(
    r"Throughput: (?P<requests>\d{1,6}\.\d\d) requests/s, (?P<all>\d{1,9}\.\d\d) total tokens/s, "
    r"(?P<out>\d{1,9}\.\d\d) output tokens/s\s*"
)
_FLAG = re.compile(
    r"--(method|num[-_]spec(?:ulative)?[-_]tokens|model|model-dir)[ =]([\w./-]{1,99})"
)
_FLAGS = {"num_spec": "num_spec_tokens", "num-spec": "num_spec_tokens", "model-di": "model"}
FULL_SHARE = 0.95
"""Share of rounds with a draft from which on all are taken to have one: prompts have none."""


@dataclass(slots=True)
class _Run:
    """What one run has said so far."""

    said: dict[str, float] = field(default_factory=dict)
    positions: dict[int, float] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read runs of all their requests at once; a figure that comes again begins another run."""
    runs, unread = [_Run()], Counter[str]()
    for raw in source.lines():
        line = raw.decode("utf-8", "replace")
        flags = {_FLAGS.get(name[:8], name): value for name, value in _FLAG.findall(line)}
        found = _figures(line)
        if found and not raw.endswith((b"\n", b"\r")):
            unread[TRUNCATED] += 1
        elif found or flags:
            known = {*runs[-1].said, *(f"at {i}" for i in runs[-1].positions), *runs[-1].flags}
            if known & {*found, *flags}:
                runs.append(_Run())
            positions = {int(k[3:]): v for k, v in found.items() if k.startswith("at ")}
            runs[-1].positions |= positions
            runs[-1].said |= {k: v for k, v in found.items() if not k.startswith("at ")}
            runs[-1].flags |= flags
        elif _STARTED.match(line):
            unread[DAMAGED] += 1
    entries = []
    for run in runs:
        with counted(unread):
            if run.said or run.positions:
                entries.append(_entry(run))
    return with_unread(joined(entries, source.path), unread, source.path, FORMAT.name)


def _figures(line: str) -> dict[str, float]:
    """Figures of a line, by name; those of a position by its number."""
    if found := _COUNT.fullmatch(line):
        return {_COUNTS[found[1]]: float(found[2])}
    if found := _POSITION.fullmatch(line):
        return {f"at {found[1]}": float(found[2])}
    if found := _BAR.search(line):
        names = {"num_requests": "n", "input_tps": "into", "output_tps": "out"}
        return {name: float(found[group]) for name, group in names.items()}
    if found := _THROUGHPUT.search(line):
        check(float(found["out"]) <= float(found["all"]), CONTRADICTION)
        return {"request_throughput": float(found["requests"]), "output_tps": float(found["out"])}
    return {}


def _entry(run: _Run) -> LogEntry:
    """Join the figures of a run, checked against each other."""
    said, positions = dict(run.said), sorted(run.positions)
    check(said.get("output_tps") or said.get("drafts"), MISSING)
    n, tokens, tps = map(said.get, ("num_requests", "output_tokens", "output_tps"))
    into = said.pop("input_tps", None)
    if n and tokens and tps:
        said["duration_s"] = tokens / tps
        if into is not None:
            said["input_len"] = into / tps * tokens / n
    if n:
        said["concurrency"] = n  # all were sent at once
    whole = positions == list(range(len(positions)))
    survival = [run.positions[i] for i in positions] if whole else None
    row = row_of(said, survival, accept_length_scope="run")
    settings: dict[str, object] = {}
    k = _whole(run.flags.get("num_spec_tokens")) or len(positions)
    row, rare = _over_all_rounds(row, said, k)
    if k and said.get("drafts"):
        check(len(positions) <= k, CONTRADICTION)
        check(said.get("drafted", 0.0) <= 1.001 * k * said["drafts"], CONTRADICTION)
        settings |= chain_settings(k)
    if method := run.flags.get("method"):
        settings["algorithm"] = algorithm_name(method)
    if model := run.flags.get("model"):
        settings["model"] = model
    entry = entry_of(FORMAT.name, row, settings, "vllm")
    return replace(entry, diagnoses=(rare,)) if rare else entry


def _whole(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,3}", text) else 0


def _over_all_rounds(
    row: LogRow, said: Mapping[str, float], k: int
) -> tuple[LogRow, Diagnosis | None]:
    """Count the rounds in which a request had no draft, which the printed length leaves out.

    Each gave one token, and so did each prompt. Without the number of all tokens nothing is known
    of them, so neither is the accept length.
    """
    drafts, tokens, accepted = map(said.get, ("drafts", "output_tokens", "accepted"))
    if not drafts or tokens is None or accepted is None:
        return replace(row, accept_length=None, drafted_per_round=None), None
    rounds = tokens - accepted
    check(rounds >= drafts, CONTRADICTION)
    if drafts >= FULL_SHARE * (rounds - said.get("num_requests", 0.0)):
        return row, None
    drafted = said.get("drafted", 0.0)
    text = (
        f"{drafts:.0f} of {rounds:.0f} rounds of requests had a draft ({drafted / drafts:.1f} of "
        f"{k} tokens each): {row.accept_length:.2f} tokens in those, {tokens / rounds:.2f} over all"
    )
    row = replace(row, accept_length=tokens / rounds, drafted_per_round=ratio(drafted, rounds))
    return row, Diagnosis("partial_drafting", text)


FORMAT = Format(
    name="vllm_offline",
    mark=re.compile(
        rb"^(?:total_num_output_tokens|mean acceptance length): +\d|^acceptance at token \d+:"
        rb"|^Throughput: [\d.]+ requests/s, |, est\. speed input: ",
        re.MULTILINE,
    ),
    parse=parse,
)
