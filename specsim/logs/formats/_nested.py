"""Results that people nest, in JSON or YAML: what is within one another -> records, one a row."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from specsim.logs.formats import listed, texts
from specsim.logs.formats._benchmarks import column_of, makes_other
from specsim.logs.json_values import loaded
from specsim.logs.unread import DAMAGED, TOO_MANY, TRUNCATED, TWO_IN_ONE, Unread, check

_TEXT = texts("tables")
MOST_LINES, DEEPEST = 20_000, 200  # of a YAML document: no result has more, or further to the right
_COMMENT, _PAIR = (
    re.compile(r"(?:\A|\s)#.*"),
    re.compile(r"([^:{}\[\],&*!|>%@`]{1,64}?):(?: +(.*))?"),
)
_COUNTED_BY = re.compile(r"(?i)\A(?:by|per)[_ ]")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,2})?")
MOST_KEYS = 20  # above a figure
MOST_FIRST = 64  # clients of the smallest load of a sweep
_LOADS = ("concurrency", "batch_size")


def records(
    value: Any, above: Mapping[str, Any] = {}, of: str = "", depth: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the rows in a value: keys above figures are a load, a server, or tell nothing.

    `above` are cells of all rows, `of` is what the keys of this object count, if that is said, and
    `depth` how deep it lies. A key that is a bare number is a load, unless it may count others.

    >>> list(records({"eagle3": {"1": {"tok/s": 95.0}, "8": {"tok/s": 600.0}}}))[1]
    {'server': 'eagle3', 'concurrency': '8', 'tok/s': 600.0}
    >>> list(records({"tok/s": {"bs=1": 95.0, "bs=2": 180.0}}))[1]
    {'batch size': '2', 'tok/s': 180.0}
    >>> list(records({"tok/s": {"none": {"1": 60.0, "8": 410.0}}}))[1]
    {'server': 'none', 'concurrency': '8', 'tok/s': 410.0}
    >>> list(records({"runs": {"1": {"tok/s": 95.0}, "2": {"tok/s": 94.0}}}))
    [{'runs': '1', 'tok/s': 95.0}, {'runs': '2', 'tok/s': 94.0}]
    """
    if isinstance(value, list) and depth <= MOST_KEYS:
        for one in value:
            yield from records(one, above, depth=depth + 1)
    if not isinstance(value, dict) or depth > MOST_KEYS:
        return
    own = {key: cell for key, cell in value.items() if not isinstance(cell, dict | list)}
    inner = {key: cell for key, cell in value.items() if isinstance(cell, dict | list)}
    columns = {key: inner.pop(key) for key in [*inner] if column_of(key) and _flat(inner[key])}
    rows, means = _by_column(columns, of)
    own |= means
    if any(_is_figure(key) for key in own):
        rows.append(own)
    yield from ({**above, **row} for row in rows)
    shared = {**above, **{key: cell for key, cell in own.items() if not _is_figure(key)}}
    loads = _loads(list(inner), of)
    for key, load in zip(inner, loads or [{}] * len(inner), strict=True):
        column = column_of(_COUNTED_BY.sub("", key)) or _TEXT["counted"].search(key)
        if _is_figure(key) and isinstance(cells := inner[key], dict):  # above servers or loads
            turned = {name: {key: cell} for name, cell in cells.items()}
            yield from records(turned, shared, of, depth + 1)
            continue
        if makes_other(key) and not (load or column):
            continue  # of prompts, of each request, a percentile
        told = load or column or key.lower() in listed("tables", "containers")
        named = load or ({} if told else {"server": ", ".join([*_server(above), key])})
        counts = key if column and not load else ""
        yield from records(inner[key], {**shared, **named}, counts, depth + 1)


