"""vLLM's line per iteration (``--enable-logging-iteration-details``), 0.14 to 0.33.

The elapsed time is what the engine waited for the GPU: its scheduling before and after is not in
it. That is told by the stamps: what is left of a second whose iterations are all there.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass, field

from specsim.logs.columns import seconds
from specsim.logs.durations import Durations
from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._iterations import Pass, Passes
from specsim.logs.formats._results import with_unread
from specsim.logs.formats.vllm.lines import parse_prefix
from specsim.logs.source import Source
from specsim.logs.unread import DAMAGED, OUT_OF_RANGE, TRUNCATED, Unread, check, counted

_MARK, _ELAPSED = b"Iteration(", b"iteration elapsed time: "
_LINE = re.compile(
    rb"Iteration\((\d{1,12})\): (\d{1,7}) context requests, \d{1,9} context tokens, "
    rb"(\d{1,7}) generation requests, (\d{1,9}) generation tokens, "
    rb"iteration elapsed time: (\d{1,6}\.\d\d) ms(?: \(dummy\))?"
    rb"(?:, [A-Z]{2,8} KV cache usage: (\d{1,3}\.\d)%"
    rb"(?:, encoder inputs: \d{1,9}, encoder output embeddings: \d{1,9})?)?\s*\Z"
)
_RANK = re.compile(rb"Engine(?:Core_DP| )(\d{1,4})")
_LEAST_MS, _WIDEST, _WHOLE_SECONDS = 0.01, 129, 5


@dataclass(slots=True)
class _Server:
    """Iterations since a start, and what is left of their seconds."""

    rank: int
    passes: Passes
    between: dict[int, Durations] = field(default_factory=dict)  # by the bits of the batch
    index: int = -1
    stamp: bytes = b""
    whole: bool = False  # all iterations since the second began were read
    now: Counter[str] = field(default_factory=Counter)  # of this second

    def take(self, stamp: bytes, rank: int, index: int, one: Pass) -> None:
        """Count an iteration."""
        self.passes.take(rank, one)
        if rank != self.rank:
            return
        follows = index == self.index + 1
        if stamp != self.stamp or not follows:
            begins = bool(follows and stamp and self.stamp)
            if begins and self.whole and seconds([stamp])[0] - seconds([self.stamp])[0] == 1:
                n, left_us = self.now["iterations"], 1e6 - self.now["us"]
                durations = self.between.setdefault(_bits(self.now["requests"] / n), Durations())
                durations.add(max(left_us, 1.0) / n / 1e6)
            self.whole, self.now = begins, Counter()
        self.index, self.stamp = index, stamp
        self.now.update(iterations=1, requests=one.requests, us=round(1e6 * one.seconds))

    def host_s(self, batch: float) -> float:
        """Time between two iterations of so many requests; NaN where too few seconds tell."""
        left = self.between.get(_bits(batch))
        return left.quantile(0.5) if left and left.count >= _WHOLE_SECONDS else math.nan


def _bits(batch: float) -> int:
    return round(batch).bit_length()


def parse(source: Source) -> list[LogEntry]:
    """Read the iterations: an entry per start of the server."""
    servers: list[_Server] = []
    unread: Counter[str] = Counter()
    for line in source.lines():
        at = line.find(_MARK)
        if at < 0 or _ELAPSED not in line[at:]:
            continue
        with counted(unread):
            stamp, rank, index, one = _iteration(line, at)
            if not servers or (index == 0 and rank == servers[-1].rank and servers[-1].index > 0):
                servers.append(_Server(rank, Passes(rank)))
            servers[-1].take(stamp, rank, index, one)
    entries = [s.passes.entry(source.path, FORMAT.name, "vllm", s.host_s) for s in servers]
    return with_unread(entries, unread, source.path, FORMAT.name)


def _iteration(line: bytes, at: int) -> tuple[bytes, int, int, Pass]:
    """Return time stamp, rank, number and content of an iteration."""
    check(line.endswith((b"\n", b"\r")), TRUNCATED)
    found = _LINE.match(line, at)
    if found is None:
        raise Unread(DAMAGED)
    rank, (stamp, _) = _RANK.search(line, 0, at), parse_prefix(line[:at])
    index, prompts, requests, tokens = map(int, found.group(1, 2, 3, 4))
    wait_s = max(float(found[5]), _LEAST_MS) / 1e3
    usage = float(found[6]) / 100 if found[6] else math.nan
    check(requests <= tokens <= _WIDEST * requests and not usage > 1, OUT_OF_RANGE)
    one = Pass(requests, wait_s, prompts > 0, kv_usage=usage, tokens=float(tokens))
    return stamp, int(rank[1]) if rank else 0, index, one


FORMAT = Format(
    name="vllm_iterations",
    words=(_ELAPSED,),
    mark=re.compile(rb"Iteration\(\d{1,12}\): \d{1,7} context requests"),
    parse=parse,
)
