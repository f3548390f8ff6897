"""Names of figures in results of benchmarks: the tables of ``benchmarks.toml``, and their units."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from specsim.logs.json_values import number, table, whole
from specsim.logs.source import Source
from specsim.logs.unread import DAMAGED, TRUNCATED, check

TEXTS = ("model", "quantisation", "kv_dtype", "version")
_LABELLED = re.compile(r"([A-Za-z\[][^:\n]{1,60}?) *:\s+(\S[^\n]{0,99}?)[ \t]*\r?\n?")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?:E[+-]\d\d)?")
_SCALES = {"_ms": ("_s", 1e-3), "_percent": ("", 1e-2)}


@cache
def names(*path: str) -> Mapping[str, Any]:
    """Return a table of ``benchmarks.toml``.

    >>> names("lines", "trtllm_bench")["TP Size"]
    'tp'
    """
    text = files("specsim.logs.formats").joinpath("benchmarks.toml").read_text("utf-8")
    table: Mapping[str, Any] = tomllib.loads(text)
    for key in path:
        table = table[key]
    return table


def in_si(said: Mapping[str, float]) -> dict[str, float]:
    """Return figures in SI units, named so.

    >>> in_si({"ttft_ms": 250.0, "output_tps": 40.0})
    {'ttft_s': 0.25, 'output_tps': 40.0}
    """
    scaled = {}
    for name, value in said.items():
        end = next((end for end in _SCALES if name.endswith(end)), "")
        new, factor = _SCALES.get(end, ("", 1.0))
        scaled[name.removesuffix(end) + new] = value * factor
    return scaled


def at(record: Mapping[str, Any], path: str) -> Any:
    """Return what a record has under keys joined by dots; None if it has none.

    >>> at({"a": {"b": 2}}, "a.b"), at({"a": 1}, "a.b")
    (2, None)
    """
    value: Any = record
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


Said = dict[str, float | str]
"""What one run has said: figures and texts by name."""


def runs(
    source: Source,
    program: str,
    unread: Counter[str],
    otherwise: Callable[[str], Said] = lambda line: {},
) -> Iterator[Said]:
    """Yield the runs that a program printed: lines ``label: value`` with the labels of `program`.

    A figure that comes again begins another run. `otherwise` reads lines without such a label.
    """
    labels = names("lines", program)
    begun = re.compile(rf"(?:{'|'.join(map(re.escape, labels))}) *:")
    said: Said = {}
    for raw in source.lines():
        line = raw.decode("utf-8", "replace")
        found = _LABELLED.fullmatch(line)
        name = labels.get(found[1]) if found else None
        if found is None or name is None:
            new = otherwise(line)
            unread[DAMAGED] += 1 if not new and begun.match(line) else 0
        elif name in TEXTS:
            new = {name: found[2]}
        else:
            new = {name: float(found[2])} if _NUMBER.fullmatch(found[2]) else {}
            unread[DAMAGED] += not new
        if new and not raw.endswith((b"\n", b"\r")):
            unread[TRUNCATED] += 1
        elif new:
            if new.keys() & said.keys():
                yield said
                said = {}
            said |= new
    yield said


def of_record(record: Mapping[str, Any], program: str) -> Said:
    """Return what a record of JSON says by the keys of a program: figures and texts by name."""
    known = names("json", program)
    said: Said = {}
    for path, name in known.get("figures", names("metrics")).items():
        value = at(record, path)
        if isinstance(value, dict):
            mean = number(value, "avg")
            value = None if mean is None else scaled(name, mean, str(value.get("unit")))
        if (figure := number({path: value}, path)) is not None:
            said[name] = figure
    for path, name in known.get("texts", {}).items():
        if isinstance(text := at(record, path), str):
            said[name] = text
    if config := table(record, known.get("config", "")):
        clients, model = _unique(config, "concurrency"), _unique(config, "model_names")
        model = model or _unique(table(config, "models"), "name")
        rate = _unique(config, "rate")
        said |= {"concurrency": float(n)} if (n := whole({"": clients}, "")) else {}
        said |= {"request_rate": r} if (r := number({"": rate}, "")) else {}
        said |= {"model": model} if isinstance(model, str) else {}
    return said


def _unique(config: Mapping[str, Any], key: str) -> Any:
    """Return what a configuration says under a key, however deep; None if it says several."""
    found, stack = [], [config]
    while stack:
        for name, value in stack.pop().items():
            if name == key and value is not None:
                found.append(value[0] if isinstance(value, list) and len(value) == 1 else value)
            elif isinstance(value, dict | list) and name != "warmup":
                inner = [value] if isinstance(value, dict) else value
                stack += [v for v in inner if isinstance(v, dict) and v.get("name") != "warmup"]
    return found[0] if found and all(value == found[0] for value in found) else None


def scaled(name: str, value: float, unit: str) -> float:
    """Return a figure in its SI unit; a time or a share must say its own.

    Raises :class:`Unread` if it does not.
    """
    check(unit in names("units") or not name.endswith(("_s", "_rate")), DAMAGED)
    factor: float = names("units").get(unit, 1.0)
    return value * factor


def figures_of(said: Mapping[str, float | str]) -> dict[str, float]:
    """Return the figures of a run without its texts, SI units."""
    return in_si({name: value for name, value in said.items() if isinstance(value, float)})
