"""What programs print in lines: figures in sentences, or after labels, of ``benchmarks.toml``."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from specsim.logs.diagnose import finding
from specsim.logs.entry import Diagnosis, LogEntry, LogRow
from specsim.logs.formats import listed, pattern
from specsim.logs.formats._benchmarks import Said, figures_of, names
from specsim.logs.formats._results import collected, engine_of, run_entry
from specsim.logs.paste import VERSION, Above
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, MISSING, TRUNCATED, check, counted

NAME, OFFLINE = "console", "vllm_offline"
TEXTS = ("model", "quantisation", "kv_dtype", "version", "algorithm")
_LABELLED = re.compile(rb"([A-Za-z\[][^:\n]{1,60}?) *:\s+(\S[^\n]{0,99}?)[ \t]*\r?\n?")
_NUMBER = re.compile(rb"\d{1,15}(?:\.\d{1,9})?(?:E[+-]\d\d)?")
ALWAYS = ("eagle", "eagle3", "mtp", "draft_model")  # draft in every round
FULL_SHARE = 0.95  # share of rounds with a draft from which on all have one: prompts have none


def parse(source: Source) -> list[LogEntry]:
    """Read lines of ``[console.PROGRAM]``: an entry per run.

    Lines of no program are a person's: labels, and the command whose settings the figures are of.
    """
    unread: Counter[str] = Counter()
    results: list[LogEntry] = []
    programs = [_Program(name, of, results, unread) for name, of in names(NAME).items()]
    for line in source.lines():
        read = [one.take(line) for one in programs]
        unread[DAMAGED] += not any(read) and _marks().search(line) is not None
    for one in programs:
        if not one.last:
            one.end()
    return collected(results, unread, source.path, NAME)


@cache
def _marks() -> re.Pattern[bytes]:
    """Return what shows that a line is a program's, though it may be damaged."""
    labels = (re.escape(label) for of in names(NAME).values() for label in of.get("labels", ()))
    begun = rf"^(?:{'|'.join(labels)}) *:(?!\s+None\s*$)"
    return pattern("|".join((*listed("formats", NAME)["mark"], begun)))


@dataclass(slots=True)
class _Program:
    """The lines of one program: what its present run has said.

    A run ends with the figure that is printed last; of a program that has no such figure, where
    one comes again.
    """

    name: str
    of: Mapping[str, Any]  # its row of ``benchmarks.toml``
    results: list[LogEntry]  # where runs go
    unread: Counter[str]
    last: str = field(init=False)
    above: Above = field(init=False)
    said: Said = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last = self.of.get("last", "")
        self.above = Above(engine_of(self.name.split("_")[0]) or "")

    def take(self, line: bytes) -> bool:
        """Take in a line; return whether it is the program's."""
        new = self._figures(line)
        if "restarts" in self.of and pattern(self.of["restarts"]).match(line):
            self.results[:] = [result for result in self.results if result.format != self.name]
        if new and not (self.last or line.endswith((b"\n", b"\r"))):
            self.unread[TRUNCATED] += 1
        else:
            again = new.keys() & self.said.keys()
            if self.last and any(new[name] != self.said[name] for name in again):
                self.said = {}  # another run, and the last one did not end
            elif again and not self.last:
                self.end()
            self.said |= new
            if self.last in self.said:
                self.end()
        self.above.read(line)
        return bool(new)

    def _figures(self, line: bytes) -> Said:
        """Return what a line says, in sentences or after a label."""
        said: list[tuple[str, bytes]] = []
        for found in (pattern(text).search(line) for text in self.of.get("lines", ())):
            groups = found.groupdict() if found else {}
            at = groups.pop("at", b"").decode()  # a position of drafts
            said += [(name + at, value) for name, value in groups.items() if value]
        labelled = _LABELLED.fullmatch(line) if "labels" in self.of else None
        name = self.of["labels"].get(labelled[1].decode("utf-8", "replace")) if labelled else None
        if labelled and (name in TEXTS or (name and _NUMBER.fullmatch(labelled[2]))):
            said.append((name, labelled[2]))
        texts = {name: value.decode("utf-8", "replace") for name, value in said}
        return {name: text if name in TEXTS else float(text) for name, text in texts.items()}

    def end(self) -> None:
        """Keep the run, if it says a figure."""
        with counted(self.unread):
            if figures_of(self.said):
                label, launch = self.above.label, dict(self.above.launch())
                version = launch.pop(VERSION, None)
                entry = (_offline if self.name == OFFLINE else run_entry)(
                    self.name, self.said, launch
                )
                version = entry.engine_version or (str(version) if version else None)
                self.results.append(replace(entry, label=label, engine_version=version))
        self.said = {}


def _offline(program: str, said: Said, more: Mapping[str, object]) -> LogEntry:
    """Return a run of vLLM's example of speculative decoding, or of ``vllm bench throughput``."""
    figures = figures_of(said)
    positions = [name for name in figures if name.startswith("position_")]
    rates = [figures[f"position_{i}"] for i in range(len(positions)) if f"position_{i}" in figures]
    check(figures.get("output_tps") or figures.get("drafts"), MISSING)
    n, tokens, tps, into = map(
        figures.get, ("num_requests", "output_tokens", "output_tps", "input_tps")
    )
    stated = {name: value for name, value in said.items() if name not in positions}
    if n:
        stated["concurrency"] = n  # all were sent at once
    if n and tokens and tps:
        stated["duration_s"] = tokens / tps
        if into is not None:
            stated["input_len"] = into / tps * tokens / n
    k = figures.get("k") or len(positions)
    if drafts := figures.get("drafts"):
        check(
            len(positions) <= k and figures.get("drafted", 0.0) <= 1.001 * k * drafts, CONTRADICTION
        )
        stated["k"] = float(k)
    else:
        stated.pop("k", None)
    entry = run_entry(program, stated, more, rates if len(rates) == len(positions) else None)
    row, rare = _over_all_rounds(entry.rows[0], figures, int(k), said.get("algorithm"))
    told = entry.diagnoses if row is entry.rows[0] else ()
    return replace(entry, rows=(row,), diagnoses=(rare,) if rare else told)


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
    row = replace(row, accept_length=over_all, drafted_per_round=drafted / rounds)
    return row, finding("partial_drafting", "rare", **told)