def _by_column(columns: Mapping[str, Any], of: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of columns, which are lists or by load, and what else they say.

    A list goes with others where one of them is of loads, as do objects that number rows.
    """
    lists = {key: cells for key, cells in columns.items() if isinstance(cells, list)}
    by_key = {key: cells for key, cells in columns.items() if isinstance(cells, dict)}
    rows: list[dict[str, Any]] = []
    if _has_load(lists) and len({*map(len, lists.values())}) == 1:
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    keys = list(dict.fromkeys(key for cells in by_key.values() for key in cells))
    loads = [{}] * len(keys) if _has_load(by_key) else _loads(keys, of)
    for key, load in zip(keys, loads, strict=False):
        rows.append(load | {name: cells[key] for name, cells in by_key.items() if key in cells})
    if loads:
        return rows, {}
    return rows, {
        f"{name} {key}": v for name, of_key in by_key.items() for key, v in of_key.items()
    }


def _flat(cells: Any) -> bool:
    """Whether an object or a list holds no other."""
    each = cells.values() if isinstance(cells, dict) else cells
    return bool(cells) and not any(isinstance(cell, dict | list) for cell in each)


def _server(above: Mapping[str, Any]) -> list[str]:
    return [above["server"]] if "server" in above else []


def _is_figure(key: str) -> bool:
    """Whether a name is of what was measured; others may be said of several rows at once."""
    column = column_of(key)
    return column is not None and column.name.endswith(("tps", "_s", "_ms", "accept_length"))


def _has_load(columns: Mapping[str, Any]) -> bool:
    return any((column := column_of(key)) and column.name in _LOADS for key in columns)


def _loads(keys: Sequence[str], of: str) -> list[dict[str, str]]:
    """Return the load that each key names; nothing if any names none.

    Bare numbers that follow one another may be counts of runs, rows or drafts.
    """
    found = [_TEXT["nested_load"].fullmatch(key.replace("_", " ").strip()) for key in keys]
    named = [load for load in found if load]
    bare = [int(key) for key in keys if re.fullmatch(r"\d{1,6}", key)]
    letter = len(keys) == 1 and re.fullmatch(r"[cC]\d+", keys[0])  # as of a data set: alone no load
    if named and len(named) == len(keys) and not letter:
        names = ("batch size" if load["bs"] else "concurrency" for load in named)
        return [{name: m["n"] or m["count"]} for name, m in zip(names, named, strict=True)]
    follow = len(bare) < 2 or any(after - n == 1 for n, after in pairwise(bare))
    follow |= min(bare, default=0) > MOST_FIRST  # lengths, more likely
    if not bare or len(bare) < len(keys) or (follow and not of):
        return []
    name = _COUNTED_BY.sub("", of) or "concurrency"
    return [{name: str(n)} for n in bare]


def yaml_values(lines: Iterable[bytes]) -> Iterator[Any | Unread]:
    r"""Yield the documents of a YAML text: mappings, lists, numbers and texts, by indentation.

    A document with anything else in it, or with a key that comes twice, gives an :class:`Unread`.

    >>> list(yaml_values([b"eagle3:  # depth 3\n", b"- {bs: 1, tok/s: 95.5}\n", b"- bs: 8\n"]))
    [{'eagle3': [{'bs': 1, 'tok/s': 95.5}, {'bs': 8}]}]
    """
    document: list[tuple[int, str]] = []
    for line in (*lines, b"---\n"):
        text = _COMMENT.sub("", line.decode("utf-8", "replace").rstrip("\r\n")).rstrip()
        if text != "---" or not document:
            document += (
                [(len(text) - len(text.lstrip()), text.lstrip())] if text.strip("- ") else []
            )
            if not line.endswith((b"\n", b"\r")) and document:
                document.pop()  # its number may be cut
                yield Unread(TRUNCATED)
            continue
        try:
            check(len(document) <= MOST_LINES, TOO_MANY)
            check(
                max(document)[0] <= DEEPEST and "\t" not in "".join(t for _, t in document), DAMAGED
            )
            value, end = _node(document, 0)
            check(end == len(document), DAMAGED)
            yield value
        except Unread as error:
            yield error
        document = []


def _node(lines: list[tuple[int, str]], at: int) -> tuple[Any, int]:
    """Return the mapping or list that begins at a line, by its indentation, and where it ends."""
    indent, first = lines[at]
    listed = first[:1] == "-"
    items: list[Any] = []
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at][0] == indent and (lines[at][1][:1] == "-") is listed:
        text = lines[at][1]
        pair = _PAIR.fullmatch(text[1:].lstrip() if listed else text)
        if listed and pair:  # a mapping whose first key stands behind the dash
            lines[at] = indent + len(text) - len(pair[0]), pair[0]
            value, at = _node(lines, at)
        elif listed:
            value, at = _scalar(text[1:].strip()), at + 1
        else:
            check(pair, DAMAGED)
            key = pair[1].strip("\"' ") if pair else ""
            check(key not in found, TWO_IN_ONE)
            value, at = _scalar((pair and pair[2]) or ""), at + 1
            inner = at < len(lines) and (lines[at][0], lines[at][1][:1] == "-") > (indent, False)
            if value is None and inner:
                value, at = _node(lines, at)
            found[key] = value
            continue
        items.append(value)
    check(at == len(lines) or lines[at][0] < indent, DAMAGED)
    return (items if listed else found), at


def _scalar(text: str) -> Any:
    if text in ("", "~", "null"):
        return None
    if text[0] in "[{":
        text = re.sub(r"([{,]\s*)[\"']?([\w./ -]+?)[\"']?\s*:", r'\1"\2":', text)
    elif text[0] in "&*!|>%@`":
        raise Unread(DAMAGED)
    elif not (_NUMBER.fullmatch(text) or text in ("true", "false")):
        return text.strip("\"'")
    value = loaded(text)
    check(value is not None, DAMAGED)
    return value
