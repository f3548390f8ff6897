"""vLLM's throughput and drafting lines: their grammar, and what the drafting lines add up to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specsim.arrays import Flags, Floats, Ints
from specsim.logs.entry import per_round
from specsim.logs.formats import listed, pattern, patterns
from specsim.logs.unread import CONTRADICTION, DAMAGED, TRUNCATED, TWO_IN_ONE, Unread, check

ENGINE_MARK = b"Avg generation throughput: "
SPEC_MARK = b"SpecDecoding metrics: "
OLD_SPEC_MARK = b"Speculative metrics: "

ENGINE = ("prompt", "tps", "running", "waiting", "usage")  # `usage` is in percent
DRAFTING = ("length", "speed", "accepted", "drafted", "positions", "rate")
"""Columns of a drafting line: `speed` is accepted tokens/s, `positions` are the per-position rates,
`rate` is in percent."""

Values = tuple[bytes, ...]  # as printed, empty where a line does not say

NO_DRAFTS = "nothing was drafted"
RATE_TOLERANCE = 0.0006  # printed fractions may be off by half of their last digit

_LINE = patterns("vllm")
_DRAFTING_LINES = tuple(pattern(layout["pattern"], "vllm") for layout in listed("vllm", "drafting"))


def parse_regular(lines: Sequence[bytes]) -> list[Values] | None:
    """Read throughput and drafting lines at once; None if any is not as now usual.

    For each interval: what stands before its lines, process id, time, the name of the engine, and
    the values in the order of `ENGINE` and `DRAFTING`.
    """
    found = _LINE["regular"].findall(b"".join(lines))
    drafting = sum(values[-1] != b"" for values in found)
    return found if len(found) + drafting == len(lines) else None


class EngineLine(NamedTuple):
    """Throughput of one interval."""

    values: Values  # number of the engine, then in the order of `ENGINE`
    engines: int  # over 1 on an aggregated line
    preemptions: int


class V0Line(NamedTuple):
    """Counters since the start of a V0 engine."""

    num_steps: int
    accepted: int
    drafted: int
    emitted: int

    @property
    def rounds(self) -> float:
        """Request-rounds: each drafts `num_steps` tokens."""
        return self.drafted / self.num_steps


def parse_engine_line(line: bytes) -> EngineLine:
    """Read an ``Avg generation throughput`` line."""
    found = _LINE["engine"].search(line)
    if found is None:
        raise _unread(line)
    check(line.count(ENGINE_MARK) == line.count(b"Avg prompt ") == 1, TWO_IN_ONE)
    prompt, tail = found["prompt"], found["tail"]
    if elsewhere := _LINE["elsewhere"].search(tail):
        prompt = b"%.3f" % (float(prompt) * max(1 - float(elsewhere[1]) / 100, 0))
    usage, preemptions = _LINE["usage"].search(tail), _LINE["preemptions"].search(tail)
    check(not usage or float(usage[1]) <= 100, "cache usage above 100 %")
    said = (prompt, *found.group("tps", "running", "waiting"), usage[1] if usage else b"")
    return EngineLine(
        values=(found["name"] or b"", *said),
        engines=int(found["engines"] or 1),
        preemptions=int(preemptions[1]) if preemptions else 0,
    )


def _unread(line: bytes) -> Unread:
    return Unread(DAMAGED if line.endswith((b"\n", b"\r")) else TRUNCATED)


def parse_spec_line(line: bytes) -> Values | V0Line:
    """Read a drafting line of any version: values in the order of `DRAFTING`, or counters of V0.

    Whether they agree, and whether the length has the bonus token in it, is decided for many lines
    at once (:func:`judge`).
    """
    new = SPEC_MARK in line
    mark = SPEC_MARK if new else OLD_SPEC_MARK
    check(line.count(mark) == 1, TWO_IN_ONE)
    check(not new or line.endswith((b"\n", b"\r", b"%")), TRUNCATED)
    start = line.find(mark)
    if found := next((f for layout in _DRAFTING_LINES if (f := layout.match(line, start))), None):
        texts = found.groupdict(b"")
        if not new:
            texts["rate"] = b"%.1f" % (100 * float(texts["rate"]))
        return tuple(texts.get(name, b"") for name in DRAFTING)
    v0 = _LINE["v0"].match(line, start)
    if v0 is None:
        raise _unread(line)
    counters = V0Line(*map(int, v0.group(3, 4, 5, 6)))
    check(counters.num_steps and counters.drafted, NO_DRAFTS)
    rate = counters.accepted / counters.drafted
    efficiency = counters.emitted / counters.rounds / (counters.num_steps + 1)
    for value, printed in ((efficiency, v0[2]), (rate, v0[1])):
        check(abs(value - float(printed)) <= RATE_TOLERANCE, CONTRADICTION)
    return counters


def parse_prefix(prefix: bytes) -> tuple[bytes, bytes]:
    """Return (time stamp with a year, process id); either may be empty.

    >>> parse_prefix(b"(APIServer pid=7) INFO 04-10 11:27:20")
    (b'2000-04-10 11:27:20', b'7')
    """
    stamp, pid = _LINE["stamp"].search(prefix), _LINE["process"].search(prefix)
    return with_year(b"%s %s" % stamp.groups()) if stamp else b"", pid[1] if pid else b""


def with_year(stamp: bytes) -> bytes:
    """Return a time with a year, which vLLM's own lines leave out."""
    return stamp if len(stamp) == len("2000-01-01 00:00:00") else b"2000-" + stamp


