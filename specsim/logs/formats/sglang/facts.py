"""SGLang's launch arguments, as it logs them."""

import re
from collections.abc import Mapping

from specsim.engine import engine_named
from specsim.engine.flags import said_by
from specsim.logs.facts import Facts, literal, printed_dict
from specsim.setting import NO_SPECULATION

_ARG = re.compile(
    rb"(?<=[(, {])'?([a-z_]{1,64})'?(?:=|: )('[^'\n]{0,512}'|\"[^\"\n]{0,512}\"|None|True|False"
    rb"|-?\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,3})?)(?=[,)}])"
)
"""An argument of ``ServerArgs(..)``, or, from 0.5.19, of a dict."""
MAX_COUNT, MAX_NUMBER = 10**6, 1e15
"""Larger ones are damage."""


def learn(facts: Facts, line: bytes) -> None:
    """Take in a line that states a fact."""
    if b"server_args=" in line:
        facts.started = True
        facts.settings.update(settings_of_args(_arguments(line)))
    else:
        facts.learn(line)


def _arguments(line: bytes) -> dict[str, object]:
    """Return the launch arguments of a log line by their fields."""
    text = line.partition(b"server_args=")[2]
    whole = printed_dict(text) if text[:1] == b"{" else None
    return whole or {name.decode(): literal(value) for name, value in _ARG.findall(line)}


def settings_of_args(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the settings in SGLang's launch arguments, as logged or in ``server_info``."""
    fields = {name: value for name, value in arguments.items() if not name.startswith("-")}
    said, _ = said_by("sglang", fields)
    settings = engine_named("sglang").settings({k: v for k, v in said.items() if _sane(k, v)})
    if "algorithm" not in settings and "speculative_algorithm" in arguments:
        settings.update(NO_SPECULATION)
    return settings


def _sane(key: str, value: object) -> bool:
    """Whether a value can be a setting: the counts of speculation must be counts."""
    if key in ("topk", "num_steps", "num_draft_tokens"):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    if isinstance(value, int | float):
        return abs(value) <= MAX_NUMBER
    if key == "algorithm":
        return isinstance(value, str) and bool(value)
    return isinstance(value, str | list | Mapping)
