"""Chrome traces of the torch profiler, as SGLang and vLLM write them: phases and all-reduces."""

from __future__ import annotations

import codecs
import json
import re
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from specsim.logs.diagnose import finding
from specsim.logs.durations import ALLREDUCE, Durations, step_of, timing
from specsim.logs.entry import LogEntry, Timing, WindowCount
from specsim.logs.formats import listed
from specsim.logs.json_values import number
from specsim.logs.source import Source
from specsim.logs.unread import MOST_KINDS, TOO_MANY, TRUNCATED, Unread, check, counted

_ARRAY = re.compile(r'"traceEvents"\s*:\s*\[|\A\s*\[(?=\s*\{\s*"(?:ph|name|cat|pid)")')
_BETWEEN = re.compile(r"(?:[\s,]+|#[^\n]*(?:\n|\Z))*")  # blanks, commas, comments
_SEPARATED = re.compile(r"\s*[,\]]")
_NEXT = re.compile(r"\{\s*\"(?:ph|name|cat|pid)\"\s*:")
_NEAR_END = 16  # a value that ends this close to the end of the text (a number, a word) may go on
_MAX_EVENT_CHARS = 4 << 20  # no event is longer; what does not close within it is damaged
_DAMAGED = "damaged event"

_VLLM_STEP, _VLLM_PART, _SCHEDULER = (
    re.compile(listed("profiles", name)) for name in ("vllm_step", "vllm_part", "scheduler")
)
_RANK = re.compile(r"-TP-(\d{1,5})")
_US = 1e-6
SHORTEST_US, LONGEST_US = 1e-3, 1e9  # no kernel is shorter, no step longer
Phase = tuple[str, int | None]  # a phase and its batch


