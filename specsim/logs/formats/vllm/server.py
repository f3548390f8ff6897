"""One vLLM server: its lines as columns of windows, drafting joined to throughput."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from specsim.logs.columns import floats, seconds
from specsim.logs.formats.vllm.drafting import (
    Drafting,
    judge,
    sums_of,
    survival_matrix,
    with_plain_rounds,
)
from specsim.logs.formats.vllm.facts import Facts
from specsim.logs.formats.vllm.lines import (
    DRAFTING,
    ENGINE,
    NO_DRAFTS,
    EngineLine,
    V0Line,
    Values,
)
from specsim.logs.unread import CONTRADICTION
from specsim.logs.windows import Windows

BATCH = 1024
"""Intervals that are turned into windows at once."""
LOOKUPS = ("NGRAM", "NGRAM_GPU", "SUFFIX")
"""They draft where they find something: the lines tell of these rounds only."""
PREFILL_LEAST = 0.05
"""Prompt tokens per round of a request: fewer hold up nothing, since a prompt token takes no more
than a request's round. The decode node of a disaggregated server computes one per prompt."""

_HEAD = 2 + len(ENGINE)
"""Values of a row before those of the drafting line: time, name of the engine, throughput."""
_NO_ENGINE, _NO_DRAFTING = (b"",) * (1 + len(ENGINE)), (b"",) * len(DRAFTING)


class Server:
    """The lines of one server."""

    def __init__(self, samples: int = 0) -> None:
        self.facts = Facts()
        self.windows = Windows(_rank_of, equal_time=True, tps_quantum=0.1, max_samples=samples)
        self.drafting = Drafting()
        self.unread: Counter[str] = Counter()
        self.label = ""
        self.launched = False  # a command that started it is known
        self.stamp = b""  # time of the last line
        # Whether lines of other kinds follow: a log that was filtered for throughput lines says
        # nothing of speculation by not mentioning it.
        self.other_lines = False
        self.mentions_drafting = False  # in any line, read or not
        self.v0: V0Line | None = None  # the last counters of a V0 engine
        self.preemptions = 0  # that throughput lines tell of
        self.prompts_elsewhere = False  # another node computes them
        self.engines = 1  # the most that one line is the sum of
        self._rows: list[Values] = []

    @property
    def is_open(self) -> bool:
        """Whether measurements of this server were seen."""
        return bool(self._rows or self.windows.read or self.drafting.lines or self.v0)

    def take_launch(self, settings: Mapping[str, object]) -> None:
        """Take in what a command says of the server; its own words come first."""
        self.launched |= bool(settings)
        self.facts.settings = {**settings, **self.facts.settings}

    def add(self, row: Values) -> None:
        """Add an interval: its time, the name of the engine, values of `ENGINE` and `DRAFTING`."""
        self._rows.append(row)
        self.mentions_drafting |= row[-1] != b""
        self.stamp = row[0] or self.stamp
        if len(self._rows) >= BATCH:
            self.flush(final=False)

    def add_engine(self, line: EngineLine, stamp: bytes) -> None:
        """Add a throughput line."""
        self.engines = max(self.engines, line.engines)
        self.preemptions += line.preemptions
        self.add((stamp, line.name, *line.values, *_NO_DRAFTING))

    def add_spec(self, values: Values, stamp: bytes) -> None:
        """Add a drafting line: it belongs to the throughput line above it."""
        last = self._rows[-1] if self._rows else None
        if last and last[_HEAD:] == _NO_DRAFTING and stamp in (b"", last[0]):
            self._rows[-1] = (*last[:_HEAD], *values)
        else:
            self._rows.append((stamp, *_NO_ENGINE, *values))
        self.stamp = stamp or self.stamp

    def flush(self, final: bool) -> None:
        """Turn the collected lines into windows; the last one may still get its drafting line."""
        cut = len(self._rows) - (0 if final else 1)
        rows, self._rows = self._rows[:cut], self._rows[cut:]
        empty: list[Values] = [()] * (_HEAD + len(DRAFTING))
        stamps, names, *texts = zip(*rows, strict=True) if rows else empty
        said = dict(zip((*ENGINE, *DRAFTING), texts, strict=True))
        rates = survival_matrix(said.pop("positions"))
        printed = {name: floats(column) for name, column in said.items()}
        judged = judge(printed, rates)
        if self.facts.settings.get("algorithm") in LOOKUPS:
            judged = with_plain_rounds(judged, printed)
        for reason, where in ((CONTRADICTION, judged.faulty), (NO_DRAFTS, judged.empty)):
            if where.any():
                self.unread[reason] += int(where.sum())
        sums = sums_of(judged, printed, rates)
        self.drafting.add(judged, printed, rates, sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            length = np.where(judged.rounds > 0, judged.emitted / judged.rounds, 1.0)
            prefill = printed["prompt"] > PREFILL_LEAST * printed["tps"] / length
        measured = np.flatnonzero(np.isfinite(printed["tps"]))
        lines = {
            "time_s": seconds(stamps),
            "running": printed["running"],
            "queue": printed["waiting"],
            "usage": printed["usage"] / 100,
            "output_tps": printed["tps"],
            "emitted": judged.emitted,
            "rounds": judged.rounds,
            "graph": np.full(len(rows), np.nan),
            "prefill": (prefill & (not self.prompts_elsewhere)).astype(np.float64),
            "drafting": sums,
        }
        self.windows.started = self.facts.started
        unnamed = self.windows.add(
            {name: column[measured] for name, column in lines.items()},
            [names[i] for i in measured],
            final,
        )
        if unnamed:
            self.unread["no engine number"] += unnamed


def _rank_of(name: bytes) -> tuple[int | None, tuple[int | None, ...]]:
    return (int(name) if name else None), ()
