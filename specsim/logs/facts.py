"""What an engine says of itself beside its measurements: the tables of ``formats/facts.toml``."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from specsim.logs.settings import stated


@cache
def table_of(engine: str) -> dict[str, Any]:
    """Return what is known of the lines of an engine."""
    text = files("specsim.logs.formats").joinpath("facts.toml").read_text("utf-8")
    table: dict[str, Any] = tomllib.loads(text)[engine]
    return table


@cache
def _pattern(text: str) -> re.Pattern[bytes]:
    return re.compile(text.encode())


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
        return _pattern(table_of(self.engine)["any"]).search(line) is not None

    def starts(self, line: bytes) -> bool:
        """Whether a line is of a start-up."""
        return _pattern(table_of(self.engine)["started"]).search(line) is not None

    def learn(self, line: bytes) -> None:
        """Take in one line, but for arguments, which each engine prints in its own way."""
        table = table_of(self.engine)
        self.started |= self.starts(line)
        if "version" in table and (version := _pattern(table["version"]).search(line)):
            self.version = version[1].decode().rstrip(".")
        for settings, if_unsaid in self._stated(line):
            self.settings.update({**settings, **self.settings} if if_unsaid else settings)
        for name, text in table.get("counts", {}).items():
            if found := _pattern(text).search(line):
                self.counts[name] += int(found[1]) if found.re.groups else 1

    def _stated(self, line: bytes) -> Iterator[tuple[Mapping[str, object], bool]]:
        for row in table_of(self.engine)["lines"]:
            if found := _pattern(row["pattern"]).search(line):
                yield {**stated(found), **row.get("says", {})}, row.get("if_unsaid", False)

    def take_launch(self, settings: Mapping[str, object]) -> None:
        """Take in what a command says of the server; its own words come first."""
        self.launched |= bool(settings)
        self.settings = {**settings, **self.settings}
