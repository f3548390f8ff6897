"""A llama-server: what it says of itself, and from its requests an entry with a row per load."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from specsim.logs.diagnose import partial_drafting, truncated
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount
from specsim.logs.facts import Facts as EngineFacts
from specsim.logs.formats import listed, patterns
from specsim.logs.formats.llamacpp.loads import Held, Timeline
from specsim.logs.formats.llamacpp.requests import Request, Slots
from specsim.setting import NO_SPECULATION, chain_settings

_LINE = patterns("llama.cpp")
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
WARM_UP, RAMP, CUT = "warm-up", "ramp or drain", "not finished"
"""Why requests are left out: the first of a cold server; ended under no load that was held; cut
off, so that the log does not count their tokens."""

_PLAIN = LogRow(kind="closed_loop", accept_length=1.0, accept_length_scope="run")


@dataclass(slots=True)
class Facts:
    """Collects what a server says of itself."""

    told: EngineFacts = field(default_factory=lambda: EngineFacts("llama.cpp"))
    models: list[dict[str, object]] = field(default_factory=list)  # the target, then the draft
    depths: dict[str, object] = field(default_factory=dict)  # by way of drafting, as named; or None
    launched: Mapping[str, object] = field(default_factory=dict)  # what a command says
    # The latest of each way of drafting, as the pattern of statistics names them.
    totals: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def read(self, line: bytes) -> None:
        """Take in a whole line."""
        if not self.told.concerned(line):
            return
        named = _LINE["drafter"].search(line)
        if named and b"--spec" not in line:  # a command may be of another server
            self.depths.setdefault(named["name"].decode().replace("_", "-"), None)
        found, known = _LINE["info"].search(line), listed("llama.cpp", "model")
        if found and (key := known.get(found[1].decode())):
            if not self.models or key in self.models[-1]:
                self.models.append({})
            self.models[-1][key] = _number(found[2].decode(errors="replace").strip())
        elif found := _LINE["statistics"].search(line):
            self.totals[found["name"].decode()] = found.groupdict()
        elif found := _LINE["file"].search(line):
            self.told.settings["model"] = PurePosixPath(found[1].decode(errors="replace")).name
        else:
            self.told.learn(line)
            self._complete(self.told.settings)

    def _complete(self, settings: dict[str, object]) -> None:
        """Take what a line said further: a depth is of the drafter that was named last."""
        if depth := settings.pop("depth", None):
            name = next(reversed(self.depths), "")
            self.depths[name] = self.depths.get(name) or depth
        context, slots = settings.get("context_tokens"), settings.get("max_running_requests")
        unified = settings.get("kv_unified")
        if isinstance(unified, str) and isinstance(context, int) and isinstance(slots, int):
            settings["kv_unified"] = unified == "true"
            settings["kv_tokens"] = context * (1 if unified == "true" else slots)

    @property
    def build(self) -> str | None:
        """Build of the binary; None where it does not know."""
        number = self.told.version
        return f"b{number}" if number and int(number) else None

    @property
    def implementation(self) -> str | None:
        """The way of drafting: of several the one that gave most drafts, else one with a model."""
        drafts = {name: int(total["drafts"]) for name, total in self.totals.items()}
        if any(drafts.values()):
            return max(drafts, key=drafts.__getitem__)
        names = [name for name in (*self.depths, *self.totals) if name]
        return next((n for n in names if not n.startswith("ngram")), names[0] if names else None)

    @property
    def algorithm(self) -> str | None:
        """Name of the way of drafting; None where the log names none."""
        name = self.implementation
        if name is not None:
            known: str = listed("llama.cpp", "algorithms").get(name, name.upper())
            return "NGRAM" if name.startswith("ngram") else known
        draft = str(self.models[-1].get("architecture", "")) if len(self.models) > 1 else ""
        heads = (head for head in ("eagle3", "mtp", "dflash", "dspark") if head in draft)
        if draft:
            return next(heads, "standalone").upper()
        return str(self.launched["algorithm"]) if "algorithm" in self.launched else None

    def server_settings(self) -> dict[str, object]:
        """Return the settings that have nothing to do with speculation."""
        found = dict(self.told.settings)
        target = dict(self.models[0]) if self.models else {}
        name = target.pop("name", None)
        if name and not found.get("model"):
            found["model"] = name
        return found | target

    def drafting_settings(self, deepest: int) -> dict[str, object]:
        """Return the settings of speculation; `deepest` is used where the depth is not stated."""
        name = self.implementation
        said = {"algorithm": self.algorithm, "implementation": name}
        found: dict[str, object] = {"topk": 1, **{k: v for k, v in said.items() if v is not None}}
        depth = self.depths.get(name or "") or self.depths.get("") or deepest
        if isinstance(depth, int) and depth:
            found |= chain_settings(depth)
        others = [n for n in {**self.depths, **self.totals} if n and n != name]
        if others:
            found["also_drafting"] = " ".join(others)
        if len(self.models) > 1 and self.algorithm != "NGRAM":
            found |= {f"draft_{key}": value for key, value in self.models[-1].items()}
        return found

    def timings(self) -> tuple[Timing, ...]:
        """Return the time of one call of each drafter: all depths of all slots that draft."""
        timed = (
            (name, int(t["calls"]), int(t["drafts"]), float(t["ms"]) / 1e3)
            for name, t in self.totals.items()
        )
        return tuple(
            Timing("draft", s / n, count=n, batch_size=max(round(drafts / n), 1), name=name)
            for name, n, drafts, s in timed
            if n and s
        )


def _number(text: str) -> object:
    """Return a count, a count with a unit, or the text.

    >>> _number("30"), _number("134.52 M"), _number("F16")
    (30, 134520000, 'F16')
    """
    if re.fullmatch(r"\d{1,12}", text):
        return int(text)
    found = re.fullmatch(r"(\d{1,6}\.\d{2}) ([KMBT])", text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else text


def server_entry(slots: Slots, facts: Facts, path: str) -> LogEntry:
    """Return the entry of one server, of what its lines say."""
    slots.finish()
    known = [r for r in slots.requests if r.known]
    found, unread = tuple(truncated(slots.unread)), dict(+slots.unread)
    entry = LogEntry(path, "llamacpp", "llama.cpp", facts.build, diagnoses=found, unread=unread)
    if not any(r.tokens for r in known) or not any(r.eval_s for r in known):
        return entry
    speculates = any(r.drafted for r in known) or facts.algorithm is not None or slots.unfinished
    timed = slots.in_order and all(r.end_s is not None for r in known)
    settings = facts.server_settings()
    deepest = max(len(r.positions) for r in known)
    if slots.unfinished and facts.algorithm is None:
        pass  # what was accepted is printed at the end
    elif speculates:
        settings |= facts.drafting_settings(deepest)
    else:
        settings |= NO_SPECULATION
    warm = known[1:] if timed and _is_warm_up(known) else known
    common = _acceptance(warm, facts, slots.counts_steps) if speculates else _PLAIN
    one, prefills_s = 1 if len(slots.timed_slots) <= 1 else None, slots.prefills_s
    ttft_s = statistics.fmean(prefills_s) if any(prefills_s) else None
    rows = [_request_row(known, common, slots.counts_steps, one, ttft_s=ttft_s)]
    windows = WindowCount(len(known), len(known))
    if timed:
        settings["log_timestamps"] = True
        rows, windows = _timed_rows(slots, known, warm, common, facts)
    return replace(
        entry,
        settings=settings,
        rows=tuple(rows),
        windows=windows,
        diagnoses=(*found, *_partial(warm, common, settings.get("num_steps"))),
        timings=facts.timings() if speculates else (),
    )


def _is_warm_up(known: Sequence[Request]) -> bool:
    """Whether the first request was alone on a cold server and others tell more."""
    first, *others = known
    starts = [s for r in others if (s := r.start_s) is not None]
    end_s = first.end_s
    return len(others) >= 2 and end_s is not None and min(starts, default=end_s) >= end_s


def _acceptance(requests: Sequence[Request], facts: Facts, steps: bool) -> LogRow:
    """Pool what was accepted over requests: each round of a request counts once."""
    drafting = [r for r in requests if r.accepted is not None or facts.algorithm == "NGRAM"]
    accepted, drafted = sum(r.accepted or 0 for r in drafting), sum(r.drafted for r in drafting)
    if steps:  # the prefill gives the first token
        tokens, rounds = sum(r.decoded for r in drafting), sum(r.rounds for r in drafting)
    else:
        tokens = sum(r.tokens or 0 for r in drafting)
        rounds = tokens - accepted
    if rounds <= 0:
        return replace(_PLAIN, accept_length=None)
    return replace(
        _PLAIN,
        accept_length=max(tokens / rounds, 1.0),
        accept_length_sem=_accept_error(drafting, tokens / rounds) if steps else None,
        survival=_survival(drafting, rounds) if steps else None,
        drafted_per_round=drafted / rounds,
        accept_rate=accepted / drafted if drafted else None,
    )


def _survival(requests: Sequence[Request], rounds: int) -> tuple[float, ...] | None:
    """P(at least d drafts accepted) over all rounds, those without a draft too.

    The server counts by position over the rounds that drafted; 1 + sum is then the accept length.
    """
    if any(r.accepted and not r.positions for r in requests):
        return None
    counts = [0.0] * max((len(r.positions) for r in requests), default=0)
    for r in requests:
        rounds_that_drafted = (r.accepted or 0) / (sum(r.positions) or 1.0)
        for depth, rate in enumerate(r.positions):
            counts[depth] += rate * rounds_that_drafted
    return tuple(min(count / rounds, 1.0) for count in counts) or None


def _accept_error(requests: Sequence[Request], mean: float) -> float | None:
    """Return the standard error of a ratio of sums, from its spread over requests."""
    n, rounds = len(requests), sum(r.rounds for r in requests)
    if n < 2 or not rounds:
        return None
    spread = sum((r.decoded - mean * r.rounds) ** 2 for r in requests)
    return float((spread * n / (n - 1)) ** 0.5 / rounds)


def _timed_rows(
    slots: Slots, known: Sequence[Request], warm: Sequence[Request], common: LogRow, facts: Facts
) -> tuple[list[LogRow], WindowCount]:
    """Return a row per load that was held; else what single requests say, without throughput."""
    cold = known[: len(known) - len(warm)]
    requests = [r for r in slots.requests if not any(r is c for c in cold)]
    cut = sum(1 for r in requests if not r.known and r.launched_s is not None)
    timeline = Timeline.of(requests, slots.now_s or 0.0, _of_others(known, facts))
    loads = [load for load in timeline.held() if load.requests and load.tokens > 0]
    level = timeline.main_level()
    if not any(r.launched_s is not None for r in requests):
        # of a log without launches, requests that were cut off are missing, unless all slots show
        all_slots = facts.told.settings.get("max_running_requests")
        loads = [load for load in loads if load.level == all_slots]
        level = level if level == all_slots else None
    if len(slots.timed_slots) <= 1:
        level = 1
    rows = [_load_row(load, common) for load in loads]
    rows = rows or [_request_row(warm, common, slots.counts_steps, level)]
    used = sum(row.windows for row in rows)
    dropped = Counter({WARM_UP: len(cold), RAMP: len(warm) - used, CUT: cut})
    return rows, WindowCount(len(known) + cut, used, dict(+dropped))


def _load_row(load: Held, common: LogRow) -> LogRow:
    own: dict[str, Any] = {"output_len": load.output_len} if load.output_len else {}
    own |= {"ttft_s": _wait(load.begun), "batch_size": load.busy, "duration_s": load.seconds}
    own |= {"output_tps": load.tokens / load.seconds, "output_tps_sem": load.error / load.seconds}
    return _request_row(load.requests, common, True, load.level, **own)


def _of_others(known: Sequence[Request], facts: Facts) -> tuple[int, int | None] | None:
    """Return what requests accepted that the log does not count, by the server's totals.

    Of n-gram lookup the rounds without a draft are in no total.
    """
    if not facts.totals or facts.algorithm is None:
        return None
    totals = facts.totals.values()
    accepted = sum(int(t["accepted"]) for t in totals) - sum(r.accepted or 0 for r in known)
    verified = sum(int(t["verified"]) for t in totals) - sum(r.drafting_rounds for r in known)
    if accepted < 0 or verified < 0:
        return None
    return accepted, None if facts.algorithm == "NGRAM" else verified


def _request_row(
    requests: Sequence[Request], common: LogRow, steps: bool, level: int | None, **own: Any
) -> LogRow:
    """Return what requests say; of one at a time the time per token is the throughput."""
    tokens = sum(r.decoded if steps else r.tokens or 0 for r in requests)
    tpot_s = sum(r.eval_s for r in requests) / tokens if tokens else None
    accept = common.accept_length
    prompts = [r for r in requests if r.prompt_s is not None]
    inputs = [r.context_tokens or r.prompt_tokens for r in prompts]
    cached = [r.context_tokens - r.prompt_tokens for r in prompts if r.context_tokens]
    said = {
        "concurrency": level,
        "batch_size": level,
        "output_tps": 1 / tpot_s if level == 1 and tpot_s else None,
        "round_time_s": accept * tpot_s if accept is not None and tpot_s else None,
        "tpot_s": tpot_s,
        "ttft_s": _wait(requests),
        "windows": len(requests),
        "num_requests": len(requests),
        "input_len": statistics.fmean(inputs) if inputs else None,
        "output_len": statistics.fmean(r.tokens or 0 for r in requests),
        "extra": {"input_cached": statistics.fmean(cached)} if any(c > 0 for c in cached) else {},
    }
    return replace(common, **(said | own))


def _wait(requests: Sequence[Request]) -> float | None:
    """Return the mean time to the first token: from the launch if that is told."""
    waits = [
        r.prompt_s if r.first_s is None or r.start_s is None else r.first_s - r.start_s
        for r in requests
        if r.prompt_s is not None
    ]
    return statistics.fmean(waits) if any(waits) else None


def _partial(requests: Sequence[Request], common: LogRow, steps: object) -> Iterator[Diagnosis]:
    """Tell whether drafts are shorter than their depth but for the ends of requests.

    With r tokens to go at most r - 1 are drafted. A request passes each r with probability
    1 / accept length, so its end costs S (S + 1) / (2 accept length) drafts.
    """
    each, accept = common.drafted_per_round, common.accept_length
    drafting = sum(1 for r in requests if r.drafted)
    if not isinstance(steps, int) or not each or accept is None or not drafting:
        return
    rounds = sum(r.drafted for r in requests) / each
    at_ends = drafting * steps * (steps + 1) / (2 * accept) / rounds
    yield from partial_drafting(each, steps, at_ends)
