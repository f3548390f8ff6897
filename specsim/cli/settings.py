"""Settings as people ask for them: flags, S,K,N triples, a JSON file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specsim.cli.options import parse_scheduler
from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.setting import Algorithm, Scheduler, SpecSetting, parse_algorithm

MOST_TOPK, MOST_STEPS, MOST_TOKENS, MOST_POOL = 64, 64, 512, 4096
"""Beyond these a tree takes gigabytes to price, and no engine verifies it."""

MOST_SETTINGS = 200

TRIPLE = re.compile(r"-?[0-9]{1,9},-?[0-9]{1,9},-?[0-9]{1,9}")
NUMBERS = re.compile(r"[-0-9, ]+")

KEYS = ("topk", "num_steps", "num_draft_tokens", "algorithm", "scheduler")
ALIASES = {
    "speculative_eagle_topk": "topk",
    "eagle_topk": "topk",
    "speculative_num_steps": "num_steps",
    "steps": "num_steps",
    "speculative_num_draft_tokens": "num_draft_tokens",
    "draft_tokens": "num_draft_tokens",
    "speculative_algorithm": "algorithm",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Settings that are asked for, and what was changed in them."""

    settings: tuple[SpecSetting, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a setting has that does not say."""

    algorithm: Algorithm
    scheduler: Scheduler = "auto"


def asked_settings(
    defaults: Defaults,
    numbers: tuple[int | None, int | None, int | None],
    triples: Sequence[str],
    words: Sequence[str],
    files: Sequence[str],
) -> Asked:
    """Collect the settings that are asked for, each once.

    Parameters
    ----------
    defaults
        Algorithm and scheduler of those that do not say.
    numbers
        topk, steps, draft tokens of the flags.
    triples
        ``S,K,N``, several to a text if spaces part them.
    words
        The same, or JSON files.
    files
        JSON files.

    Raises
    ------
    InputError
        If a setting is impossible; FormatError if a file is not what it should be.
    """
    found: list[tuple[SpecSetting, str | None]] = []
    if any(number is not None for number in numbers):
        found.append(make_setting(*numbers, defaults))
    found += [triple(part, defaults) for text in triples for part in text.split()]
    paths = list(files)
    for word in words:
        if NUMBERS.fullmatch(word):
            found += [triple(part, defaults) for part in word.split()]
        else:
            paths.append(word)
    for path in paths:
        found += read_settings(path, defaults)
    if len(found) > MOST_SETTINGS:
        raise InputError(f"{len(found)} settings", f"are more than {MOST_SETTINGS}", "ask for less")
    settings = dict.fromkeys(setting for setting, _ in found)
    notes = dict.fromkeys(note for _, note in found if note)
    return Asked(tuple(settings), tuple(notes))


def triple(text: str, defaults: Defaults) -> tuple[SpecSetting, str | None]:
    """Read steps, topk, draft tokens, the order of SGLang's benchmarks.

    >>> triple("2,2,7", Defaults("EAGLE3"))[0].label
    'topk=2 steps=2 tokens=7'
    """
    if not TRIPLE.fullmatch(text):
        raise InputError(
            f"setting {text!r}", "is not S,K,N", "write steps,topk,draft tokens: 2,2,7"
        )
    steps, topk, tokens = (int(number) for number in text.split(","))
    return make_setting(topk, steps, tokens, defaults)


def make_setting(
    topk: int | None, steps: int | None, tokens: int | None, defaults: Defaults
) -> tuple[SpecSetting, str | None]:
    """Fill what was not said, and what the engine replaces: a chain verifies S + 1 tokens.

    Returns
    -------
    setting, note
        The note says what was replaced, or is None.
    """
    algorithm, scheduler = defaults.algorithm, defaults.scheduler
    given = (topk, steps, tokens)
    if given in ((0, 0, 0), (1, 0, 1)):
        return SpecSetting.none(scheduler), None
    if algorithm == "none":
        if given != (None, None, None):
            numbers = ", ".join(str(number) for number in given if number is not None)
            raise InputError(
                f"algorithm none with {numbers}",
                "is a contradiction: nothing is drafted",
                "drop the numbers or name an algorithm",
            )
        return SpecSetting.none(scheduler), None
    for name, value, most in (
        ("topk", topk, MOST_TOPK),
        ("steps", steps, MOST_STEPS),
        ("draft tokens", tokens, MOST_TOKENS),
    ):
        if value is not None and value > most:
            raise InputError(f"{name} {value}", f"is more than {most}", f"use at most {most}")
    chain = topk in (None, 1) and algorithm != "NGRAM"
    if chain and steps and steps > 0 and tokens and tokens > 0 and tokens != steps + 1:
        note = (
            f"topk 1, steps {steps}: a chain verifies {steps + 1} tokens (steps + 1), not {tokens}"
        )
        return SpecSetting.of(1, steps, steps + 1, algorithm, scheduler), note
    setting = SpecSetting.of(topk, steps, tokens, algorithm, scheduler)
    _affordable(setting)
    return setting, None


def _affordable(setting: SpecSetting) -> None:
    """Refuse trees that nobody verifies, before memory does."""
    n, pool = setting.num_draft_tokens, setting.num_steps * setting.topk**2
    if n > MOST_TOKENS:
        raise InputError(
            f"draft tokens {n} (all that topk {setting.topk}, steps {setting.num_steps} offer)",
            f"are more than {MOST_TOKENS}",
            "give fewer with --draft-tokens",
        )
    if pool > MOST_POOL:
        raise InputError(
            f"topk {setting.topk}, steps {setting.num_steps}",
            f"draft {pool} candidates per round, more than {MOST_POOL}",
            "use a smaller topk or fewer steps",
        )


def read_settings(path: str, defaults: Defaults) -> list[tuple[SpecSetting, str | None]]:
    """Read a JSON file: a list of settings, each a table or a triple [S, K, N], or one table.

    Raises
    ------
    FormatError, UnknownNameError
        If it is not that; the message names file, entry and key.
    InputError
        If it cannot be read, or a setting is impossible.
    """
    from specsim.textfile import read_text

    text = read_text(path, "a JSON file of settings")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, f"is not JSON ({error})", "write a list of settings") from None
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list) or not content:
        raise FormatError(
            path, "holds no list of settings", 'write e.g. [{"topk": 2, "num_steps": 2}]'
        )
    if all(isinstance(number, int) for number in content) and len(content) == 3:
        content = [content]
    found = []
    for i, entry in enumerate(content):
        where = f"{path}: setting {i + 1}"
        try:
            found.append(_from_entry(entry, where, defaults))
        except InputError as error:
            if str(error.value).startswith(where):
                raise
            raise InputError(f"{where}: {error.value}", error.reason, error.remedy) from None
    return found


def _from_entry(entry: Any, where: str, defaults: Defaults) -> tuple[SpecSetting, str | None]:
    if isinstance(entry, list):
        if len(entry) != 3 or not all(_whole(number) for number in entry):
            raise FormatError(where, "is not [steps, topk, draft tokens]", "write e.g. [2, 2, 7]")
        steps, topk, tokens = entry
        return make_setting(topk, steps, tokens, defaults)
    if not isinstance(entry, Mapping):
        raise FormatError(
            where, "is neither a table nor [S, K, N]", 'write e.g. {"topk": 2, "num_steps": 2}'
        )
    values = _named(entry, where)
    numbers = {}
    for key in KEYS[:3]:
        value = values.get(key)
        if value is not None and not _whole(value):
            raise FormatError(f"{where}: {key} = {value!r}", "is not a whole number", "e.g. 2")
        numbers[key] = value
    algorithm, scheduler = defaults.algorithm, defaults.scheduler
    if values.get("algorithm") is not None:
        algorithm = parse_algorithm(str(values["algorithm"]))
    if values.get("scheduler") is not None:
        scheduler = parse_scheduler(str(values["scheduler"]))
    return make_setting(
        numbers["topk"],
        numbers["num_steps"],
        numbers["num_draft_tokens"],
        Defaults(algorithm, scheduler),
    )


def _named(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values by our own names; a key given twice under two names is an error."""
    values: dict[str, Any] = {}
    for raw, value in entry.items():
        key = raw.lower().lstrip("-").replace("-", "_")
        key = ALIASES.get(key, key)
        if key not in KEYS:
            raise UnknownNameError(f"{where}: key", raw, [*KEYS, *ALIASES])
        if key in values and values[key] != value:
            raise FormatError(f"{where}: {raw}", f"gives {key} a second time", "drop one")
        values[key] = value
    return values


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
