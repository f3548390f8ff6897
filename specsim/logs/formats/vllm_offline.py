"""vLLM offline: its example of speculative decoding, and ``vllm bench throughput``."""

import re
from collections.abc import Mapping
from dataclasses import replace

from specsim.logs.diagnose import finding
from specsim.logs.entry import Diagnosis, LogEntry, LogRow
from specsim.logs.formats._benchmarks import Said, figures_of, names
from specsim.logs.formats._results import entry_of, printed_entries, ratio, row_of
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, MISSING, check
from specsim.setting import algorithm_name, chain_settings

_POSITION = re.compile(r"acceptance at token (\d{1,2}):\s*(\d\.\d{2,6})\s*")
_FLAG = re.compile(
    r"--(method|num[-_]spec(?:ulative)?[-_]tokens|model|model-dir)[ =]([\w./-]{1,99})"
)
ALWAYS = ("eagle", "eagle3", "mtp", "draft_model")
"""Methods that draft in every round: their printed length is that of all."""
FULL_SHARE = 0.95
"""Share of rounds with a draft from which on all are taken to have one: prompts have none."""


def parse(source: Source) -> list[LogEntry]:
    """Read runs of all their requests at once."""
    return printed_entries(source, "vllm_offline", _entry, _otherwise)


def _otherwise(line: str) -> Said:
    """Figures of a line without a label: a position, a progress bar, speeds, flags."""
    if found := _POSITION.fullmatch(line):
        return {f"position {int(found[1])}": float(found[2])}
    for text in names("sentences", "vllm_offline"):
        if found := re.search(text, line):
            return {name: float(value) for name, value in found.groupdict().items()}
    flags = ((name.replace("-", "_"), value) for name, value in _FLAG.findall(line))
    return {name.removesuffix("_dir"): value for name, value in flags}


def _entry(stated: Said) -> LogEntry:
    """Join the figures of a run, checked against each other."""
    said = figures_of(stated)
    rates = {name: said.pop(name) for name in list(said) if name.startswith("position ")}
    check(said.get("output_tps") or said.get("drafts"), MISSING)
    n, tokens, tps = map(said.get, ("num_requests", "output_tokens", "output_tps"))
    into = said.pop("input_tps", None)
    if n and tokens and tps:
        said["duration_s"] = tokens / tps
        if into is not None:
            said["input_len"] = into / tps * tokens / n
    if n:
        said["concurrency"] = n  # all were sent at once
    survival = [rates[name] for i in range(len(rates)) if (name := f"position {i}") in rates]
    row = row_of(said, survival if len(survival) == len(rates) else None, accept_length_scope="run")
    settings: dict[str, object] = {}
    said_k = str(stated.get("num_spec_tokens", ""))
    k = int(said_k) if re.fullmatch(r"\d{1,3}", said_k) else 0
    k = k or len(rates)
    row, rare = _over_all_rounds(row, said, k, stated.get("method"))
    if k and said.get("drafts"):
        check(len(rates) <= k, CONTRADICTION)
        check(said.get("drafted", 0.0) <= 1.001 * k * said["drafts"], CONTRADICTION)
        settings |= chain_settings(k)
    if method := stated.get("method"):
        settings["algorithm"] = algorithm_name(str(method))
    if model := stated.get("model"):
        settings["model"] = model
    entry = entry_of("vllm_offline", row, settings, "vllm")
    return replace(entry, diagnoses=(rare,)) if rare else entry


def _over_all_rounds(
    row: LogRow, said: Mapping[str, float], k: int, method: object
) -> tuple[LogRow, Diagnosis | None]:
    """Count the rounds in which a request had no draft, which the printed length leaves out.

    Each gave one token, and so did each prompt. Without the number of all tokens nothing is known
    of them, so neither is the accept length.
    """
    drafts, tokens, accepted = map(said.get, ("drafts", "output_tokens", "accepted"))
    if method in ALWAYS and (tokens is None or not drafts):
        return row, None
    if not drafts or tokens is None or accepted is None:
        return replace(row, accept_length=None, drafted_per_round=None), None
    rounds = tokens - accepted
    check(rounds >= drafts, CONTRADICTION)
    if drafts >= FULL_SHARE * (rounds - said.get("num_requests", 0.0)):
        return row, None
    drafted, over_all = said.get("drafted", 0.0), tokens / rounds
    told = {"drafts": drafts, "rounds": rounds, "each": drafted / drafts, "k": k}
    told |= {"length": row.accept_length or 0.0, "over_all": over_all}
    row = replace(row, accept_length=over_all, drafted_per_round=ratio(drafted, rounds))
    return row, finding("partial_drafting", "rare", **told)
