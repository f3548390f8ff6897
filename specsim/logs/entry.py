"""What a reader returns: one entry per server or block of a file, one row per load level."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from specsim.logs.unread import OUT_OF_RANGE
from specsim.textfile import printable
from specsim.workload import LoadKind

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
    "acceptance_drift",
    "one_rank",
]
"""Codes of the diagnoses, fixed by the JSON contract."""

CODES: tuple[Code, ...] = get_args(Code)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Something in a file that a reader of its numbers must know."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class WindowCount:
    """Measuring windows of one entry: `read` is `used` plus all that were dropped."""

    read: int = 0  # whose numbers were understood
    used: int = 0  # that the rows rest on
    dropped: Mapping[str, int] = field(default_factory=dict)  # reason -> others


@dataclass(frozen=True, slots=True)
class Timing:
    """A duration that a profiler or a collective benchmark measured."""

    # decode, verify, draft, extend, prefill, allreduce, step, scheduler or kernel
    phase: str
    # The median; for an all-reduce in a trace the lower decile, since a rank's kernel also waits
    # for its peers.
    seconds: float
    count: int | None = None  # durations that were measured
    batch_size: int | None = None  # requests
    size_bytes: int | None = None  # per rank, that were reduced
    prompt_tokens: float | None = None  # of a prefill
    rank: int | None = None  # of the file
    ranks: int | None = None  # that took part
    name: str = ""  # in the file


@dataclass(frozen=True, slots=True)
class LogRow:
    """One load level: what the windows at about the same running batch say.

    Standard errors (`_sem`) include autocorrelation; times of requests are means.
    """

    kind: LoadKind = "steady_decode"  # pure decoding; otherwise how load was applied
    batch_size: float | None = None  # mean running requests
    concurrency: float | None = None  # running plus queued where a closed loop is plausible
    output_tps: float | None = None  # tokens per second of wall time
    output_tps_sem: float | None = None
    accept_length: float | None = None  # per request and round, bonus included
    accept_length_sem: float | None = None
    survival: tuple[float, ...] | None = None  # P(at least d drafts accepted), d = 1, 2, ...
    round_time_s: float | None = None  # accept length x running / throughput, or as measured
    tpot_s: float | None = None
    ttft_s: float | None = None
    itl_s: float | None = None
    windows: int = 1  # that the row rests on
    dropped: Mapping[str, int] = field(default_factory=dict)  # reason -> others of this level
    mixed: bool = False  # prefill ran within: the throughput is not pure decoding
    cuda_graph: bool | None = None
    queue: float | None = None  # mean waiting requests
    kv_usage: float | None = None  # mean fraction of the KV cache in use
    drafted_per_round: float | None = None  # draft tokens per request that were really proposed
    accept_rate: float | None = None  # accepted over drafted where both are counted
    # The run behind a benchmark result:
    request_rate: float | None = None
    num_requests: int | None = None
    input_len: float | None = None  # mean tokens
    output_len: float | None = None
    duration_s: float | None = None
    # The accept length is this row's own (cell), this run's, or the server's life's (pooled).
    accept_length_scope: Literal["cell", "run", "pooled"] = "cell"
    extra: Mapping[str, float] = field(default_factory=dict)  # e.g. input_cached


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What one server (or one block of a paste) says."""

    path: str  # as given
    format: str
    engine: str | None = None  # sglang, vllm, trtllm, llama.cpp
    engine_version: str | None = None
    # What is known of the server: algorithm, topk, num_steps, num_draft_tokens, and more.
    settings: Mapping[str, object] = field(default_factory=dict)
    rows: tuple[LogRow, ...] = ()  # by increasing batch
    windows: WindowCount = field(default_factory=WindowCount)
    diagnoses: tuple[Diagnosis, ...] = ()
    # Reason -> lines that look like measurements and could not be read.
    unread: Mapping[str, int] = field(default_factory=dict)
    timings: tuple[Timing, ...] = ()
    accept_length: float | None = None  # pooled over all rounds, where there are several rows
    survival: tuple[float, ...] | None = None
    label: str = ""  # text above the block in a paste, e.g. "with eagle"

    @property
    def unread_lines(self) -> int:
        """Lines that look like measurements and could not be read."""
        return sum(self.unread.values())

    @property
    def main_row(self) -> LogRow | None:
        """The row with the most windows; of equals the larger batch, then the later one."""
        return max(reversed(self.rows), key=_weight, default=None)

    @property
    def usable(self) -> bool:
        """Whether the entry measures anything at all."""
        return bool(self.timings) or any(measures(row) for row in self.rows)

    @property
    def codes(self) -> tuple[Code, ...]:
        """Codes of the diagnoses, in order."""
        return tuple(d.code for d in self.diagnoses)


