"""llama-speculative's summary of its one stream."""

import re
from collections import Counter
from dataclasses import dataclass, field

from specsim.logs.diagnose import partial_drafting, truncated
from specsim.logs.entry import LogEntry, LogRow, Timing, WindowCount
from specsim.logs.formats.llamacpp.requests import INDENT, TIMING
from specsim.logs.settings import chain_settings
from specsim.logs.unread import CONTRADICTION, DAMAGED, Unread, check

_DECODED = re.compile(
    rb"decoded +(\d{1,9}) tokens in +(\d{1,9}\.\d{3}) seconds, speed: +(\d{1,9}\.\d{3}) t/s\s*\Z"
)
_COUNTER = re.compile(rb"\s*(n_draft|n_predict|n_drafted|n_accept) +=? ?= +(\d{1,9})\s*\Z")
_RATE = re.compile(rb"\s*accept += +(\d{1,3}\.\d{3})%\s*\Z")
_SECTION = re.compile(rb"\s*(draft|target):\s*\Z")


@dataclass(slots=True)
class Summary:
    """What has been read of one run."""

    counters: dict[bytes, int] = field(default_factory=dict)
    decoded: tuple[int, float] | None = None  # tokens and seconds
    rate: float | None = None  # of accepted drafts, %
    draft_model: tuple[int, float] | None = None  # runs and seconds of the draft's own timings
    _section: bytes = b""

    @property
    def says_anything(self) -> bool:
        """Whether anything of a summary was read."""
        return bool(self.decoded or self.counters)

    def begins_section(self, line: bytes) -> bool:
        """Note whose timings follow; return whether the line says it."""
        if section := _SECTION.match(line):
            self._section = section[1]
        return section is not None

    def read(self, line: bytes) -> None:
        """Take in a line; raise :class:`Unread` if it is damaged."""
        if b"decoded " in line:
            found = _DECODED.search(line)
            if found is None:
                raise Unread(DAMAGED)
            tokens, seconds, speed = int(found[1]), float(found[2]), float(found[3])
            agree = seconds and abs(tokens / seconds - speed) <= 0.001 + 0.001 * speed
            check(agree, CONTRADICTION)
            self.decoded = (tokens, seconds)
        elif found := _RATE.match(line):
            self.rate = float(found[1])
        elif found := _COUNTER.match(line):
            self.counters[found[1]] = int(found[2])
        elif b"eval time =" in line and b" runs " in line:
            found = TIMING.match(line)
            if found is None or not (found["prompt"] or found["before"].endswith(INDENT)):
                raise Unread(DAMAGED)
            n, ms, each = int(found["n"]), float(found["ms"]), float(found["each"])
            check(not n or abs(ms / n - each) <= 0.006 + 1e-4 * each, CONTRADICTION)
            if not found["prompt"] and self._section == b"draft" and n and ms:
                self.draft_model = (n, ms / 1e3)


def summary_entry(of: Summary, unread: Counter[str], path: str) -> LogEntry:
    """Return the entry of a run; counts of drafts must agree with the printed rate."""
    names = (b"n_draft", b"n_drafted", b"n_accept", b"n_predict")
    steps, drafted, accepted, predicted = map(of.counters.get, names)
    tokens, seconds = of.decoded or (predicted, None)
    if accepted is not None and drafted is not None:
        slack = 1e-5 * drafted + 0.01
        if of.rate is None or abs(accepted - of.rate / 100 * drafted) > slack:
            drafted = accepted = None
            unread[CONTRADICTION] += 1
    rounds = max(tokens - accepted, 0) if tokens is not None and accepted is not None else 0
    each = drafted / rounds if drafted is not None and rounds else None
    row = LogRow(
        kind="closed_loop",
        batch_size=1.0,
        concurrency=1.0,
        output_tps=tokens / seconds if tokens and seconds else None,
        accept_length=tokens / rounds if tokens and rounds else None,
        round_time_s=seconds / rounds if seconds and rounds else None,
        drafted_per_round=each,
        accept_rate=accepted / drafted if accepted is not None and drafted else None,
        num_requests=1,
        output_len=tokens,
        duration_s=seconds,
        accept_length_scope="run",
    )
    timings: tuple[Timing, ...] = ()
    if of.draft_model:
        n, total_s = of.draft_model
        timings = (Timing("draft", total_s / n, count=n, batch_size=1, name="draft eval"),)
    settings: dict[str, object] = {"algorithm": "STANDALONE"}
    return LogEntry(
        path=path,
        format="llamacpp",
        engine="llama.cpp",
        settings=settings | (chain_settings(steps) if steps else {}),
        rows=(row,),
        windows=WindowCount(1, 1),
        diagnoses=(*truncated(unread), *partial_drafting(each, steps)),
        unread=dict(+unread),
        timings=timings,
    )
