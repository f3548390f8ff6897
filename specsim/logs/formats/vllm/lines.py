"""Grammar of vLLM's lines: throughput and drafting, period by period; arguments, configuration."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import NamedTuple

from specsim.engine import engine_named
from specsim.engine.flags import said_by
from specsim.logs.facts import Facts, literal, printed_dict
from specsim.logs.unread import CONTRADICTION, DAMAGED, TRUNCATED, TWO_IN_ONE, Unread, check
from specsim.setting import NO_SPECULATION

ENGINE_MARK = b"Avg generation throughput: "
SPEC_MARK = b"SpecDecoding metrics: "
OLD_SPEC_MARK = b"Speculative metrics: "

ENGINE = ("prompt", "tps", "running", "waiting", "usage")
"""Columns of a throughput line; `usage` is in percent."""
DRAFTING = ("length", "speed", "accepted", "drafted", "positions", "rate")
"""Columns of a drafting line: `speed` is accepted tokens/s, `positions` are the per-position rates,
`rate` is in percent."""

Values = tuple[bytes, ...]
"""As printed, empty where a line does not say: columns are converted many at a time."""

NO_DRAFTS = "nothing was drafted"
RATE_TOLERANCE = 0.0006
"""Printed fractions may be off by half of their last digit."""

_TABLE = tomllib.loads(files(__package__).joinpath("lines.toml").read_text("utf-8"))


def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(Template(pattern).substitute(_TABLE["parts"]).encode())


_REGULAR, _ENGINE, _V0 = (_compiled(_TABLE["lines"][n]) for n in ("regular", "engine", "v0"))
_DRAFTING_LINES = tuple(_compiled(layout["pattern"]) for layout in _TABLE["drafting"])
_USAGE = re.compile(rb", (?!CPU)[A-Z]+ KV cache usage: (\d{1,3}\.\d)%")
_PREEMPTIONS = re.compile(rb", Preemptions: (\d{1,9})")
_ELSEWHERE = re.compile(rb", External prefix cache hit rate: (\d{1,3}\.\d)%")
"""Share of prompt tokens that another node computed."""
_STAMP = re.compile(rb"(?<!\d)((?:\d{4}-)?\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?!\d)")
_PID = re.compile(rb"pid=(\d{1,9})\)")


def parse_regular(lines: Sequence[bytes]) -> list[Values] | None:
    """Read throughput and drafting lines at once; None if any is not as now usual.

    For each interval: what stands before its lines, process id, time, the name of the engine, and
    the values in the order of `ENGINE` and `DRAFTING`.
    """
    found = _REGULAR.findall(b"".join(lines))
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
    found = _ENGINE.search(line)
    if found is None:
        raise _unread(line)
    check(line.count(ENGINE_MARK) == line.count(b"Avg prompt ") == 1, TWO_IN_ONE)
    prompt, tail = found["prompt"], found["tail"]
    if elsewhere := _ELSEWHERE.search(tail):
        prompt = b"%.3f" % (float(prompt) * max(1 - float(elsewhere[1]) / 100, 0))
    usage, preemptions = _USAGE.search(tail), _PREEMPTIONS.search(tail)
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
    at once (:func:`specsim.logs.formats.vllm.drafting.judge`).
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
    v0 = _V0.match(line, start)
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
    stamp, pid = _STAMP.search(prefix), _PID.search(prefix)
    return with_year(b"%s %s" % stamp.groups()) if stamp else b"", pid[1] if pid else b""


def with_year(stamp: bytes) -> bytes:
    """Return a time with a year, which vLLM's own lines leave out."""
    return stamp if len(stamp) == len("2000-01-01 00:00:00") else b"2000-" + stamp


CONFIG = (
    *("model", "quantization", "kv_cache_dtype", "max_seq_len", "enforce_eager"),
    *("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size"),
    "decode_context_parallel_size",
)
"""Parts of the configuration that matter here, as ``flags.csv`` knows them."""

_VALUE = re.compile(
    rb"(?<=[ (])(%s)=('[^'\n]{0,512}'|None|True|False|\d{1,12}|[a-z0-9_]{1,32})(?=[,) ])"
    % b"|".join(name.encode() for name in CONFIG)
)
_GRAPHS = re.compile(rb"['\"]?max_cudagraph_capture_size['\"]?[=:] ?(\d{1,6})(?=\D)")
_CONFIG_SPECULATION = re.compile(
    rb"speculative_config=(None|SpeculativeConfig\(([^)\n]{0,1024})\))"
)
_ARGS = re.compile(rb"non-default args: (\{[^\n]{0,16384}\})")
_METHOD = re.compile(rb"['\"]?method['\"]?[=:] ?['\"](\w{1,32})['\"]")
_TOKENS = re.compile(rb"['\"]?num_spec(?:ulative)?_tokens['\"]?[=:] ?(\d{1,3})(?=\D)")
_DRAFT = re.compile(rb"['\"]?model['\"]?[=:] ?['\"]([^'\"\n]{1,256})['\"]")


def learn(facts: Facts, line: bytes) -> None:
    """Take in a line that states a fact; of an argument that is told twice the first counts."""
    facts.learn(line)
    if b"with config: " in line:
        _take(facts, _config(facts, line))
    if arguments := _ARGS.search(line):
        said = printed_dict(arguments[1])
        if said is None:  # damaged: what can be read
            said = {"speculative_config": _speculation(arguments[1])}
        elif not any("spec" in str(name) for name in said):
            facts.settings.update({**NO_SPECULATION, **facts.settings})
        if "model_tag" in said:
            said.setdefault("model", said["model_tag"])
        _take(facts, said)


def _config(facts: Facts, line: bytes) -> dict[str, object]:
    """Return the arguments that an engine's configuration tells."""
    said: dict[str, object] = {n.decode(): literal(v) for n, v in _VALUE.findall(line)}
    if graphs := _GRAPHS.search(line):
        said["compilation_config"] = {"max_cudagraph_capture_size": int(graphs[1])}
    speculation = _CONFIG_SPECULATION.search(line)
    if speculation and speculation[1] == b"None":
        facts.settings.update(NO_SPECULATION)
    elif speculation:
        said["speculative_config"] = _speculation(speculation[2])
    return said


def _take(facts: Facts, said: Mapping[str, object]) -> None:
    fields = {name: value for name, value in said.items() if not str(name).startswith("-")}
    facts.said = {**said_by("vllm", fields)[0], **facts.said}
    facts.settings.update(engine_named("vllm").settings(facts.said))


def _speculation(text: bytes) -> dict[str, object]:
    """Return what a speculative configuration says, as the engine prints it."""
    method, tokens, draft = _METHOD.search(text), _TOKENS.search(text + b" "), _DRAFT.search(text)
    found: dict[str, object] = {}
    if method:
        found["method"] = method[1].decode()
    if draft and found:
        found["model"] = draft[1].decode("utf-8", "replace")
    if tokens:
        found["num_speculative_tokens"] = int(tokens[1])
    return found
