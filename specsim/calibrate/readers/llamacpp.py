"""llama.cpp: timings that llama-server prints per request, and llama-speculative's summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from specsim.calibrate.readers.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount
from specsim.calibrate.readers.settings import NO_SPECULATION, chain_settings
from specsim.calibrate.readers.source import as_lines

_TIMING = re.compile(
    rb"(?P<what>(?:\A|[\s:|])prompt eval| {4,}eval) time = +(?P<ms>\d{1,12}\.\d\d) ms / +"
    rb"(?P<n>\d{1,9}) (?P<unit>tokens|runs) +\( *(?P<each>\d{1,9}\.\d\d) ms per token, +"
    rb"(?P<tps>\d{1,9}\.\d\d|inf) tokens per second\)\s*\Z"
)
_ACCEPTANCE = re.compile(
    rb"draft acceptance(?: rate)? = +([01]\.\d{3,8}) "
    rb"\( *(\d{1,9}) accepted / +(\d{1,9}) generated\)"
)
_SLOT = re.compile(rb"\bid +(\d{1,4}) \|")
_DECODED = re.compile(
    rb"decoded +(\d{1,9}) tokens in +(\d{1,9}\.\d{3}) seconds, speed: +(\d{1,9}\.\d{3}) t/s\s*\Z"
)
_COUNTER = re.compile(rb"\s*(n_draft|n_predict|n_drafted|n_accept) +=? ?= +(\d{1,9})\s*\Z")
_RATE = re.compile(rb"\s*accept += +(\d{1,3}\.\d{3})%\s*\Z")
_SECTION = re.compile(rb"\s*(draft|target):\s*\Z")

MARKS = (
    b"eval time =",
    b"draft acceptance",
    b"decoded ",
    b"n_draft",
    b"n_accept",
    b"n_predict",
    b"accept  ",
)
_CUT = re.compile(rb"llama_perf_\w{1,32}: +[a-z ]{0,20}\Z")


@dataclass(slots=True)
class _Run:
    """What has been read."""

    tokens: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    prompts: int = 0
    requests: int = 0
    drafting_tokens: int = 0
    accepted: int = 0
    drafted: int = 0
    slots: set[bytes] = field(default_factory=set)
    counters: dict[bytes, int] = field(default_factory=dict)
    decoded: tuple[int, float] | None = None
    rate: float | None = None
    section: bytes = b""
    draft_model: tuple[int, float] | None = None
    last_tokens: int = 0
    unread: Counter[str] = field(default_factory=Counter)

    @property
    def says_anything(self) -> bool:
        """Whether anything was measured."""
        return bool(self.tokens or self.decoded or self.counters)


def read_llamacpp(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read llama-server's timings, or the summary of llama-speculative.

    Each round of a request emits its accepted drafts and one token of the target, so a request
    that got n tokens of which a were drafts took n - a rounds.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.
    """
    runs = [_Run()]
    for line in as_lines(lines):
        if line.startswith(b"decoded ") and runs[-1].decoded:
            runs.append(_Run())
        _read_line(line, runs[-1])
    runs = [run for run in runs if run.says_anything or run.unread] or runs[:1]
    return [
        _tool_entry(r, path) if r.decoded or r.counters else _server_entry(r, path) for r in runs
    ]


def _read_line(line: bytes, run: _Run) -> None:
    slot, section = _SLOT.search(line), _SECTION.match(line)
    if slot and b"timing" in line:
        run.slots.add(slot[1])
    if section:
        run.section = section[1]
    if not any(mark in line for mark in MARKS):
        if _CUT.search(line.rstrip()):
            run.unread["truncated"] += 1
        return
    if not line.endswith((b"\n", b"\r")):
        run.unread["truncated"] += 1
        return
    decoded, counter = _DECODED.search(line), _COUNTER.match(line)
    rate = _RATE.match(line)
    timing, acceptance = _TIMING.search(line), _ACCEPTANCE.search(line)
    reason: str | None = None
    if decoded:
        reason = _decoded(decoded, run)
    elif rate:
        run.rate = float(rate[1])
    elif counter:
        run.counters[counter[1]] = int(counter[2])
    elif timing:
        reason = _timing(timing, run)
    elif acceptance:
        reason = _acceptance(acceptance, run)
    elif any(mark in line for mark in MARKS[:3]):
        reason = "damaged field"
    if reason:
        run.unread[reason] += 1


def _decoded(found: re.Match[bytes], run: _Run) -> str | None:
    tokens, seconds, speed = int(found[1]), float(found[2]), float(found[3])
    if not seconds or abs(tokens / seconds - speed) > 0.001 + 0.001 * speed:
        return "numbers contradict each other"
    run.decoded = (tokens, seconds)
    return None


def _timing(found: re.Match[bytes], run: _Run) -> str | None:
    n, ms, each = int(found["n"]), float(found["ms"]), float(found["each"])
    if n and abs(ms / n - each) > 0.006 + 1e-4 * each:
        return "numbers contradict each other"
    if (
        found["tps"] != b"inf"
        and ms
        and abs(1e3 * n / ms - float(found["tps"])) > 0.006 + 1e-3 * (1e3 * n / ms)
    ):
        return "numbers contradict each other"
    if found["unit"] == b"runs":
        if _is_eval(found) and run.section == b"draft" and n:
            run.draft_model = (n, ms / 1e3)
    elif _is_eval(found):
        run.tokens, run.seconds = run.tokens + n, run.seconds + ms / 1e3
        run.requests += 1
        run.last_tokens = n
    else:
        run.prompts += 1
        run.prompt_tokens, run.prompt_seconds = run.prompt_tokens + n, run.prompt_seconds + ms / 1e3
    return None


