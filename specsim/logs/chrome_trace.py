"""Chrome traces of the torch profiler, as SGLang and vLLM write them: phases and all-reduces."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from specsim.logs.durations import Durations
from specsim.logs.entry import Diagnosis, LogEntry, Timing, WindowCount
from specsim.logs.events import EventStream
from specsim.logs.json_values import number

STEP = re.compile(r"step\[(\w{1,32}) bs=(\d{1,6})(?: toks=(\d{1,9}))?\]")
_VLLM_STEP = re.compile(
    r"execute_(?:context_(\d{1,6})\(\d{1,9}\)_generation_(\d{1,6})\((\d{1,9})\)"
    r"|new_(\d{1,6})_cached_(\d{1,6}))"
)
_VLLM_PART = re.compile(r"gpu_model_runner: (forward|draft|sample|preprocess|postprocess)")
_SCHEDULER = re.compile(
    r"scheduler\.(recv_requests|process_input_requests|get_next_batch_to_run|run_batch"
    r"|process_batch_result)"
)
ALLREDUCE = re.compile(
    r"nccl(?:Dev)?Kernel_AllReduce|cross_device_reduce_[12]stage|allreduce_fusion_kernel"
    r"|mnnvl_allreduce|multimem_all_reduce|one_shot_all_reduce|two_shot_all_reduce"
)
_RANK = re.compile(r"-TP-(\d{1,5})")

PHASES = {
    "DECODE": "decode",
    "TARGET_VERIFY": "verify",
    "VERIFY": "verify",
    "DRAFT": "draft",
    "DRAFT_EXTEND": "extend",
    "DRAFT_EXTEND_V2": "extend",
    "EXTEND": "prefill",
    "MIXED": "prefill",
}
_UNSIZED = {"draft": "draft", "draft_extend": "extend"}
_US = 1e-6
SHORTEST_US, LONGEST_US = 1e-3, 1e9
"""No kernel is shorter, no step longer."""


@dataclass(frozen=True, slots=True)
class _Span:
    """An annotated stretch of time, microseconds."""

    start: float
    duration: float
    phase: str
    batch_size: int | None
    name: str


def read_chrome_trace(chunks: Iterable[bytes], path: str = "-") -> list[LogEntry]:
    """Read one rank's trace.

    Durations of phases are those on the GPU where the trace has them, else on the host. A rank's
    all-reduce also waits for its peers: :func:`minimum_over_ranks` joins several traces.

    Parameters
    ----------
    chunks
        The bytes of the file.
    path
        Name for the entry; SGLang puts the rank into it.
    """
    events = EventStream(chunks)
    reader = _Trace()
    for event in events:
        reason = reader.take(event)
        if reason:
            events.unread[reason] += 1
    rank = _RANK.search(path)
    timings = reader.timings(int(rank[1]) if rank else None)
    found = []
    if events.found and not events.ended:
        found.append(Diagnosis("truncated", "the trace is cut short: its last events are missing"))
    entry = LogEntry(
        path=path,
        format="chrome_trace",
        engine=reader.engine,
        windows=WindowCount(reader.spans, reader.spans),
        timings=timings,
        diagnoses=tuple(found),
        unread=dict(events.unread),
    )
    return [entry]


def minimum_over_ranks(entries: Sequence[LogEntry]) -> tuple[Timing, ...]:
    """Return the timings of several ranks' traces, the least all-reduce of each kind.

    Parameters
    ----------
    entries
        One per rank, of the same run.
    """
    best: dict[tuple[str, int | None, int | None, str], Timing] = {}
    for entry in entries:
        for timing in entry.timings:
            key = (timing.phase, timing.batch_size, timing.size_bytes, timing.name)
            old = best.get(key)
            if old is None or timing.seconds < old.seconds:
                best[key] = timing
    return tuple(replace(t, ranks=t.ranks or len(entries)) for t in best.values())


class _Trace:
    """Collects spans and all-reduce kernels."""

    def __init__(self) -> None:
        self.engine: str | None = None
        self.spans = 0
        self._gpu: dict[object, list[_Span]] = defaultdict(list)
        self._host: dict[object, list[_Span]] = defaultdict(list)
        self._scheduler: dict[str, Durations] = defaultdict(Durations)
        self._reduces: dict[tuple[object, str], tuple[array[float], array[float]]] = {}

    def take(self, event: dict[str, Any]) -> str | None:
        """Take one event; return why it could not be read, if it matters."""
        name = event.get("name")
        if event.get("ph") != "X" or not isinstance(name, str):
            return None
        category = event.get("cat")
        if category == "kernel":
            return self._kernel(event, name)
        if category not in ("user_annotation", "gpu_user_annotation"):
            return None
        return self._annotation(event, name, category == "gpu_user_annotation")

    def _kernel(self, event: dict[str, Any], name: str) -> str | None:
        kind = _allreduce_kind(name)
        if not kind:
            return None
        times = _times(event)
        if times is None:
            return "an event without times"
        start, duration = times
        key = (_lane(event), kind)
        starts, durations = self._reduces.setdefault(key, (array("d"), array("d")))
        starts.append(start)
        durations.append(duration)
        return None

    def _annotation(self, event: dict[str, Any], name: str, on_gpu: bool) -> str | None:
        what = _phase(name)
        scheduler = _SCHEDULER.fullmatch(name)
        if what is None and scheduler is None:
            return None
        times = _times(event)
        if times is None:
            return "an event without times"
        start, duration = times
        if scheduler:
            self._scheduler[scheduler[1]].add(duration * _US)
            return None
        assert what is not None
        self.engine = "vllm" if name.startswith(("execute_", "gpu_model")) else "sglang"
        phase, batch = what
        self.spans += 1
        lanes = self._gpu if on_gpu else self._host
        lanes[_lane(event)].append(_Span(start, duration, phase, batch, name))
        return None

    def timings(self, rank: int | None) -> tuple[Timing, ...]:
        """Return phases, all-reduces and host work, in this order."""
        for lanes in (self._gpu, self._host):
            for spans in lanes.values():
                spans.sort(key=lambda s: s.start)
                _size_drafts(spans)
        gpu, host = _by_phase(self._gpu), _by_phase(self._host)
        found = [
            _timing(phase, batch, durations, "gpu", rank)
            for (phase, batch), durations in gpu.items()
        ]
        found += [
            _timing(phase, batch, durations, "host", rank)
            for (phase, batch), durations in host.items()
            if (phase, batch) not in gpu
        ]
        found += self._allreduces(rank)
        found += [_timing("scheduler", None, d, name, rank) for name, d in self._scheduler.items()]
        return tuple(sorted(found, key=lambda t: (t.phase, t.batch_size or 0, t.name)))

    def _allreduces(self, rank: int | None) -> list[Timing]:
        kinds: dict[tuple[str, int | None, str], Durations] = defaultdict(Durations)
        for (lane, kind), (starts, durations) in self._reduces.items():
            spans = self._gpu.get(lane, [])
            begins = [s.start for s in spans]
            for start, duration in zip(starts, durations, strict=True):
                at = bisect_right(begins, start) - 1
                inside = at >= 0 and start < spans[at].start + spans[at].duration
                phase, batch = (spans[at].phase, spans[at].batch_size) if inside else ("", None)
                kinds[kind, batch, phase].add(duration * _US)
        return [
            Timing(
                phase="allreduce",
                seconds=d.quantile(0.1),
                seconds_mean=d.mean,
                seconds_min=d.least,
                count=d.count,
                batch_size=batch,
                rank=rank,
                name=f"{kind} in {phase}" if phase else kind,
            )
            for (kind, batch, phase), d in kinds.items()
        ]


@lru_cache(4096)
def _allreduce_kind(name: str) -> str:
    """Kind of all-reduce that a kernel is; empty for other kernels. Names come again and again."""
    found = ALLREDUCE.search(name)
    return found[0] if found else ""


@lru_cache(4096)
def _phase(name: str) -> tuple[str, int | None] | None:
    """Return (phase, batch) of an annotation, None if it is not one of ours."""
    if name in _UNSIZED:
        return _UNSIZED[name], None
    step = STEP.fullmatch(name)
    if step:
        return PHASES.get(step[1], step[1].lower()), int(step[2])
    part = _VLLM_PART.fullmatch(name)
    if part:
        return ("draft" if part[1] == "draft" else part[1]), None
    vllm = _VLLM_STEP.fullmatch(name)
    if vllm is None:
        return None
    if vllm[1] is not None:
        requests, tokens = int(vllm[2]), int(vllm[3])
        phase = "decode" if tokens == requests else "verify"
        return ("prefill" if int(vllm[1]) else phase), requests
    return ("prefill" if int(vllm[4]) else "step"), int(vllm[5])


def _times(event: dict[str, Any]) -> tuple[float, float] | None:
    """Start and duration, microseconds; None if there are none or they cannot be."""
    start, duration = number(event, "ts"), number(event, "dur")
    if start is None or duration is None or not SHORTEST_US <= duration <= LONGEST_US:
        return None
    return start, duration


def _lane(event: dict[str, Any]) -> object:
    """Return the device (or process) of an event: spans and kernels of one are compared."""
    pid = event.get("pid")
    return pid if isinstance(pid, int | str) else None


def _size_drafts(spans: list[_Span]) -> None:
    """Give `draft` the batch of the verification that follows, `draft_extend` that before it."""
    sized = [i for i, s in enumerate(spans) if s.phase == "verify" and s.batch_size]
    if not sized:
        return
    for i, span in enumerate(spans):
        if span.batch_size is not None or span.phase not in ("draft", "extend"):
            continue
        at = bisect_right(sized, i)
        at = at if span.phase == "draft" else at - 1
        if 0 <= at < len(sized):
            spans[i] = replace(span, batch_size=spans[sized[at]].batch_size)


def _by_phase(lanes: dict[object, list[_Span]]) -> dict[tuple[str, int | None], Durations]:
    found: dict[tuple[str, int | None], Durations] = defaultdict(Durations)
    for spans in lanes.values():
        for span in spans:
            found[span.phase, span.batch_size].add(span.duration * _US)
    return found


def _timing(phase: str, batch: int | None, d: Durations, name: str, rank: int | None) -> Timing:
    return Timing(
        phase=phase,
        seconds=d.quantile(0.5),
        seconds_mean=d.mean,
        seconds_min=d.least,
        count=d.count,
        batch_size=batch,
        rank=rank,
        name=name,
    )