MAX_POSITIONS = 64
PERCENT_SLACK = 0.06  # printed percentages may be off by half of their last digit
INTERVAL_S = 10.0  # of a line whose own numbers do not tell it

_SUMS = ("rounds", "drafted", "accepted", "emitted", "positioned")
"""Before the positions in a row of sums; `positioned` are rounds of lines with positions."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Drafting lines whose numbers were checked against each other."""

    rounds: Floats  # request-rounds; 0 where they cannot be known
    emitted: Floats  # tokens of these rounds, bonus included
    sums: Floats  # a row per line: `_SUMS`, then by position; zeros where nothing is known
    positions: Ints  # rates of a line by position
    good: Flags  # lines that count
    corrected: Flags  # of them, those whose printed length lacked the bonus token
    faulty: Flags  # where the numbers contradict each other
    empty: Flags  # where nothing was drafted


def survival_matrix(texts: Sequence[bytes]) -> Floats:
    """Convert per-position rates: one row per line, as wide as the longest, NaN beyond."""
    parts = [text.split(b", ") if text else [] for text in texts]
    width = max(map(len, parts), default=0)
    padded = [float(rate) for part in parts for rate in (*part, *[b"nan"] * (width - len(part)))]
    return np.array(padded, dtype=np.float64).reshape(len(parts), width)


