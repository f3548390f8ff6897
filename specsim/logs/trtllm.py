"""TensorRT-LLM: the iteration log and the iteration statistics in JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from specsim.logs.durations import Durations
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount
from specsim.logs.json_values import Unread, json_values, number, table
from specsim.logs.settings import NO_SPECULATION
from specsim.logs.source import as_lines

MARK = b"iter = "
LEAST_PROMPTS = 5
"""Prompts that ran alone, for their time to be worth a number."""
MOST_KV_TOKENS, MOST_POOLS = 1e10, 64
"""Larger caches, and more sizes of one cache, come from damaged lines."""

_LINE = re.compile(
    rb"iter = (?P<iter>\d{1,12}), global_rank = \d{1,6}, rank = (?P<rank>\d{1,6}), "
    rb"(?P<middle>(?:[a-z_]{2,40}(?: =|:) [\w./: -]{1,40}, ){0,12})"
    rb"states = \{'num_ctx_requests': (?P<ctx>\d{1,9}), 'num_ctx_tokens': (?P<prompt>\d{1,9}), "
    rb"'num_generation_tokens': (?P<tokens>\d{1,9})\}\s*\Z"
)
_FAST = re.compile(
    rb"iter = (\d{1,12}), global_rank = \d{1,6}, rank = (\d{1,6}), "
    rb"num_scheduled_requests = (\d{1,7}), kv_cache_util = ([01]\.\d{1,9}), "
    rb"currank_total_requests = \d{1,7}/\d{1,7}, host_step_time = (\d{1,9}\.\d{1,9})ms, "
    rb"prev_device_step_time = \d{1,9}\.\d{1,9}ms, timestamp = [\d -]{10}[\d :-]{9}, "
    rb"states = \{'num_ctx_requests': (\d{1,9}), 'num_ctx_tokens': (\d{1,9}), "
    rb"'num_generation_tokens': (\d{1,9})\}\s*\Z"
)
"""The present layout of `_LINE`."""
_SCHEDULED = re.compile(rb"num_scheduled_requests(?: =|:) (\d{1,7}), ")
_HOST = re.compile(
    rb"(?:host_step_time = (\d{1,9}\.\d{1,9})ms|elapsed_time = (\d{1,6}\.\d{1,9})s), "
)
_KV = re.compile(rb"kv_cache_util = ([01]\.\d{1,9}), ")


class _Server:
    """Iterations of one server by running batch; None is an unknown batch."""

    def __init__(self, format_: str) -> None:
        self.format = format_
        self.rounds: dict[int | None, Durations] = {}
        self.accepted: Counter[int | None] = Counter()
        self.drafting: Counter[int | None] = Counter()
        self.queue: Counter[int | None] = Counter()
        self.usage: dict[int | None, float] = {}
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.last_iter: dict[int, int] = {}
        self.scheduled: bool | None = None
        self.speculates: bool | None = None
        self.pools: Counter[int] = Counter()
        self.prompts, self.prompt_tokens = Durations(), 0.0

    def continues(self, iteration: _Iteration) -> bool:
        """Whether an iteration can follow: numbers grow, and the layout stays."""
        other = self.scheduled is not None and self.scheduled != (iteration.requests is not None)
        return not other and iteration.number > self.last_iter.get(iteration.rank, -1)

    def take(self, iteration: _Iteration) -> None:
        """Count one iteration of the log."""
        number, rank, requests, seconds, usage, prefills, prompt, tokens = iteration
        self.last_iter[rank], self.scheduled = number, requests is not None
        self.read += 1
        if len(self.last_iter) > 1 and rank != min(self.last_iter):
            self.dropped["duplicate_rank"] += 1
        elif prefills:
            self.dropped["prefill"] += 1
            if prefills == 1 and not tokens:
                self.alone(prompt, seconds)
        elif not tokens or seconds <= 0:
            self.dropped["idle"] += 1
        else:
            self.add(requests or None, seconds, usage)

    def add(self, batch: int | None, seconds: float, usage: float | None) -> None:
        """Count one iteration of pure decoding."""
        rounds = self.rounds.get(batch)
        if rounds is None:
            rounds = self.rounds[batch] = Durations()
        rounds.add(seconds)
        self.usage[batch] = self.usage.get(batch, 0.0) + (usage or 0.0)

    def alone(self, prompt_tokens: float, seconds: float) -> None:
        """Count an iteration that held one prompt and nothing else."""
        if prompt_tokens >= 1 and seconds > 0:
            self.prompts.add(seconds)
            self.prompt_tokens += prompt_tokens

    def _timings(self) -> tuple[Timing, ...]:
        """Return the time of a prompt alone: that of one client."""
        count = self.prompts.count
        if count < LEAST_PROMPTS:
            return ()
        mean = self.prompt_tokens / count
        return (
            Timing(
                "prefill",
                self.prompts.typical,
                count=count,
                batch_size=1,
                prompt_tokens=mean,
                name="one prompt alone",
            ),
        )

    def pool(self, blocks: float | None, tokens_per_block: float | None) -> None:
        """Count what an iteration says of the size of the KV cache."""
        tokens = (blocks or 0.0) * (tokens_per_block or 0.0)
        known = tokens in self.pools or len(self.pools) < MOST_POOLS
        if 1 <= tokens <= MOST_KV_TOKENS and tokens % 1 == 0 and known:
            self.pools[int(tokens)] += 1

    def entry(self, path: str) -> LogEntry:
        """Return the server as an entry."""
        rows = tuple(self._row(b) for b in sorted(self.rounds, key=lambda b: (b is None, b or 0)))
        found = []
        if self.unread.get("truncated"):
            text = f"{self.unread['truncated']} line(s) cut short were not read"
            found.append(Diagnosis("truncated", text))
        share = self.dropped["prefill"] / self.read if self.read else 0.0
        if share >= 0.1:
            text = f"{100 * share:.0f} % of iterations contain prefill and were left out"
            found.append(Diagnosis("prefill_mixed", text))
        settings: dict[str, object] = dict(NO_SPECULATION) if self.speculates is False else {}
        if self.pools:  # every iteration says it again: one that is damaged does not count
            settings["kv_tokens"] = self.pools.most_common(1)[0][0]
        return LogEntry(
            path=path,
            format=self.format,
            engine="tensorrt-llm",
            settings=settings,
            rows=rows,
            windows=WindowCount(self.read, sum(r.windows for r in rows), dict(self.dropped)),
            timings=self._timings(),
            diagnoses=tuple(found),
            unread=dict(self.unread),
        )

    def _row(self, batch: int | None) -> LogRow:
        rounds = self.rounds[batch]
        accept: float | None = None
        if self.speculates is False:
            accept = 1.0
        elif self.drafting[batch]:
            accept = 1 + self.accepted[batch] / self.drafting[batch]
        tps = accept * batch / rounds.typical if accept is not None and batch else None
        return LogRow(
            batch_size=batch,
            concurrency=batch,
            output_tps=tps,
            accept_length=accept,
            round_time_s=rounds.typical,
            windows=rounds.count,
            queue=self.queue[batch] / rounds.count,
            kv_usage=self.usage[batch] / rounds.count,
        )


def read_trtllm_log(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read the iteration log of TensorRT-LLM (``print_iter_log``).

    The batch is ``num_scheduled_requests``; ``num_generation_tokens`` counts the padding of CUDA
    graphs, so a line without the former gives a round time at an unknown batch.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.
    """
    servers = [_Server("trtllm_log")]
    for line in as_lines(lines):
        start = line.find(MARK)
        if start < 0:
            continue
        iteration = _iteration(line, start)
        if iteration is None:
            cut = not line.endswith((b"\n", b"\r")) or b"states = " not in line
            servers[-1].unread["truncated" if cut else "damaged field"] += 1
            continue
        if not servers[-1].continues(iteration):
            servers.append(_Server("trtllm_log"))
        servers[-1].take(iteration)
    return [server.entry(path) for server in servers]


