"""Names of figures in results of benchmarks: the tables of ``benchmarks.toml``, and their units."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from specsim.logs.formats import listed
from specsim.logs.json_values import number, table, whole
from specsim.logs.unread import DAMAGED, MISSING, check

_SCALES = {"_ms": ("_s", 1e-3), "_percent": ("", 1e-2)}


names: Callable[..., Mapping[str, Any]] = partial(listed, "benchmarks")
"""Return a table of ``benchmarks.toml``, by keys."""


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


def at(record: Any, path: str) -> Any:
    """Return what a record has under keys joined by dots, ``*`` for the mean; None if it has none.

    >>> at({"a": {"b": 2}}, "a.b"), at({"a": 1}, "a.b"), at({"a": [{"b": 1}, {"b": 2}]}, "a.*.b")
    (2, None, 1.5)
    """
    key, _, rest = path.partition(".")
    if key == "*":
        each = [figure(one, rest) for one in record] if type(record) is list else []
        known = [value for value in each if value is not None]
        return sum(known) / len(known) if known and len(known) == len(each) else None
    value = record.get(key) if isinstance(record, dict) else None
    return at(value, rest) if rest else value


def figure(record: Any, path: str) -> float | None:
    """Return the number that a record has under keys joined by dots; None if it has none."""
    return number({path: at(record, path)}, path)


Said = dict[str, float | str]  # what one run has said: figures and texts by name


def program_of(record: Mapping[str, Any]) -> str | None:
    """Return the program whose figures a record of JSON has; None if none is known."""
    for program, known in names("json").items():
        if all(figure(record, path) is not None for path in known["needs"]):
            return program
    return None


def of_record(record: Mapping[str, Any], program: str) -> Said:
    """Return what a record of JSON says by the keys of a program: figures and texts by name.

    Raises :class:`Unread` if one that it needs is not above 0.
    """
    known = names("json", program)
    said: Said = {}
    for path, name in known.get("figures", names("metrics", "aiperf")).items():
        of = at(record, path)
        value = None if of == -1 else figure(record, path)  # SGLang's mark of what it does not know
        if isinstance(of, dict) and (mean := number(of, "avg")) is not None:
            value = scaled(name, mean, str(of.get("unit")))
        if value is not None:
            check(value > 0 or path not in known["needs"] or name in SIZES, MISSING)
            said[name] = value
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


SIZES = (
    *("tp", "pp", "ep", "max_running_requests"),
    *("topk", "num_steps", "num_draft_tokens", "k"),
)
"""Figures that are settings of the server."""


_OTHERS = re.compile(
    r"input|prompt|prefill|total|median|p\d\d?(?:\.\d)?|\d\dth|max|min|std|stdev|peak|per|gpu|cached?|/?user|x|gain|uplift"
    r"|speedup|predicted|expected|target|theoretical|goodput|error|delta|best|worst|percentile"
    r"|warm-?up|minimum|maximum|stddev|simulated|modell?ed"
)
"""Words before a speed that make it another figure, not that of a named server."""


def makes_other(text: str) -> bool:
    """Whether a text above figures has a word that makes them others.

    >>> makes_other("per_user"), makes_other("Targets"), makes_other("eagle3 k=3")
    (True, True, False)
    """
    words = re.split(r"[\s_-]+", text.lower())
    return any(
        _OTHERS.fullmatch(word) or _OTHERS.fullmatch(word.removesuffix("s")) for word in words
    )


_OF_SERVERS = ("accept_length", "tpot_s", "ttft_s", "tpot_ms", "round_time_ms")
"""Figures beside speeds that words before them tell of a server."""


MOST_WORDS = 16  # of the head of a column


class Column(NamedTuple):
    """What a column holds: a figure, of the server that its other words name."""

    name: str
    factor: float = 1.0
    server: str = ""


@lru_cache(1 << 14)
def column_of(head: str) -> Column | None:
    """Return what the head of a column names, None if it is not known; a time may lack its unit.

    >>> column_of("Mean TPOT (ms)"), column_of("output_throughput"), column_of("p99_ttft_ms")
    (Column(name='tpot_s', factor=0.001, server=''), Column(name='output_tps', ...), None)
    """
    text = re.sub(
        r"tok(?:en)?s? (?:per )?s(?:ec(?:ond)?)?\b", "tok/s", head.lower().replace("_", " ")
    )
    known, units = names("words"), names("units")
    words = [word.strip(".") for word in re.findall(r"[\w%/.+]+", text)]
    words = [known.get(word, word) for word in words]
    words = [word for word in words if word]
    factor = units.get(words[-1]) if len(words) > 1 else None
    bare = " ".join(words[:-1] if factor is not None else words)
    for name, heads in names("columns").items():
        if bare in heads:
            return Column(name, (factor or 0.0) if name.endswith("_s") else 1.0)
    if bare in names("speeds"):
        return Column("output_tps", 0.0)  # in a unit that cells say
    for count in range(1, len(words) if len(words) <= MOST_WORDS else 0):
        server, rest = words[:count], " ".join(words[count:])
        found = column_of(rest)
        if found and not found.server and (found.name in _OF_SERVERS or "/" in rest):
            other = any(_OTHERS.fullmatch(word) for word in server)
            whose = found.name in ("output_tps", *_OF_SERVERS) and not other
            return found._replace(server=" ".join(server)) if whose else None
    return None
