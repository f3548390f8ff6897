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
from itertools import chain
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

    unread: Counter[str] = field(default_factory=Counter)  # reason -> events
    cut: bool = False  # its array of events began, and did not end
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
    trace = _Trace()
    for event in _events(source.chunks(), trace):
        with counted(trace.unread):
            _take(event, trace)
    rank = _RANK.search(source.path)
    spans = sum(len(lane) for lanes in (trace.gpu, trace.host) for lane in lanes.values())
    timings = _timings(trace, int(rank[1]) if rank else None)
    cut = (finding("truncated", "trace"),) if trace.cut else ()
    entry = LogEntry(source.path, "chrome_trace", trace.engine, timings=timings, diagnoses=cut)
    return [replace(entry, windows=WindowCount(spans, spans), unread=dict(trace.unread))]


def _events(chunks: Iterable[bytes], trace: _Trace) -> Iterator[dict[str, Any]]:
    """Yield the event objects of a trace, given as the chunks of its file.

    A trace of a gigabyte is never whole in memory. After one that cannot be read it goes on at what
    looks like an event.
    """
    text, at, found, decode = "", 0, False, json.JSONDecoder().raw_decode
    for chunk in chain(codecs.iterdecode(chunks, "utf-8", "replace"), ("",)):
        text, at = text[at:] + chunk, 0
        if not found:
            events = _ARRAY.search(text)
            found = trace.cut = events is not None
            at = events.end() if events else max(len(text) - 64, 0)
        while found and (at := _after_blanks(text, at)) < len(text):
            if text[at] == "]":
                trace.cut = False
                return
            left, fault = len(text) - at, -_NEAR_END
            try:
                event, end = decode(text, at)
                if _SEPARATED.match(text, end):
                    at = end
                    if isinstance(event, dict):
                        yield event
                    else:
                        trace.unread[_DAMAGED] += 1
                    continue
                fault = end - at
            except json.JSONDecodeError as error:
                fault = left if error.msg.startswith("Unterminated") else error.pos - at
            except (ValueError, RecursionError):  # endless digits, endless depth
                pass
            may_go_on = fault >= left - _NEAR_END and left < _MAX_EVENT_CHARS
            if may_go_on and chunk:
                break
            following = _NEXT.search(text, at + 1)
            at = following.start() if following else len(text)
            trace.unread[TRUNCATED if may_go_on and not following else _DAMAGED] += 1


def _after_blanks(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


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