MEASUREMENTS = (
    *("output_tps", "accept_length", "survival", "round_time_s", "tpot_s", "ttft_s"),
    *("accept_rate", "duration_s"),
)
"""Fields of a row that are measured; the others describe a run."""


def per_round(
    rounds: float, accepted: float, drafted: float | None = None, positions: Sequence[float] = ()
) -> dict[str, Any]:
    """Return the fields of a row that counts of drafts make, each request-round counted once.

    `positions` are the rounds that accepted at least 1, 2, ... drafts.

    >>> per_round(10, 15, 30)["accept_length"]
    2.5
    """
    return {
        "accept_length": 1 + accepted / rounds if rounds else None,
        "survival": tuple(n / rounds for n in positions) or None if rounds else None,
        "drafted_per_round": drafted / rounds if drafted and rounds else None,
        "accept_rate": accepted / drafted if drafted else None,
    }


def measures(row: LogRow) -> bool:
    """Whether a row holds a measurement, not only the description of a run."""
    return any(getattr(row, name) is not None for name in MEASUREMENTS)


def _weight(row: LogRow) -> tuple[bool, int, float]:
    return measures(row), row.windows, row.batch_size or 0.0


LEAST_ACCEPT, MOST_ACCEPT = 1.005, 129.0
"""Accept lengths below the one print as 1.00: nothing was accepted; nothing drafts further."""
LIMITS = {
    **dict.fromkeys(("output_tps", "request_rate"), (0.0, 1e8)),
    **dict.fromkeys(("round_time_s", "tpot_s", "ttft_s", "itl_s"), (0.0, 1e5)),
    "accept_rate": (0.0, 1.01),
    "accept_length": (1.0, MOST_ACCEPT),
}
"""Least and most that any server measures, by field of a row; a request may wait for a day."""


def believable(entry: LogEntry) -> LogEntry:
    """Return an entry without numbers that no server measures, which count as unread.

    An accept length is held against what the setting can emit, and texts lose what would command
    a terminal.
    """
    drafted = entry.settings.get("num_steps"), entry.settings.get("num_draft_tokens")
    bounds = [n + more for n, more in zip(drafted, (1, 0), strict=True) if type(n) is int and n > 0]
    most = 1.01 * min([LIMITS["accept_length"][1], *bounds])
    unread = Counter(entry.unread)

    def kept(row: Any, name: str) -> Any:
        value = getattr(row, name)
        low, high = LIMITS[name]
        if value is None or low <= value <= (most if name == "accept_length" else high):
            return value
        unread[OUT_OF_RANGE] += 1
        return None

    rows = tuple(replace(row, **{name: kept(row, name) for name in LIMITS}) for row in entry.rows)
    return replace(
        entry,
        path=printable(entry.path),
        engine_version=_printable(entry.engine_version),
        settings=_printable(entry.settings),
        label=printable(entry.label),
        rows=rows,
        accept_length=kept(entry, "accept_length"),
        timings=tuple(replace(timing, name=printable(timing.name)) for timing in entry.timings),
        unread=dict(unread),
    )


def _printable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {printable(str(key)): _printable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_printable, value))
    return printable(value) if isinstance(value, str) else value
