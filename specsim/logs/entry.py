"""What a reader returns: one entry per server or block of a file, one row per load level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Code = Literal[
    "capped",
    "prefill_mixed",
    "eager",
    "speculation_off",
    "zero_acceptance",
    "partial_drafting",
    "retraction",
    "accept_rate_definition",
    "bonus_excluded",
    "ranks_summed",
    "queue_dominated",
    "itl_per_chunk",
    "truncated",
]
"""Codes of the diagnoses, fixed by the JSON contract."""

CODES: tuple[Code, ...] = get_args(Code)

RowKind = Literal["closed_loop", "open_loop", "steady_decode"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Something in a file that a reader of its numbers must know."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class WindowCount:
    """Measuring windows of one entry: ``read`` is ``used`` plus all that were dropped.

    Parameters
    ----------
    read, used
        Windows whose numbers were understood, and those that the rows rest on.
    dropped
        Reason -> count of the others.
    """

    read: int = 0
    used: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogWindow:
    """One window as the engine printed it (data-parallel ranks already summed).

    Parameters
    ----------
    time_s
        Seconds since 1970 without time zone, as printed; None where the line has no time.
    running, queue
        Requests that ran and waited when the line was printed.
    output_tps
        Tokens per second of the window.
    accept_length
        Tokens per request and round, bonus included; None where nothing was drafted.
    cuda_graph
        Whether the forward ran as a CUDA graph; None if not printed.
    prefill
        Whether a prefill ran within the window.
    dropped
        Why the throughput of the window is not used; None if it is.
    """

    time_s: float | None
    running: float
    queue: float | None
    output_tps: float
    accept_length: float | None
    cuda_graph: bool | None
    prefill: bool
    dropped: str | None


@dataclass(frozen=True, slots=True)
class Timing:
    """A duration that a profiler or a collective benchmark measured.

    Parameters
    ----------
    phase
        ``decode``, ``verify``, ``draft``, ``extend``, ``prefill``, ``allreduce``, ``step``,
        ``scheduler`` or ``kernel``.
    seconds
        Median duration; for `allreduce` from a trace the lower decile, since a rank's kernel
        also waits for its peers.
    seconds_mean, seconds_min
        Mean and least duration.
    count
        Durations that were measured; None if not stated.
    batch_size, size_bytes
        Requests in the batch; bytes per rank that were reduced.
    prompt_tokens
        Tokens of a prefill.
    rank, ranks
        Rank of the file; number of ranks that took part.
    name
        The name in the file.
    """

    phase: str
    seconds: float
    seconds_mean: float | None = None
    seconds_min: float | None = None
    count: int | None = None
    batch_size: int | None = None
    size_bytes: int | None = None
    prompt_tokens: float | None = None
    rank: int | None = None
    ranks: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class LogRow:
    """One load level: what the windows at about the same running batch say.

    Parameters
    ----------
    kind
        ``steady_decode`` for windows of pure decoding, otherwise how load was applied.
    batch_size
        Mean running requests.
    concurrency
        Clients in flight: running plus queued where a closed loop is plausible.
    output_tps, output_tps_sem
        Tokens per second of wall time and its standard error (autocorrelation included).
    accept_length, accept_length_sem
        Tokens per request and round, bonus included, weighted by rounds.
    survival
        P(at least d drafts accepted), d = 1, 2, ...
    round_time_s
        Seconds per round: accept length x running / throughput, or as measured.
    tpot_s, ttft_s, itl_s
        Means over requests, seconds.
    windows
        Windows that the row rests on.
    dropped
        Reason -> windows of this level that it does not rest on.
    autocorrelation
        Lag-1 autocorrelation of the throughput of successive windows.
    mixed
        Whether prefill ran within the windows: the throughput is then not pure decoding.
    cuda_graph
        Whether the windows ran as CUDA graphs.
    queue, kv_usage
        Mean waiting requests; mean fraction of the KV cache in use.
    drafted_per_round
        Draft tokens per request and round that were really proposed.
    accept_rate
        Accepted over drafted tokens where the file counts both, else as printed.
    request_rate, num_requests, input_len, output_len, duration_s
        The run behind a benchmark result: 1/s, requests, mean tokens, seconds.
    accept_length_scope
        What the accept length was averaged over: this row's own windows (``cell``), this run
        (``run``), or the server's life (``pooled``).
    extra
        Further stated numbers, such as percentiles (``ttft_p99_s``).
    """

    kind: RowKind = "steady_decode"
    batch_size: float | None = None
    concurrency: float | None = None
    output_tps: float | None = None
    output_tps_sem: float | None = None
    accept_length: float | None = None
    accept_length_sem: float | None = None
    survival: tuple[float, ...] | None = None
    round_time_s: float | None = None
    tpot_s: float | None = None
    ttft_s: float | None = None
    itl_s: float | None = None
    windows: int = 1
    dropped: Mapping[str, int] = field(default_factory=dict)
    autocorrelation: float | None = None
    mixed: bool = False
    cuda_graph: bool | None = None
    queue: float | None = None
    kv_usage: float | None = None
    drafted_per_round: float | None = None
    accept_rate: float | None = None
    request_rate: float | None = None
    num_requests: int | None = None
    input_len: float | None = None
    output_len: float | None = None
    duration_s: float | None = None
    accept_length_scope: Literal["cell", "run", "pooled"] = "cell"
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One server, block or run of a file.

    Parameters
    ----------
    path
        The file, ``-`` for standard input.
    format
        Name of the format, as :func:`specsim.logs.detect` gives it.
    engine, engine_version
        ``sglang``, ``vllm``, ``tensorrt-llm``, ``llama.cpp``; the version if it is stated.
    settings
        What is known of the server: algorithm, topk, num_steps, num_draft_tokens, and more.
    rows
        One per load level, by increasing batch.
    windows, diagnoses
        Accounting and warnings.
    unread
        Reason -> lines that look like measurements and could not be read.
    timings
        Durations from a profiler or a collective benchmark.
    accept_length, survival
        Pooled over all rounds of the entry, where there are several rows.
    label
        Text above the block in a paste, e.g. ``with eagle``.
    samples
        The single windows, if the caller asked for them.
    """

    path: str
    format: str
    engine: str | None = None
    engine_version: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    rows: tuple[LogRow, ...] = ()
    windows: WindowCount = field(default_factory=WindowCount)
    diagnoses: tuple[Diagnosis, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    timings: tuple[Timing, ...] = ()
    accept_length: float | None = None
    survival: tuple[float, ...] | None = None
    label: str = ""
    samples: tuple[LogWindow, ...] = ()

    @property
    def unread_lines(self) -> int:
        """Lines that look like measurements and could not be read."""
        return sum(self.unread.values())

    @property
    def main_row(self) -> LogRow | None:
        """The row with the most windows; of equals the larger batch, then the later one."""
        best: LogRow | None = None
        for row in self.rows:
            if best is None or _weight(row) >= _weight(best):
                best = row
        return best

    @property
    def usable(self) -> bool:
        """Whether the entry measures anything at all."""
        return bool(self.timings) or any(measures(row) for row in self.rows)

    @property
    def codes(self) -> tuple[Code, ...]:
        """Codes of the diagnoses, in order."""
        return tuple(d.code for d in self.diagnoses)


def measures(row: LogRow) -> bool:
    """Whether a row holds a measurement, not only the description of a run."""
    stated = (
        row.output_tps,
        row.accept_length,
        row.survival,
        row.round_time_s,
        row.tpot_s,
        row.ttft_s,
        row.accept_rate,
        row.duration_s,
    )
    return any(value is not None for value in stated)


def _weight(row: LogRow) -> tuple[bool, int, float]:
    return (measures(row), row.windows, row.batch_size or 0.0)
