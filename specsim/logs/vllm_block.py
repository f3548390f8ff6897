"""One vLLM server's lines -> windows: engines summed, drafting joined to throughput."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Flags, Floats

from specsim.logs.columns import seconds
from specsim.logs.diagnose import load_diagnoses
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, LogWindow, WindowCount
from specsim.logs.levels import (
    IDLE,
    PREFILL,
    PREFILL_RAMP,
    RAMP,
    RANK_MISSING,
    Levels,
    Windows,
    ramp_mask,
)
from specsim.logs.ranks import RankTable, group_starts
from specsim.logs.rows import LEVEL_WIDTH, level_rows
from specsim.logs.settings import NO_SPECULATION, chain_settings
from specsim.logs.vllm_acceptance import (
    Drafting,
    Judged,
    drafting_diagnoses,
    judge,
    survival_matrix,
)
from specsim.logs.vllm_facts import Facts
from specsim.logs.vllm_lines import (
    CONTRADICTION,
    NAN,
    EngineLine,
    SpecLine,
    V0Line,
)

SILENT_WINDOWS = 2
"""So many windows without a drafting line, in a log that was not filtered, draft nothing."""


_NO_ENGINE = (b"", *[NAN] * 5)
_NO_SPEC = (*[NAN] * 3, b"", NAN)
_ENGINE_SIZE = 7
"""Values of a row before those of the drafting line: the stamp, then six of the engine line."""


class Block:
    """The lines of one server.

    Attributes
    ----------
    facts, unread, label
        What is known of the server beside its windows.
    other_lines
        Whether lines of other kinds follow throughput lines: a log that was filtered for
        throughput lines says nothing of speculation by not mentioning it.
    mentions_drafting
        Whether any line, read or not, is of drafting.
    """

    def __init__(self, samples: int = 0) -> None:
        self.facts = Facts()
        self.levels = Levels(equal_time=True, tps_quantum=0.1)
        self.drafting = Drafting()
        self.unread: Counter[str] = Counter()
        self.label = ""
        self.other_lines = False
        self.mentions_drafting = False
        self.v0: V0Line | None = None
        self.samples: list[LogWindow] = []
        self.with_prefill = 0
        self.preemptions = 0
        self.engines = 1
        self._max_samples = samples
        self._rows: list[tuple[Any, ...]] = []
        self._open: tuple[Floats, list[bytes], Floats] | None = None
        self._ranks = RankTable(_engine_of)
        self._last_running = float("nan")
        self.last_stamp = b""

    @property
    def is_open(self) -> bool:
        """Whether measurements of this server were seen."""
        return bool(self._rows or self._open or self.levels.read or self.drafting.lines or self.v0)

    @property
    def says_anything(self) -> bool:
        """Whether the block makes an entry."""
        return self.is_open or bool(self.unread or self.facts.understood)

    @property
    def ranks(self) -> int:
        """Engines that print lines of their own."""
        return len(self._ranks.named)

    def __len__(self) -> int:
        return len(self._rows)

    def add_engine(self, line: EngineLine, stamp: bytes) -> None:
        """Add a throughput line."""
        self.engines = max(self.engines, line.engines)
        self.preemptions += line.preemptions
        self._rows.append((stamp, *line[:6], *_NO_SPEC))
        self.last_stamp = stamp or self.last_stamp

    def add_plain(self, fields: tuple[bytes, ...], stamp: bytes) -> None:
        """Add the fields of a throughput line, and of the drafting line that belongs to it."""
        whole = len(fields) == len(_NO_ENGINE) + len(_NO_SPEC)
        self._rows.append((stamp, *fields) if whole else (stamp, *fields, *_NO_SPEC))
        self.mentions_drafting |= whole
        self.last_stamp = stamp or self.last_stamp

    def add_spec(self, line: SpecLine, stamp: bytes) -> None:
        """Add a drafting line: it belongs to the throughput line above it."""
        last = self._rows[-1] if self._rows else None
        if last and last[_ENGINE_SIZE:] == _NO_SPEC and stamp in (b"", last[0]):
            self._rows[-1] = (*last[:_ENGINE_SIZE], *line)
        else:
            self._rows.append((stamp, *_NO_ENGINE, *line))
        self.last_stamp = stamp or self.last_stamp

    def flush(self, final: bool) -> None:
        """Turn the collected lines into windows; the last one may still get its drafting line."""
        cut = len(self._rows) - (0 if final else 1)
        rows, self._rows = self._rows[:cut], self._rows[cut:]
        stamps, names, *numbers, survival, rate = zip(*rows, strict=True) if rows else [()] * 12
        values = np.array(
            [list(map(float, column)) for column in (*numbers, rate)], dtype=np.float64
        )
        judged = self._judge(values, survival)
        prompt, tps, running, waiting, usage = values[:5]
        emitted = np.nan_to_num(judged.accept_length * judged.drafts)
        drafts = np.where(emitted > 0, judged.drafts, 0.0)
        columns = np.array([running, waiting, tps, usage / 100, prompt, emitted, drafts])
        engine = np.flatnonzero(np.isfinite(tps))
        self._sum_ranks(
            seconds([stamps[i] for i in engine]),
            [names[i] for i in engine],
            columns[:, engine],
            final,
        )

    def _judge(self, values: Floats, survival: Sequence[bytes]) -> Judged:
        """Check the drafting of lines, and count it."""
        rates = survival_matrix(survival)
        length, accepted, drafted, rate = values[5:]
        judged = judge(length, accepted, drafted, rate, rates)
        for reason, where in (
            (CONTRADICTION, judged.faulty),
            ("nothing was drafted", judged.empty),
        ):
            if where.any():
                self.unread[reason] += int(where.sum())
        self.drafting.add(judged, np.nan_to_num(values[2]), accepted, drafted, rates)
        return judged

    def _sum_ranks(self, time_s: Floats, names: list[bytes], columns: Floats, final: bool) -> None:
        """Sum the engines of each window; the last window may lack some of them still."""
        if self._open is not None:
            before = self._open
            time_s = np.concatenate((before[0], time_s))
            names, columns = before[1] + names, np.concatenate((before[2], columns), axis=1)
            self._open = None
        slots = self._ranks.slots(names)
        keep = np.flatnonzero(slots >= 0)
        if len(keep) < len(slots):
            self.unread["no engine number"] += len(slots) - len(keep)
        time_s, columns, names = time_s[keep], columns[:, keep], [names[i] for i in keep]
        starts = group_starts(slots[keep], time_s, self.ranks)
        if not final and self.ranks > 1 and len(starts):
            last = int(starts[-1])
            self._open = (time_s[last:], names[last:], columns[:, last:])
            time_s, columns, starts = time_s[:last], columns[:, :last], starts[:-1]
        if not len(starts):
            return
        size = np.diff(np.append(starts, columns.shape[1]))
        if self.ranks > 1:
            columns, time_s = np.add.reduceat(columns, starts, axis=1), time_s[starts]
            columns[3] /= size
        self._windows(time_s, columns, size < self._ranks.expected)

    def _windows(self, time_s: Floats, columns: Floats, missing: Flags) -> None:
        running, waiting, tps, usage, prompt, emitted, drafts = columns
        prefill = prompt > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            accept = np.where(drafts > 0, emitted / drafts, np.nan)
        ramp = np.zeros(len(running), dtype=bool)
        ramp[~missing] = ramp_mask(running[~missing], self._last_running)
        ramp[0] |= self.levels.read == 0 and self.facts.started
        reason = np.where(prefill, np.where(ramp, PREFILL_RAMP, PREFILL), np.where(ramp, RAMP, 0))
        reason[(running < 1) | (tps <= 0)] = IDLE
        reason[missing] = RANK_MISSING
        if not missing.all():
            self._last_running = float(running[~missing][-1])
        self.with_prefill += int((prefill & (reason != IDLE)).sum())
        windows = Windows(
            time_s=time_s,
            running=running,
            queue=waiting,
            usage=usage,
            output_tps=tps,
            accept_length=accept,
            weight=drafts,
            graph=np.full(len(running), -1, dtype=np.int8),
            reason=reason.astype(np.int8),
        )
        self.levels.add(windows)
        room = self._max_samples - len(self.samples)
        if room > 0:
            self.samples.extend(list(windows.items())[:room])

    def entry(self, path: str) -> LogEntry:
        """Return the block as an entry."""
        settings = self._settings()
        if settings.get("algorithm") == "none":
            self.levels.accept_quantum = 0.0
        rows, windows = level_rows(self.levels)
        rows = tuple(self._with_drafting(row, settings) for row in rows)
        if not rows:
            rows = self._without_throughput()
        alone = self.drafting.alone
        if alone or self.v0:
            extra = alone or 1
            windows = WindowCount(windows.read + extra, windows.used + extra, windows.dropped)
        accept, survival = self.drafting.accept_length, self.drafting.survival()
        if self.v0 and not self.drafting.lines:
            accept = self.v0.emitted / self.v0.rounds
        if settings.get("algorithm") == "none":
            accept = 1.0
        return LogEntry(
            path=path,
            format="vllm_log",
            engine="vllm",
            engine_version=self.facts.version,
            settings=settings,
            rows=rows,
            windows=windows,
            diagnoses=self._diagnoses(rows, settings),
            unread=dict(self.unread),
            accept_length=accept,
            survival=survival,
            label=self.label,
            samples=tuple(self.samples),
        )

    def _settings(self) -> dict[str, object]:
        settings = dict(self.facts.settings)
        drafts = bool(self.drafting.lines or self.v0 or self.mentions_drafting)
        k = self.v0.num_steps if self.v0 else self.drafting.positions
        if k:
            for key, value in chain_settings(k).items():
                settings.setdefault(key, value)
        silent = self.levels.read >= SILENT_WINDOWS or bool(self.label)
        if not drafts and silent and self.other_lines and "algorithm" not in settings:
            settings.update(NO_SPECULATION)
        return settings

    def _with_drafting(self, row: LogRow, settings: dict[str, object]) -> LogRow:
        batch = row.batch_size or 0.0
        low, high = batch / LEVEL_WIDTH, batch * LEVEL_WIDTH
        survival = self.drafting.survival(low, high)
        accept = 1.0 if settings.get("algorithm") == "none" else row.accept_length
        tps = row.output_tps
        known = accept is not None and tps is not None and not row.mixed
        return replace(
            row,
            accept_length=accept,
            survival=survival,
            round_time_s=accept * batch / tps if known and accept and tps else None,
            drafted_per_round=self.drafting.drafted_per_round(low, high),
            accept_rate=self.drafting.accept_rate(low, high),
        )

    def _without_throughput(self) -> tuple[LogRow, ...]:
        """Return a row of drafting alone, for a log without usable throughput lines."""
        if self.v0:
            return (
                LogRow(
                    accept_length=self.v0.emitted / self.v0.rounds,
                    accept_length_scope="pooled",
                    drafted_per_round=float(self.v0.num_steps),
                    accept_rate=self.v0.rate,
                ),
            )
        if not self.drafting.lines:
            return ()
        return (
            LogRow(
                windows=self.drafting.lines,
                accept_length=self.drafting.accept_length,
                survival=self.drafting.survival(),
                drafted_per_round=self.drafting.drafted_per_round(),
                accept_rate=self.drafting.accept_rate(),
                accept_length_scope="run",
            ),
        )

    def _diagnoses(
        self, rows: tuple[LogRow, ...], settings: dict[str, object]
    ) -> tuple[Diagnosis, ...]:
        found = load_diagnoses(rows, settings, self.levels.read, self.with_prefill)
        found += drafting_diagnoses(self.drafting, self.v0, settings)
        preempted = self.preemptions or self.facts.preemptions
        if preempted:
            text = f"{preempted} requests were preempted: the KV cache was full"
            found.append(Diagnosis("retraction", text))
        if settings.get("disable_cuda_graph") is True:
            found.append(Diagnosis("eager", "enforce_eager=True: no forward runs as a CUDA graph"))
        ranks = max(self.ranks, self.engines)
        if ranks > 1:
            found.append(Diagnosis("ranks_summed", f"{ranks} data-parallel engines were summed"))
        if self.unread.get("truncated"):
            text = f"{self.unread['truncated']} line(s) cut short were not read"
            found.append(Diagnosis("truncated", text))
        return tuple(found)


def _engine_of(name: bytes) -> tuple[int | None, tuple[int | None, ...]]:
    return (int(name) if name else None), ()
