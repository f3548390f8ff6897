"""What an engine says of itself beside its measurements, by ``formats/ENGINE.toml``."""

import re
import warnings
from ast import literal_eval
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from specsim.engine import engine_named
from specsim.engine.flags import said_by
from specsim.logs.formats import listed, pattern, patterns
from specsim.logs.paste import VERSION
from specsim.setting import NO_SPECULATION

_WORDS: dict[str, object] = {"None": None, "True": True, "False": False}
_WHOLE = re.compile(r"-?\d+")
_REAL = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def literal(value: bytes) -> object:
    """Return a value as Python prints it.

    >>> literal(b"'fp8'"), literal(b"0.88"), literal(b"None"), literal(b"auto")
    ('fp8', 0.88, None, 'auto')
    """
    text = value.decode("utf-8", "replace")
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text):
        return float(text)
    return text[1:-1] if text[:1] in ("'", '"') else text


def stated(found: re.Match[bytes] | None) -> dict[str, object]:
    """Return the settings for which the groups of a pattern are named, where they are known.

    Of a list the largest counts.

    >>> stated(re.search(rb"size: (?P<kv_tokens>[0-9,]+)", b"size: 1,024"))
    {'kv_tokens': 1024}
    """
    texts = found.groupdict() if found else {}
    values: dict[str, object] = {}
    for name, text in texts.items():
        if text and b" " in text and text[:1].isdigit():
            values[name] = max(map(int, text.replace(b",", b" ").split()))
        elif text and text != b"None":
            values[name] = literal(text.replace(b",", b""))
    return values


MOST_ARGUMENTS = 2**17  # bytes of printed arguments; no server has more


def printed_dict(text: bytes) -> dict[str, object] | None:
    """Return the dict that a text begins with, as Python prints it; None if it is damaged.

    >>> printed_dict(b"{'tp_size': 8} "), printed_dict(b"{'x': <object>}")
    ({'tp_size': 8}, None)
    """
    end = text.rfind(b"}", 0, MOST_ARGUMENTS) + 1
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes, in damage
            found = literal_eval(text[:end].decode())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return {str(k): v for k, v in found.items()} if isinstance(found, dict) else None


@dataclass(slots=True)
class Facts:
    """Facts of one server."""

    engine: str
    settings: dict[str, object] = field(default_factory=dict)  # as in setup.toml and SpecSetting
    said: dict[str, object] = field(default_factory=dict)  # by arguments, as ``flags.csv`` has them
    version: str | None = None
    started: bool = False  # a start-up was seen
    counts: Counter[str] = field(default_factory=Counter)  # of the events that the table names
    launched: bool = False  # a command that started it is known

    def concerned(self, line: bytes) -> bool:
        """Whether a line may say something."""
        return pattern(listed(self.engine, "any")).search(line) is not None

    def starts(self, line: bytes) -> bool:
        """Whether a line is of a start-up."""
        return pattern(listed(self.engine, "started")).search(line) is not None

    def learn(self, line: bytes) -> None:
        """Take in one line."""
        self.started |= self.starts(line)
        if self.engine == "sglang" and b"server_args=" in line:
            self.settings.update(settings_of_args(_server_args(line)))
            return
        known = listed(self.engine)
        if "version" in known and (version := pattern(known["version"]).search(line)):
            self.version = version[1].decode().rstrip(".")
        for row in known["lines"]:
            if found := pattern(row["pattern"]).search(line):
                settings = {**stated(found), **row.get("says", {})}
                more = {**settings, **self.settings} if row.get("if_unsaid") else settings
                self.settings.update(more)
        for name, text in known.get("counts", {}).items():
            if found := pattern(text).search(line):
                self.counts[name] += int(found[1]) if found.re.groups else 1
        if self.engine == "vllm":
            self._learn_vllm(line)

    def _learn_vllm(self, line: bytes) -> None:
        """Take in configuration and arguments; of one that is told twice the first counts."""
        if b"with config: " in line:
            config, none = _vllm_config(line)
            self.settings.update(NO_SPECULATION if none else {})
            self._say(config)
        if arguments := patterns("vllm")["arguments"].search(line):
            said = printed_dict(arguments[1])
            if said is None:  # damaged: what can be read
                said = {"speculative_config": _vllm_speculation(arguments[1])}
            elif not any("spec" in name for name in said):
                self.settings = {**NO_SPECULATION, **self.settings}
            if "model_tag" in said:
                said.setdefault("model", said["model_tag"])
            self._say(said)

    def _say(self, fields: Mapping[str, object]) -> None:
        self.said = {**_said(self.engine, fields), **self.said}
        self.settings.update(engine_named(self.engine).settings(self.said))

    def take_launch(self, settings: Mapping[str, object]) -> None:
        """Take in what a command says of the server; its own words come first."""
        self.launched |= bool(settings)
        said = dict(settings)
        version = said.pop(VERSION, None)
        self.version = self.version or (str(version) if version else None)
        self.settings = {**said, **self.settings}


def settings_of_args(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the settings in SGLang's launch arguments, as logged or in ``server_info``."""
    said = {k: v for k, v in _said("sglang", arguments).items() if _sane(k, v)}
    settings = engine_named("sglang").settings(said)
    if "algorithm" not in settings and "speculative_algorithm" in arguments:
        settings.update(NO_SPECULATION)
    return settings


def _said(engine: str, arguments: Mapping[str, object]) -> dict[str, object]:
    return said_by(engine, {k: v for k, v in arguments.items() if not k.startswith("-")})[0]


MAX_COUNT, MAX_NUMBER = 10**6, 1e15  # larger ones are damage


def _sane(key: str, value: object) -> bool:
    """Whether a value can be a setting: the counts of speculation must be counts."""
    if key in ("topk", "num_steps", "num_draft_tokens"):
        return type(value) is int and 0 <= value <= MAX_COUNT
    if isinstance(value, int | float):
        return abs(value) <= MAX_NUMBER
    if key == "algorithm":
        return isinstance(value, str) and bool(value)
    return isinstance(value, str | list | Mapping)


def _server_args(line: bytes) -> dict[str, object]:
    """Return the arguments of ``ServerArgs(..)``, or, from 0.5.19, of a dict."""
    text = line.partition(b"server_args=")[2]
    if text[:1] == b"{" and (whole := printed_dict(text)):
        return whole
    found = patterns("sglang")["argument"].findall(line)
    return {name.decode(): literal(value) for name, value in found}


def _vllm_config(line: bytes) -> tuple[dict[str, object], bool]:
    """Return the arguments that an engine's configuration tells, and whether nothing is drafted."""
    line_of = patterns("vllm")
    said = {n.decode(): literal(v) for n, v in line_of["value"].findall(line)}
    if graphs := line_of["graphs"].search(line):
        said["compilation_config"] = {"max_cudagraph_capture_size": int(graphs[1])}
    speculation = line_of["speculation"].search(line)
    none = speculation is not None and speculation[1] == b"None"
    if speculation and not none:
        said["speculative_config"] = _vllm_speculation(speculation[2])
    return said, none


def _vllm_speculation(text: bytes) -> dict[str, object]:
    """Return what a speculative configuration says, as the engine prints it."""
    names = ("method", "draft", "tokens")
    method, draft, tokens = (patterns("vllm")[name].search(text + b" ") for name in names)
    found: dict[str, object] = {}
    if method:
        found["method"] = method[1].decode()
    if draft and found:
        found["model"] = draft[1].decode("utf-8", "replace")
    if tokens:
        found["num_speculative_tokens"] = int(tokens[1])
    return found