def _agree(accepted: int | None, drafted: int | None, rate: float | None) -> bool:
    """Whether counts of drafts agree with the rate, in percent, that is printed below them."""
    if accepted is None or drafted is None:
        return True
    return rate is not None and abs(accepted - rate / 100 * drafted) <= 1e-5 * drafted + 0.01


def _is_eval(found: re.Match[bytes]) -> bool:
    return b"prompt" not in found["what"]


def _acceptance(found: re.Match[bytes], run: _Run) -> str | None:
    rate, accepted, drafted = float(found[1]), int(found[2]), int(found[3])
    if not drafted or accepted > drafted or abs(accepted / drafted - rate) > 0.001:
        return "numbers contradict each other"
    if accepted >= run.last_tokens:
        return "more drafts accepted than tokens emitted"
    run.accepted, run.drafted = run.accepted + accepted, run.drafted + drafted
    run.drafting_tokens += run.last_tokens
    run.last_tokens = 0
    return None


def _truncated(run: _Run) -> list[Diagnosis]:
    cut = run.unread.get("truncated")
    return [Diagnosis("truncated", f"{cut} line(s) cut short were not read")] if cut else []


def _server_entry(run: _Run, path: str) -> LogEntry:
    """Read llama-server: timings are per request, so throughput only where one slot was used."""
    found = _truncated(run)
    if not run.tokens or not run.seconds:
        return LogEntry(
            path, "llamacpp", "llama.cpp", unread=dict(run.unread), diagnoses=tuple(found)
        )
    rounds = run.drafting_tokens - run.accepted
    alone = len(run.slots) <= 1
    speculates = bool(run.drafted)
    accept = run.drafting_tokens / rounds if speculates and rounds > 0 else None
    tpot = run.seconds / run.tokens
    accept = accept if speculates else 1.0
    row = LogRow(
        kind="closed_loop",
        batch_size=1.0 if alone else None,
        concurrency=1.0 if alone else None,
        output_tps=1 / tpot if alone else None,
        accept_length=accept,
        round_time_s=accept * tpot if accept is not None else None,
        tpot_s=tpot,
        ttft_s=run.prompt_seconds / run.prompts if run.prompt_seconds else None,
        windows=run.requests,
        drafted_per_round=run.drafted / rounds if speculates and rounds > 0 else None,
        accept_rate=run.accepted / run.drafted if speculates else None,
        num_requests=run.requests,
        output_len=run.tokens / run.requests,
        accept_length_scope="run",
    )
    return LogEntry(
        path=path,
        format="llamacpp",
        engine="llama.cpp",
        settings={"algorithm": "STANDALONE", "topk": 1} if speculates else dict(NO_SPECULATION),
        rows=(row,),
        windows=WindowCount(run.requests, run.requests),
        diagnoses=tuple(found),
        unread=dict(run.unread),
    )


def _tool_entry(run: _Run, path: str) -> LogEntry:
    """Summary of llama-speculative: one stream."""
    found = _truncated(run)
    steps, drafted = run.counters.get(b"n_draft"), run.counters.get(b"n_drafted")
    accepted, predicted = run.counters.get(b"n_accept"), run.counters.get(b"n_predict")
    tokens = run.decoded[0] if run.decoded else predicted
    rounds = tokens - accepted if tokens is not None and accepted is not None else 0
    if not _agree(accepted, drafted, run.rate):
        rounds, drafted, accepted = 0, None, None
        run.unread["numbers contradict each other"] += 1
    accept = tokens / rounds if tokens and rounds > 0 else None
    each = drafted / rounds if drafted is not None and rounds > 0 else None
    seconds = run.decoded[1] if run.decoded else None
    if steps and each is not None and each < 0.95 * steps:
        text = f"{each:.1f} of {steps} tokens are drafted per round: not every round drafts in full"
        found.append(Diagnosis("partial_drafting", text))
    row = LogRow(
        kind="closed_loop",
        batch_size=1.0,
        concurrency=1.0,
        output_tps=tokens / seconds if tokens and seconds else None,
        accept_length=accept,
        round_time_s=seconds / rounds if seconds and rounds > 0 else None,
        drafted_per_round=each,
        accept_rate=accepted / drafted if accepted is not None and drafted else None,
        num_requests=1,
        output_len=tokens,
        duration_s=seconds,
        accept_length_scope="run",
    )
    settings: dict[str, object] = {"algorithm": "STANDALONE"}
    if steps:
        settings.update(chain_settings(steps))
    timings: tuple[Timing, ...] = ()
    if run.draft_model:
        n, total_s = run.draft_model
        timings = (Timing("draft", total_s / n, count=n, batch_size=1, name="draft eval"),)
    return LogEntry(
        path=path,
        format="llamacpp",
        engine="llama.cpp",
        settings=settings,
        rows=(row,),
        windows=WindowCount(1, 1),
        diagnoses=tuple(found),
        unread=dict(run.unread),
        timings=timings,
    )