@np.errstate(invalid="ignore", divide="ignore")
def judge(printed: Mapping[str, Floats], rates: Floats, looks_up: bool) -> Judged:
    """Check the numbers of drafting lines: they are redundant, so damage shows.

    The per-position `rates`, a row per line, sum to the accepted drafts per round, which tells both
    how many rounds there were and whether the printed length counts the bonus token (0.8.5 did
    not). A drafter that `looks_up` may find nothing: the engine leaves these rounds out.
    """
    length, accepted = printed["length"], printed["accepted"]
    drafted, rate = printed["drafted"], printed["rate"]
    k, mean = np.isfinite(rates).sum(axis=1), np.nansum(rates, axis=1)
    slack = RATE_TOLERANCE * k + 0.0051
    empty = drafted == 0
    faulty = (accepted > drafted) | (np.abs(100 * accepted / drafted - rate) > PERCENT_SLACK)
    faulty |= (np.diff(rates, axis=1) > 2e-9).any(axis=1)
    faulty |= (k > 0) & (accepted == 0) & (mean > slack)
    by_rates = np.where((mean > 0) & (accepted > 0), accepted / mean, drafted / k)
    by_length = np.where((length > 1) & (accepted > 0), accepted / (length - 1), np.nan)
    rounds = np.where(k > 0, by_rates, by_length)
    most = k * 1.05 + drafted * slack / np.maximum(accepted, 1)
    faulty |= (k > 0) & (drafted / rounds > most)
    with_bonus = np.abs(length - 1 - mean) <= slack
    without = (k > 0) & ~with_bonus & (np.abs(length - mean) <= slack)
    faulty |= (k > 0) & np.isfinite(length) & ~with_bonus & ~without
    by_positions = np.where(np.isfinite(length), length + without, 1 + mean)
    emitted = rounds * np.where(k > 0, by_positions, length)
    good = np.isfinite(drafted) & ~faulty & ~empty
    nothing = good & (accepted == 0)  # each round gave its one token: how many does not matter
    rounds = np.where(nothing & ~np.isfinite(rounds), drafted, rounds)
    emitted = np.where(nothing, rounds, emitted)
    known = good & np.isfinite(emitted)
    rounds, emitted = np.where(known, rounds, 0.0), np.where(known, emitted, 0.0)
    if looks_up:  # an interval's tokens, less accepted drafts, are one per request and round
        seconds = accepted / printed["speed"]
        tokens = printed["tps"] * np.where(np.isfinite(seconds), seconds, INTERVAL_S)
        more = (rounds > 0) & (tokens - accepted > rounds)
        rounds, emitted = np.where(more, tokens - accepted, rounds), np.where(more, tokens, emitted)
    counts = (rounds, drafted, accepted, emitted, np.where(k > 0, rounds, 0.0))
    drafting = np.where(mean > 0, accepted / mean, rounds)  # rounds with a draft
    survived = np.minimum(drafting, rounds)[:, None] * rates
    sums = np.zeros((len(good), len(_SUMS) + MAX_POSITIONS))
    sums[:, : len(_SUMS) + rates.shape[1]] = np.nan_to_num(np.column_stack((*counts, survived)))
    return Judged(
        rounds=rounds,
        emitted=emitted,
        sums=sums * good[:, None],
        positions=k,
        good=good,
        corrected=good & without,
        faulty=np.isfinite(drafted) & faulty & ~empty,
        empty=empty,
    )


@dataclass(slots=True)
class Drafting:
    """What all drafting lines add up to."""

    lines: int = 0  # read
    alone: int = 0  # of them without a throughput line
    positions: int = 0  # drafted positions that the lines show
    corrected: int = 0  # lines whose printed length lacked the bonus token
    total: Floats = field(default_factory=lambda: np.zeros(len(_SUMS) + MAX_POSITIONS))

    def add(self, lines: Judged, running: Floats) -> None:
        """Count lines; `running` is NaN where there is no throughput line."""
        if not lines.good.any():
            return
        self.lines += int(lines.good.sum())
        self.alone += int((lines.good & ~(running > 0)).sum())
        self.corrected += int(lines.corrected.sum())
        self.positions = max(self.positions, int(lines.positions[lines.good].max()))
        self.total += lines.sums.sum(axis=0)

    def add_counters(self, line: V0Line) -> None:
        """Count what a V0 engine says of all its life as one line."""
        self.lines, self.alone, self.positions = 1, 1, line.num_steps
        self.total[: len(_SUMS)] = (line.rounds, line.drafted, line.accepted, line.emitted, 0.0)

    def fields(self, sums: Floats | None = None) -> dict[str, Any]:
        """Return what a row says of these sums, or of all: accept length, survival, drafts."""
        total = self.total if sums is None else sums
        of = dict(zip(_SUMS, total.tolist(), strict=False))
        emitted, rounds = of["emitted"], of["rounds"]
        survived = total[len(_SUMS) : len(_SUMS) + self.positions] / (of["positioned"] or 1.0)
        return per_round(rounds, of["accepted"], of["drafted"]) | {
            "accept_length": emitted / rounds if rounds else None,
            "survival": tuple(survived.tolist()) if of["positioned"] else None,
            "accept_rate": of["accepted"] / of["drafted"] if of["drafted"] else None,
        }
