"""One SGLang server's lines -> windows: ranks summed, duplicates dropped, reasons given."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats, Ints
from numpy.typing import NDArray

from specsim.logs.entry import LogEntry, LogWindow
from specsim.logs.levels import (
    DUPLICATE_RANK,
    IDLE,
    PREFILL,
    PREFILL_RAMP,
    RAMP,
    RANK_MISSING,
    Levels,
    Windows,
    ramp_mask,
)
from specsim.logs.ranks import DUPLICATE, NO_RANK, RankTable, group_starts
from specsim.logs.rows import level_rows
from specsim.logs.sglang_diagnoses import AcceptRate, diagnoses, entry_settings
from specsim.logs.sglang_facts import Facts
from specsim.logs.sglang_lines import (
    ACCEPT_AT,
    GRAPH_AT,
    QUEUE_AT,
    RATE_AT,
    RUNNING_AT,
    TOKENS_AT,
    TPS_AT,
    USAGE_AT,
    Signature,
    parse_ranks,
)
from specsim.logs.sglang_matrix import Batch, join

UNLIKE = "unlike its neighbours"
"""Why a well-formed line with other fields than the lines around it is not read."""
MAX_LINE = 4096
"""No more of a damaged line is looked at."""
BACKWARDS_S = 60.0
"""Time that jumps back by more than this begins another run."""
PASTE_GAP_S = 30.0
"""In a paste, a label and a gap like this begin another run."""

_PREFILL = re.compile(
    rb"Prefill batch[^#\n]{0,24}#new-seq: (\d{1,9}), #new-token: (\d{1,9}), "
    rb"#cached-token: (\d{1,9}), "
)


class Block:
    """The lines of one server.

    Attributes
    ----------
    facts, unread, label, signature
        What is known of the server beside its windows.
    """

    def __init__(self, samples: int = 0) -> None:
        self.signature: Signature | None = None
        self.facts = Facts()
        self.levels = Levels()
        self.rate = AcceptRate()
        self.unread: Counter[str] = Counter()
        self.label = ""
        self.prefills = 0
        self.with_prefill = 0
        self.prompt = np.zeros(3)
        self.version_hint = ""
        self.samples: list[LogWindow] = []
        self._max_samples = samples
        self._batches: list[Batch] = []
        self._marks: list[Flags] = []
        self._ranks = RankTable(_ranks_of)
        self._last_time = float("nan")
        self._last_tokens = float("nan")
        self._last_running = float("nan")

    @property
    def is_open(self) -> bool:
        """Whether batches of this server were seen."""
        return bool(self._batches or self.levels.read or self.prefills)

    @property
    def says_anything(self) -> bool:
        """Whether the block makes an entry."""
        return self.is_open or bool(self.unread or self.facts.understood)

    @property
    def ranks(self) -> int:
        """Data-parallel ranks seen."""
        return len(self._ranks.named)

    @property
    def _drafts_nothing(self) -> bool:
        return self.facts.settings.get("algorithm") in (None, "none")

    @property
    def is_single_line(self) -> bool:
        """Whether nothing but one decode line is known of the block."""
        lines = self.levels.read + sum(map(len, self._batches))
        return lines == 1 and not self.facts.started

    def forget_line(self) -> None:
        """Take back the only decode line: the lines after it are unlike it."""
        self._batches, self._marks = [], []
        self.levels, self.rate, self.samples = Levels(), AcceptRate(), []
        self.unread[UNLIKE] += 1

    def like(self, signature: Signature) -> bool:
        """Whether a line with this signature can be this server's."""
        return self.signature is None or self.signature.like(signature)

    def take(self, batch: Batch, prefill: Flags) -> None:
        """Add decode lines; `prefill` marks those before which a prefill ran."""
        if len(batch):
            self._batches.append(batch)
            self._marks.append(prefill)

    def not_read(self, line: bytes, reason: str) -> None:
        """Count a decode line that could not be read; the ranks that it names are known."""
        self.unread[reason] += 1
        for piece in line[:MAX_LINE].split(b"[20")[1:]:
            self._ranks.see(piece[17 : piece.find(b"] ") + 2])

    def prefill(self, line: bytes) -> None:
        """Count a prefill line."""
        found = _PREFILL.search(line)
        if found is None:
            self.unread["damaged prefill line"] += 1
        else:
            self.prompt += (int(found[1]), int(found[2]), int(found[3]))
            self.version_hint = self.version_hint or _prefill_version(line)
        self.prefills += 1

    def jumps_back(self, line: Batch) -> bool:
        """Whether a line after a label in a paste is of another run."""
        last = self._batches[-1] if self._batches else None
        before = last.time_s[-1] if last else self._last_time
        tokens = last.values[TOKENS_AT, -1] if last else self._last_tokens
        gap = line.time_s[0] - before
        return bool(gap > PASTE_GAP_S or gap < 0 or line.values[TOKENS_AT, 0] < tokens)

    def flush(self, final: bool) -> Block | None:
        """Turn the collected lines into windows.

        Returns
        -------
        Block or None
            A new block with the lines after time ran backwards, if it did.
        """
        if not self._batches:
            return None
        batch, marks = join(self._batches), np.concatenate(self._marks)
        self._batches, self._marks = [], []
        with np.errstate(invalid="ignore"):
            step = np.diff(np.concatenate(([self._last_time], batch.time_s)))
            back = np.flatnonzero(step < -BACKWARDS_S)
        rest: Block | None = None
        if len(back):
            rest = self._like_this()
            rest.take(batch.part(int(back[0]), len(batch)), marks[back[0] :])
            batch, marks, final = batch.part(0, int(back[0])), marks[: back[0]], True
        if len(batch):
            self._windows(batch, marks, final)
        return rest

    def _like_this(self) -> Block:
        other = Block(self._max_samples)
        other.signature, other.label = self.signature, self.label
        other.facts.settings = dict(self.facts.settings)
        return other

    def _windows(self, batch: Batch, marks: Flags, final: bool) -> None:
        slots = self._ranks.slots(batch.tails)
        keep = np.flatnonzero(slots >= 0)
        starts = group_starts(slots[keep], batch.time_s[keep], self.ranks)
        carry = len(batch)
        if not final and self.ranks > 1 and len(starts):
            carry = int(keep[starts[-1]])
            starts, keep = starts[:-1], keep[keep < carry]
            self.take(batch.part(carry, len(batch)), marks[carry:])
        self._odd_ranks(slots[:carry], batch)
        if len(starts):
            self._summed(starts, batch.time_s[keep], batch.values[:, keep], marks[keep])
        if carry:
            known = batch.time_s[:carry][np.isfinite(batch.time_s[:carry])]
            self._last_time = float(known[-1]) if len(known) else self._last_time
            self._last_tokens = float(batch.values[TOKENS_AT, carry - 1])

    def _odd_ranks(self, slots: Ints, batch: Batch) -> None:
        """Count lines without a rank among such with one, and duplicates of a rank."""
        self._not_read("no rank", slots == NO_RANK)
        double = np.flatnonzero(slots == DUPLICATE)
        if len(double):
            reason = np.full(len(double), DUPLICATE_RANK, dtype=np.int8)
            self._add(_columns(batch.time_s[double], batch.values[:, double], reason))

    def _summed(
        self,
        starts: Ints,
        time_s: Floats,
        values: Floats,
        prefill: Flags,
    ) -> None:
        """Sum the ranks of each window, and judge the window."""
        if self.signature and not self.signature.accept_length and self._drafts_nothing:
            values[ACCEPT_AT] = 1.0
            self.levels.accept_quantum = 0.0
        size = np.diff(np.append(starts, values.shape[1]))
        if self.ranks > 1:
            values = _sum_ranks(values, starts, size)
            time_s, prefill = time_s[starts], np.logical_or.reduceat(prefill, starts)
        fault = self._implausible(values)
        reason = self._reasons(values, prefill, size < self._ranks.expected)
        good = ~fault
        self.rate.see(values[ACCEPT_AT, good], values[RATE_AT, good])
        self.with_prefill += int((prefill & good).sum())
        self._add(_columns(time_s[good], values[:, good], reason[good]))

    def _implausible(self, values: Floats) -> Flags:
        """Numbers that no server prints make the line unread."""
        steps = self.facts.settings.get("num_steps")
        drafts = isinstance(steps, int) and not self._drafts_nothing
        accept = values[ACCEPT_AT]
        with np.errstate(invalid="ignore"):
            faults = {
                "accept length below 1": accept < 1,
                "accept length above num_steps + 1": accept
                > (float(str(steps)) + 1.005 if drafts else np.inf),
                "accept rate above 1": values[RATE_AT] > 1,
                "token usage above 1": values[USAGE_AT] > 1.01,
            }
        found = np.zeros(len(accept), dtype=bool)
        for reason, where in faults.items():
            self._not_read(reason, where & ~found)
            found |= where
        return found

    def _not_read(self, reason: str, where: Flags) -> None:
        if where.any():
            self.unread[reason] += int(where.sum())

    def _reasons(self, values: Floats, prefill: Flags, missing: Flags) -> NDArray[np.int8]:
        running = values[RUNNING_AT]
        ramp = np.zeros(len(running), dtype=bool)
        ramp[~missing] = ramp_mask(running[~missing], self._last_running)
        ramp[0] |= self.levels.read == 0 and self.facts.started
        reason = np.where(prefill, np.where(ramp, PREFILL_RAMP, PREFILL), np.where(ramp, RAMP, 0))
        reason[(running < 1) | (values[TPS_AT] <= 0)] = IDLE
        reason[missing] = RANK_MISSING
        if not missing.all():
            self._last_running = float(running[~missing][-1])
        return reason.astype(np.int8)

    def _add(self, windows: Windows) -> None:
        self.levels.add(windows)
        room = self._max_samples - len(self.samples)
        if room > 0:
            self.samples.extend(list(windows.items())[:room])

    def entry(self, path: str) -> LogEntry:
        """Return the block as an entry."""
        rows, windows = level_rows(self.levels)
        settings = entry_settings(
            self.facts, self.signature, self.rate, self.version_hint, self.prompt, self.prefills
        )
        counts = Counter(windows=self.levels.read, prefill=self.with_prefill, ranks=self.ranks)
        return LogEntry(
            path=path,
            format="sglang_log",
            engine="sglang",
            engine_version=self.facts.version,
            settings=settings,
            rows=rows,
            windows=windows,
            diagnoses=diagnoses(
                self.facts, self.signature, self.rate, rows, settings, counts, self.unread
            ),
            unread=dict(self.unread),
            accept_length=self.levels.accept_length,
            label=self.label,
            samples=tuple(self.samples),
        )


