"""What an engine says of itself beside its measurements: the tables of ``formats/facts.toml``."""

import re
import warnings
from ast import literal_eval
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from specsim.logs.formats import listed, pattern
from specsim.logs.paste import VERSION

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


MOST_ARGUMENTS = 2**17
"""Bytes of printed arguments; no server has more."""


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
        return pattern(listed("facts", self.engine)["any"]).search(line) is not None

    def starts(self, line: bytes) -> bool:
        """Whether a line is of a start-up."""
        return pattern(listed("facts", self.engine)["started"]).search(line) is not None

    def learn(self, line: bytes) -> None:
        """Take in one line, but for arguments, which each engine prints in its own way."""
        known = listed("facts", self.engine)
        self.started |= self.starts(line)
        if "version" in known and (version := pattern(known["version"]).search(line)):
            self.version = version[1].decode().rstrip(".")
        for settings, if_unsaid in self._stated(line):
            self.settings.update({**settings, **self.settings} if if_unsaid else settings)
        for name, text in known.get("counts", {}).items():
            if found := pattern(text).search(line):
                self.counts[name] += int(found[1]) if found.re.groups else 1

    def _stated(self, line: bytes) -> Iterator[tuple[Mapping[str, object], bool]]:
        for row in listed("facts", self.engine)["lines"]:
            if found := pattern(row["pattern"]).search(line):
                yield {**stated(found), **row.get("says", {})}, row.get("if_unsaid", False)

    def take_launch(self, settings: Mapping[str, object]) -> None:
        """Take in what a command says of the server; its own words come first."""
        self.launched |= bool(settings)
        said = dict(settings)
        version = said.pop(VERSION, None)
        self.version = self.version or (str(version) if version else None)
        self.settings = {**said, **self.settings}
