"""From what people type to values: numbers, names, loads; settings as flags, triples or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

from specsim.errors import FormatError, InputError, UnknownNameError

if TYPE_CHECKING:
    from specsim.setting import Algorithm, Scheduler, SpecSetting

Read = Callable[[str], Any]
"""From text to value: raises `InputError`, or `ValueError` with reason and remedy."""

MOST_TOPK, MOST_STEPS = 64, 64
"""Beyond these a tree takes gigabytes to price, and no engine verifies it."""

MOST_SETTINGS = 200
MOST_LOADS = 1000
WHOLE = 0.011  # how far the shares of a mix may be from one in all: thirds are written 0.33
TRIPLE = re.compile(r"-?[0-9]{1,9},-?[0-9]{1,9},-?[0-9]{1,9}")
NUMBERS = re.compile(r"[-0-9, ]+")
"""A setting as S,K,N, and a word that is meant as one: no file has such a name."""

EXAMPLE = '{"topk": 2, "num_steps": 2}'
KEYS = ("topk", "num_steps", "num_draft_tokens", "algorithm", "scheduler")


# --- numbers and names


def whole(least: int | None = None, most: int | None = None) -> Read:
    """Return what reads a whole number within bounds."""
    return _numeric(int, "a whole number", least, most)


def number(least: float | None = None) -> Read:
    """Return what reads a number of at least so much."""
    return _numeric(float, "a number", least, None)


def _numeric(kind: type[int | float], noun: str, least: float | None, most: float | None) -> Read:
    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(f"is not {noun}", "give digits, e.g. 2") from None
        if (least is not None and not value >= least) or (most is not None and value > most):
            bounds = f"be at least {least}" if most is None else f"lie in {least}..{most}"
            raise ValueError(f"must {bounds}", f"e.g. {least}")
        return value

    return read


def seconds(text: str) -> float:
    """Return the seconds of ``60s``, ``2m`` or ``0.5``.

    >>> seconds("2m")
    120.0
    """
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,6})?)(s|m)?", text)
    value = float(found[1]) * (60.0 if found[2] == "m" else 1.0) if found else 0.0
    if not 0.1 <= value <= 3600.0:
        raise ValueError("is no time from 0.1 s to an hour", "write e.g. 60s")
    return value


def library(home: str, function: str) -> Read:
    """Return a function of the library that is imported when it is needed."""

    def read(text: str) -> Any:
        return getattr(import_module(home), function)(text)

    return read


def one_of(kind: str, home: str, names: str) -> Read:
    """Return what takes one of the names of a `Literal` of a module and refuses others."""

    def read(text: str) -> Any:
        known = get_args(getattr(import_module(home), names))
        if text not in known:
            raise UnknownNameError(kind, text, known)
        return text

    return read


read_algorithm = library("specsim.setting", "parse_algorithm")
read_scheduler = one_of("scheduler", "specsim.setting", "Scheduler")


# --- loads, shares, seeds, what was measured


def parse_concurrency(text: str) -> tuple[int, ...]:
    """Return the loads of ``1,2,5``, in rising order, each once.

    >>> parse_concurrency("100, 1,30")
    (1, 30, 100)
    """
    loads = set()
    for word in re.split(r"[\s,]+", text.strip(" ,")):
        if not re.fullmatch(r"[0-9]{1,9}", word):
            shown = f"concurrency {word}" if word else "concurrency"
            reason = "is not a whole number of clients" if word else "is empty"
            raise InputError(shown, reason, "give clients in flight, e.g. --concurrency 1,10,100")
        loads.add(int(word))
    if len(loads) > MOST_LOADS:
        why = f"is more than {MOST_LOADS}"
        raise InputError(f"concurrency of {len(loads)} loads", why, "give fewer")
    return tuple(sorted(loads))


def parse_mix(text: str) -> tuple[tuple[int, float], ...]:
    """Return load and share of the time of each part of ``1:0.5,30:0.5``.

    >>> parse_mix("1:0.25, 30:0.75")
    ((1, 0.25), (30, 0.75))
    """
    parts = []
    for word in re.split(r"[\s,]+", text.strip(" ,")):
        match = re.fullmatch(r"([0-9]{1,7}):([0-9]*\.?[0-9]+)", word)
        if match is not None:
            parts.append((int(match[1]), float(match[2])))
        elif word:
            raise InputError(f"mix {word}", "is not LOAD:SHARE", "write e.g. --mix 1:0.5,30:0.5")
    total = sum(share for _, share in parts)
    if parts and abs(total - 1.0) > WHOLE:
        fixed = ",".join(f"{load}:{share / total:.3g}" for load, share in parts if total > 0)
        why = f"has shares that sum to {total:g}, not to 1"
        raise InputError(f"mix {text}", why, f"write {fixed}")
    return tuple(parts)


def parse_seed(text: str) -> int:
    """Return the seed of the random numbers."""
    value: int = whole()(text)
    if not 0 <= value < 2**63:
        raise InputError(f"seed {value}", "must lie in 0..2^63 - 1", "give a whole number, e.g. 0")
    return value


def measured_settings(observations: str) -> tuple[SpecSetting, ...]:
    """Return the settings of a file of observations, each once."""
    from specsim.cli import output
    from specsim.observations import read_observations

    rows = read_observations(observations)
    output.remark(rows.notes)
    return tuple(dict.fromkeys(row.setting for row in rows if row.setting.speculates))


# --- settings


class Defaults(NamedTuple):
    """What a setting has that does not say."""

    algorithm: Algorithm
    scheduler: Scheduler = "auto"


Numbers = tuple[int | None, int | None, int | None]
"""Branches, steps and draft tokens of a setting, as far as they are said."""

Asked: TypeAlias = "tuple[tuple[SpecSetting, ...], tuple[str, ...]]"  # settings, and what to note
Noted: TypeAlias = "tuple[SpecSetting, str | None]"  # a setting, and what was replaced in it


def asked_settings(
    numbers: Numbers, texts: Iterable[str], files: Iterable[str], defaults: Defaults
) -> Asked:
    """Collect settings given by numbers, by texts of S,K,N and in JSON files, each once."""
    found = [] if numbers == (None, None, None) else [make_setting(numbers, defaults)]
    found += [triple(part, defaults) for text in texts for part in text.split()]
    found += [setting for path in files for setting in read_settings(path, defaults)]
    if len(found) > MOST_SETTINGS:
        raise InputError(f"{len(found)} settings", f"are more than {MOST_SETTINGS}", "ask for less")
    settings = dict.fromkeys(setting for setting, _ in found)
    notes = dict.fromkeys(note for _, note in found if note)
    return tuple(settings), tuple(notes)


def triple(text: str, defaults: Defaults) -> Noted:
    """Read steps, topk, draft tokens, the order of SGLang's benchmarks.

    >>> triple("2,2,7", Defaults("EAGLE3"))[0].label
    'topk=2 steps=2 tokens=7'
    """
    if not TRIPLE.fullmatch(text):
        why = "is not S,K,N"
        raise InputError(f"setting {text!r}", why, "write steps,topk,draft tokens: 2,2,7")
    steps, topk, tokens = map(int, text.split(","))
    return make_setting((topk, steps, tokens), defaults)


def make_setting(numbers: Numbers, defaults: Defaults) -> Noted:
    """Fill what was not said, and replace what the engine does: a chain verifies S + 1 tokens."""
    from specsim.setting import FAMILY_OF, MOST_DRAFT_TOKENS, SpecSetting

    topk, steps, tokens = numbers
    algorithm, scheduler = defaults
    if numbers in ((0, 0, 0), (1, 0, 1)):
        return SpecSetting.none(scheduler), None
    if algorithm == "none":
        if numbers != (None, None, None):
            said = ", ".join(str(number) for number in numbers if number is not None)
            why = "is a contradiction: nothing is drafted"
            remedy = "drop the numbers or name an algorithm"
            raise InputError(f"algorithm none with {said}", why, remedy)
        return SpecSetting.none(scheduler), None
    bounds = {"topk": MOST_TOPK, "steps": MOST_STEPS, "draft tokens": MOST_DRAFT_TOKENS}
    for value, (name, most) in zip(numbers, bounds.items(), strict=True):
        if value is not None and value > most:
            raise InputError(f"{name} {value}", f"is more than {most}", f"use at most {most}")
    chain = topk in (None, 1) and FAMILY_OF[algorithm] not in ("lookup", "block")
    if chain and steps and steps > 0 and tokens and tokens > 0 and tokens != steps + 1:
        note = (
            f"topk 1, steps {steps}: a chain verifies {steps + 1} tokens (steps + 1), not {tokens}"
        )
        return SpecSetting.of(1, steps, steps + 1, algorithm, scheduler), note
    return SpecSetting.of(topk, steps, tokens, algorithm, scheduler), None


def read_settings(path: str, defaults: Defaults) -> list[Noted]:
    """Read a JSON file: a list of settings, each a table or a triple [S, K, N], or one of them."""
    from specsim.textfile import read_text

    text = read_text(path, "a JSON file of settings")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, f"is not JSON ({error})", "write a list of settings") from None
    entries = [content] if isinstance(content, Mapping) or _is_triple(content) else content
    if not isinstance(entries, list) or not entries:
        raise FormatError(path, "holds no list of settings", f"write e.g. [{EXAMPLE}]")
    return [_from_entry(one, f"{path}: setting {i}", defaults) for i, one in enumerate(entries, 1)]


def _from_entry(entry: Any, where: str, defaults: Defaults) -> Noted:
    if isinstance(entry, list):
        if not _is_triple(entry):
            raise FormatError(where, "is not [steps, topk, draft tokens]", "write e.g. [2, 2, 7]")
        entry = dict(zip(("num_steps", "topk", "num_draft_tokens"), entry, strict=True))
    if not isinstance(entry, Mapping):
        raise FormatError(where, "is neither a table nor [S, K, N]", f"write e.g. {EXAMPLE}")
    said = {key: value for key, value in _named(entry, where).items() if value is not None}
    topk, steps, tokens = (said.get(key) for key in KEYS[:3])
    for key in KEYS[:3]:
        if key in said and not _is_whole(said[key]):
            raise FormatError(f"{where}: {key} = {said[key]!r}", "is not a whole number", "e.g. 2")
    read = {"algorithm": read_algorithm, "scheduler": read_scheduler}
    try:
        own = {key: read[key](str(said[key])) for key in KEYS[3:] if key in said}
        return make_setting((topk, steps, tokens), defaults._replace(**own))
    except InputError as error:
        raise InputError(f"{where}: {error.value}", error.reason, error.remedy) from None


def _named(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values by our own names; a key given twice under two names is an error."""
    from specsim.cli.options import Asked, names_of

    known = {_plain(name): key for key in KEYS for name in (key, *names_of(Asked, key))}
    known["eagle_topk"] = "topk"
    values: dict[str, Any] = {}
    for raw, value in entry.items():
        key = known.get(_plain(raw.lower()))
        if key is None:
            raise UnknownNameError(f"{where}: key", raw, known)
        if key in values and values[key] != value:
            raise FormatError(f"{where}: {raw}", f"gives {key} a second time", "drop one")
        values[key] = value
    return values


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _is_triple(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_whole, value))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