class EventStream:
    """Iterates over the event objects of a trace, given as the chunks of its file.

    A trace of a gigabyte is never whole in memory.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.unread: Counter[str] = Counter()  # reason -> events that could not be read
        self.found = False  # whether ``traceEvents`` was seen
        self.ended = False  # whether the array of events was closed
        self._chunks = iter(chunks)
        self._text, self._at = "", 0  # what is left to read begins at `_at`
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._json = json.JSONDecoder()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while not self.found and self._more():
            events = _ARRAY.search(self._text)
            self.found = events is not None
            self._at = events.end() if events else max(len(self._text) - 64, 0)
        while self.found and not self.ended and self._skip():
            if self._text[self._at] == "]":
                self.ended = True
                return
            event = self._next()
            if isinstance(event, str):
                self.unread[event] += 1
            else:
                yield event

    def _skip(self) -> bool:
        """Go on to the next value or bracket; return whether there is one."""
        while True:
            between = _BETWEEN.match(self._text, self._at)
            self._at = between.end() if between else self._at
            if self._at < len(self._text):
                return True
            if not self._more():
                return False

    def _more(self) -> bool:
        """Append the next chunk to what is left of the text; return whether there was one."""
        chunk = next(self._chunks, None)
        if chunk is not None:
            self._text, self._at = self._text[self._at :] + self._utf8.decode(chunk), 0
        return chunk is not None

    def _next(self) -> dict[str, Any] | str:
        """Return the next event, or why it cannot be read; go on at what looks like an event."""
        while True:
            left, fault = len(self._text) - self._at, -_NEAR_END
            try:
                event, end = self._json.raw_decode(self._text, self._at)
                if _SEPARATED.match(self._text, end):
                    self._at = end
                    return event if isinstance(event, dict) else _DAMAGED
                fault = end - self._at
            except json.JSONDecodeError as error:
                fault = left if error.msg.startswith("Unterminated") else error.pos - self._at
            except (ValueError, RecursionError):  # endless digits, endless depth
                pass
            may_go_on = fault >= left - _NEAR_END and left < _MAX_EVENT_CHARS
            if may_go_on and self._more():
                continue
            following = _NEXT.search(self._text, self._at + 1)
            self._at = following.start() if following else len(self._text)
            return TRUNCATED if may_go_on and not following else _DAMAGED


@dataclass(frozen=True, slots=True)
class _Span:
    """An annotated stretch of time, microseconds."""

    start: float
    duration: float
    phase: str
    batch_size: int | None


@dataclass(slots=True)
class _Trace:
    """Spans and all-reduce kernels by lane (device or process), host work by name."""

    engine: str | None = None
    kinds: set[object] = field(default_factory=set)  # lanes and what runs on them
    gpu: dict[object, list[_Span]] = field(default_factory=lambda: defaultdict(list))
    host: dict[object, list[_Span]] = field(default_factory=lambda: defaultdict(list))
    scheduler: dict[str, Durations] = field(default_factory=lambda: defaultdict(Durations))
    reduces: dict[tuple[object, str], tuple[array[float], array[float]]] = field(
        default_factory=lambda: defaultdict(lambda: (array("d"), array("d")))
    )


def parse(source: Source) -> list[LogEntry]:
    """Read one rank's trace; SGLang puts the rank into the file's name.

    Durations of phases are those on the GPU where the trace has them, else on the host.
    """
    events, trace = EventStream(source.chunks()), _Trace()
    for event in events:
        with counted(events.unread):
            _take(event, trace)
    rank = _RANK.search(source.path)
    spans = sum(len(lane) for lanes in (trace.gpu, trace.host) for lane in lanes.values())
    timings = _timings(trace, int(rank[1]) if rank else None)
    cut = (finding("truncated", "trace"),) if events.found and not events.ended else ()
    entry = LogEntry(source.path, "chrome_trace", trace.engine, timings=timings, diagnoses=cut)
    return [replace(entry, windows=WindowCount(spans, spans), unread=dict(events.unread))]


def _take(event: dict[str, Any], trace: _Trace) -> None:
    name, category = event.get("name"), event.get("cat")
    if event.get("ph") != "X" or not isinstance(name, str):
        return
    what: str | Phase | re.Match[str] | None = None
    if category == "kernel":
        what = _allreduce_kind(name)
    elif category in ("user_annotation", "gpu_user_annotation"):
        what = _phase(name) or _SCHEDULER.fullmatch(name)
    if not what:
        return
    start, duration = number(event, "ts"), number(event, "dur")
    if start is None or duration is None or not SHORTEST_US <= duration <= LONGEST_US:
        raise Unread("an event without times")
    pid = event.get("pid")
    lane = pid if isinstance(pid, int | str) else None
    kind = lane, what[1] if isinstance(what, re.Match) else what
    check(kind in trace.kinds or len(trace.kinds) < MOST_KINDS, TOO_MANY)
    trace.kinds.add(kind)
    if isinstance(what, str):
        starts, durations = trace.reduces[lane, what]
        starts.append(start)
        durations.append(duration)
    elif isinstance(what, re.Match):
        trace.scheduler[what[1]].add(duration * _US)
    else:
        trace.engine = "vllm" if name.startswith(("execute_", "gpu_model")) else "sglang"
        lanes = trace.host if category == "user_annotation" else trace.gpu
        lanes[lane].append(_Span(start, duration, *what))


@lru_cache(4096)
def _allreduce_kind(name: str) -> str:
    """Kind of all-reduce that a kernel is; empty for other kernels. Names come again and again."""
    found = ALLREDUCE.search(name)
    return found[0] if found else ""


@lru_cache(4096)
def _phase(name: str) -> Phase | None:
    """Return phase and batch of an annotation, None if it is not one of ours."""
    if name in listed("profiles", "unsized"):
        return listed("profiles", "unsized", name), None
    if step := step_of(name):
        return step
    if part := _VLLM_PART.fullmatch(name):
        return part[1], None
    found = _VLLM_STEP.fullmatch(name)
    if found is None:
        return None
    prompts, requests, tokens, new, cached = (int(group or 0) for group in found.groups())
    if prompts or new:
        return "prefill", requests or cached
    if found[1] is None:
        return "step", cached
    return ("decode" if tokens == requests else "verify"), requests


def _timings(trace: _Trace, rank: int | None) -> tuple[Timing, ...]:
    for spans in (*trace.gpu.values(), *trace.host.values()):
        spans.sort(key=lambda s: s.start)
        _size_drafts(spans)
    kinds: dict[tuple[Phase, str], Durations] = defaultdict(Durations)
    on_gpu = {(span.phase, span.batch_size) for spans in trace.gpu.values() for span in spans}
    for where, lanes in (("gpu", trace.gpu), ("host", trace.host)):
        for span in (span for spans in lanes.values() for span in spans):
            phase = span.phase, span.batch_size
            if where == "gpu" or phase not in on_gpu:
                kinds[phase, where].add(span.duration * _US)
    _add_allreduces(trace, kinds)
    kinds |= {(("scheduler", None), name): d for name, d in trace.scheduler.items()}
    found = [timing(phase, d, name, batch, rank) for ((phase, batch), name), d in kinds.items()]
    return tuple(sorted(found, key=lambda t: (t.phase, t.batch_size or 0, t.name)))


def _add_allreduces(trace: _Trace, kinds: dict[tuple[Phase, str], Durations]) -> None:
    """Add all-reduces by the batch and the phase within which they began."""
    for (lane, kind), (starts, durations) in trace.reduces.items():
        spans = trace.gpu.get(lane, [])
        begins = [s.start for s in spans]
        for start, duration in zip(starts, durations, strict=True):
            at = bisect_right(begins, start) - 1
            inside = at >= 0 and start < begins[at] + spans[at].duration
            batch = spans[at].batch_size if inside else None
            name = f"{kind} in {spans[at].phase}" if inside else kind
            kinds[("allreduce", batch), name].add(duration * _US)


def _size_drafts(spans: list[_Span]) -> None:
    """Give `draft` the batch of the verification that follows, `draft_extend` that before it."""
    sized = [i for i, s in enumerate(spans) if s.phase == "verify" and s.batch_size]
    for i, span in enumerate(spans):
        if span.batch_size is not None or span.phase not in ("draft", "extend"):
            continue
        at = bisect_right(sized, i) - (span.phase == "extend")
        if 0 <= at < len(sized):
            spans[i] = replace(span, batch_size=spans[sized[at]].batch_size)