def _ranks_of(tail: bytes) -> tuple[int | None, tuple[int | None, ...]]:
    dp, *others = parse_ranks(tail)
    return dp, tuple(others)


def _sum_ranks(values: Floats, starts: Ints, size: Ints) -> Floats:
    """Sum over the ranks of each window; accept lengths go by requests, graphs by the worst."""
    total = np.add.reduceat(values, starts, axis=1)
    running = np.maximum(total[RUNNING_AT], 1)
    weighted = np.add.reduceat(values[RUNNING_AT] * values[ACCEPT_AT], starts)
    total[ACCEPT_AT] = np.where(total[RUNNING_AT] > 0, weighted / running, 1.0)
    total[USAGE_AT] /= size
    total[RATE_AT] /= size
    total[GRAPH_AT] = np.minimum.reduceat(values[GRAPH_AT], starts)
    return np.asarray(total, dtype=np.float64)


def _columns(time_s: Floats, values: Floats, reason: NDArray[np.int8]) -> Windows:
    running = values[RUNNING_AT]
    graph = np.where(np.isfinite(values[GRAPH_AT]), values[GRAPH_AT], -1).astype(np.int8)
    return Windows(
        time_s=time_s,
        running=running,
        queue=values[QUEUE_AT],
        usage=values[USAGE_AT],
        output_tps=values[TPS_AT],
        accept_length=values[ACCEPT_AT],
        weight=running,  # each window has equally many rounds
        graph=graph,
        reason=reason,
    )


def _prefill_version(line: bytes) -> str:
    """Versions that print a prefill line like this; empty if it does not tell."""
    if b"#pending-token" in line:
        return "0.5.11-0.5.23"
    if b"cache hit rate" in line:
        return "0.4.0-0.4.2"
    graph, throughput = line.find(b"cuda graph"), line.find(b"input throughput")
    if graph < 0 or throughput < 0:
        return ""
    return "0.5.10" if graph < throughput else "0.5.9"