class _Iteration(NamedTuple):
    """One line; requests are None if not stated, `prefills` counts prompts."""

    number: int
    rank: int
    requests: int | None
    seconds: float
    usage: float | None
    prefills: int
    prompt_tokens: int
    tokens: int


def _iteration(line: bytes, start: int) -> _Iteration | None:
    found = _FAST.match(line, start)
    if found:
        number, rank, requests, usage, step_ms, prefills, prompt, tokens = found.groups()
        return _Iteration(
            int(number),
            int(rank),
            int(requests),
            float(step_ms) / 1e3,
            float(usage),
            int(prefills),
            int(prompt),
            int(tokens),
        )
    found = _LINE.match(line, start)
    if found is None:
        return None
    middle = found["middle"]
    scheduled, host, kv = _SCHEDULED.search(middle), _HOST.search(middle), _KV.search(middle)
    seconds = 0.0
    if host:
        seconds = float(host[1]) / 1e3 if host[1] else float(host[2])
    return _Iteration(
        int(found["iter"]),
        int(found["rank"]),
        int(scheduled[1]) if scheduled else None,
        seconds,
        float(kv[1]) if kv else None,
        int(found["ctx"]),
        int(found["prompt"]),
        int(found["tokens"]),
    )


def read_trtllm_stats(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read iteration statistics: JSON objects with ``iterLatencyMS``.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.
    """
    server = _Server("trtllm_stats")
    for value in json_values(as_lines(lines)):
        for record in value if isinstance(value, list) else [value]:
            reason = record.reason if isinstance(record, Unread) else _stats_record(record, server)
            if reason:
                server.unread[reason] += 1
    return [server.entry(path)]


def _stats_record(record: Any, server: _Server) -> str | None:
    """Count one iteration; return why it could not be read."""
    if not isinstance(record, dict):
        return "not an object"
    latency_ms = number(record, "iterLatencyMS")
    flight = table(record, "inflightBatchingStats")
    batch, ctx = number(flight, "numGenRequests"), number(flight, "numContextRequests")
    if latency_ms is None or batch is None or ctx is None or latency_ms < 0 or batch % 1:
        return "a field is missing or damaged"
    server.read += 1
    if ctx:
        server.dropped["prefill"] += 1
        if ctx == 1 and not batch:
            server.alone(number(flight, "numCtxTokens") or 0.0, latency_ms / 1e3)
    elif batch < 1 or latency_ms <= 0:
        server.dropped["idle"] += 1
    else:
        key = int(batch)
        blocks = table(record, "kvCacheStats")
        used, most = number(blocks, "usedNumBlocks"), number(blocks, "maxNumBlocks")
        each = number(blocks, "tokensPerBlock")
        server.pool(most, each)
        server.add(key, latency_ms / 1e3, used / most if used is not None and most else None)
        server.queue[key] += int(number(record, "numQueuedRequests") or 0)
        _drafting(record, key, server)
    return None


def _drafting(record: dict[str, Any], batch: int, server: _Server) -> None:
    if "specDecodingStats" not in record:
        return
    stats = table(record, "specDecodingStats")
    accepted, drafting = (
        number(stats, "numAcceptedTokens"),
        number(stats, "numRequestsWithDraftTokens"),
    )
    if not stats:
        server.speculates = server.speculates or False
    elif accepted is not None and drafting:
        server.speculates = True
        server.accepted[batch] += int(accepted)
        server.drafting[batch] += int(drafting)
