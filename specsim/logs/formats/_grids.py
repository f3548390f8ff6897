"""Printed tables of any program: markdown, ``+---+`` and box-drawn grids, CSV, titled lines."""

import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from specsim.logs.formats import texts
from specsim.logs.formats._benchmarks import column_of, makes_other, names
from specsim.logs.paste import Headings, label_of
from specsim.logs.unread import DAMAGED_ROW, TRUNCATED

_BARS = str.maketrans(dict.fromkeys("│┃║", "|"))
_TEXT = texts("tables")
LABELLED = re.compile(r"([A-Z][A-Za-z0-9 ()/.]{1,48}):[ \t]+(\S{1,32})[ \t]*\r?\n?")
"""A line of a table that has a title instead of a header."""
MAX_COLUMNS = 512
MOST_ABOVE = 100
MOST_LABEL = 40  # characters before a colon that may name a server

Wanted = Callable[[tuple[str, ...]], object]  # whether a table with such a header is looked for


@dataclass(slots=True)
class Grid:
    """One table: the cells of its header, and of each row under it; or its title, and lines."""

    header: tuple[str, ...]
    label: str = ""  # the headings above
    under: str = ""  # the last line of text above
    rows: list[tuple[str, ...]] = field(default_factory=list)
    separator: str = "|"
    ruled: bool = False  # whether a rule was its last line
    above: tuple[str, ...] = ()  # lines of a label and a value before a title

    def records(self) -> Iterator[dict[str, str]]:
        """Yield the rows by column; a column whose name comes again counts once."""
        for row in self.rows:
            yield dict(reversed(list(zip(self.header, row, strict=True))))


def grids(lines: Iterable[bytes], wanted: Wanted, unread: Counter[str]) -> Iterator[Grid]:
    """Yield the tables whose header is `wanted`; count rows that do not fit theirs.

    A row without a number begins another table; a blank line ends one, since rows below it may be
    of another whose header is lost; below a label they are of what that names.
    """
    above, label, prose = Headings(), "", ""
    grid: Grid | None = None
    heads: list[tuple[str, ...]] = []  # rows without a number, one below the other
    labelled: deque[str] = deque(maxlen=MOST_ABOVE)

    def opened(header: tuple[str, ...], separator: str) -> Grid:
        labels = ", ".join(filter(None, (above.label, label)))
        return Grid(header, labels, prose, separator=separator)

    for line in lines:
        text = line.decode("utf-8", "replace").translate(_BARS)
        bare = text.strip()
        titled = "Benchmark Result" in bare and _TEXT["title"].search(bare)
        within = grid is not None and grid.separator == ":"
        separator = "" if titled or within else _separator(bare, grid, wanted)
        if titled:
            if grid:
                yield grid
            grid = replace(opened((titled[0],), ":"), above=tuple(labelled))
            labelled.clear()
        elif grid and within:
            label = (": " not in bare and label_of(line)) or label
            if _TEXT["end"].fullmatch(bare):
                grid.ruled = True
                yield grid
                grid = None
            else:
                grid.rows.append((text,))
        elif (pairs := _pairs(bare) or _listed(bare)) and wanted(tuple(pairs)):
            if grid is None or (grid.separator, grid.header) != ("=", tuple(pairs)):
                if grid:
                    yield grid
                grid = opened(tuple(pairs), "=")
            if line.endswith((b"\n", b"\r", b")")):
                grid.rows.append(tuple(pairs.values()))
            else:
                unread[TRUNCATED] += 1
        elif not separator:
            heads, prose = [], bare or prose
            listed = all(_TEXT[f"listed_{of}"].search(bare) for of in ("load", "speed"))
            if listed or (grid and grid.separator == "=" and re.search(r"[=:] ?\d", bare)):
                unread[DAMAGED_ROW] += bool(grid) or _TEXT["bullet"].match(bare) is not None
            if ":" in text and LABELLED.fullmatch(text):
                labelled.append(text)
            heading, named = above.read(line), label_of(line)
            label = "" if heading else named or label
            if grid and (not bare or heading or named):
                yield grid
                grid = opened(grid.header, grid.separator) if bare else None
        elif _TEXT["rule"].fullmatch(bare):
            if grid:
                grid.ruled = len(bare) > 3
        elif not (bare.endswith("|") if separator == "|" else line.endswith((b"\n", b"\r"))):
            unread[TRUNCATED] += 1 if grid else 0
        else:
            cells = _cells(bare, separator)
            heads = [*heads[-2:], cells] if all(value_of(cell) is None for cell in cells) else []
            header = next((of for of in (cells, *_spanned(heads)) if wanted(of)), None)
            if header or (heads and not _continues(grid, cells)):
                if grid:
                    yield grid
                grid = opened(header, separator) if header else None
            elif grid and len(cells) - len(grid.header) in (0, separator == "  "):
                grid.rows.append(cells[-len(grid.header) :])  # pandas numbers rows
                grid.ruled = False
            elif grid:
                unread[DAMAGED_ROW] += 1
    if grid:
        yield grid


def value_of(cell: str) -> float | None:
    """Return the number of a cell, without its spread; None if it is none, or has a unit.

    >>> value_of("1,234.50"), value_of("**66.2** ± 0.4"), value_of("2.9k"), value_of("8x")
    (1234.5, 66.2, 2900.0, None)
    """
    found = _TEXT["number"].fullmatch(_TEXT["spread"].sub("", cell).strip(" \t*_`"))
    if found is None:
        return None
    whole = re.sub(r"\D", "", found[1])
    exponent = found[3] or (3 if found[4] else 0)
    return float(f"{whole}{found[2]}e{exponent}")


def with_points(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Write the numbers of a table that has decimal commas with points.

    >>> with_points([("1", "92,7"), ("16", "1.234,5")])
    [('1', '92.7'), ('16', '1234.5')]
    """
    cells = [cell.strip("*`_ ") for row in rows for cell in row]
    if not any(map(_TEXT["comma"].fullmatch, cells)) or any(map(_TEXT["point"].fullmatch, cells)):
        return rows

    def pointed(cell: str) -> str:
        number = re.fullmatch(r"[*`_ ]*\d[\d., ]*(?:%| ?[a-z%/]{1,8})?[*`_ ]*", cell, re.IGNORECASE)
        return re.sub(r"(?<=\d)[. ](?=\d)", "", cell).replace(",", ".") if number else cell

    return [tuple(map(pointed, row)) for row in rows]


def _pairs(bare: str) -> dict[str, str]:
    """Return what a line of pairs says, units with the names; nothing if it is anything else."""
    found = _TEXT["pairs"].fullmatch(bare)
    label = found and (found["label"] or found["before"])
    if label and makes_other(label):
        return {}
    named = {"server": label} if label else {}
    each = _TEXT["pair"].finditer(found["rest"]) if found else ()
    return named | {f"{m['key']} {m['unit'] or ''}".strip(): m["value"] for m in each}


def _listed(bare: str) -> dict[str, str]:
    """Return what a line of a person's list says of one load; nothing if it is anything else.

    >>> _listed("- bs=1: 105 tok/s (accept 2.9)")
    {'bs': '1', 'tok/s': '105', 'accept length': '2.9'}
    >>> _listed("* EAGLE3: 640 tok/s at 8 users, 1.4x, vs 460 tok/s")
    {'server': 'EAGLE3', 'tok/s': '640', 'users': '8'}
    """
    text = _TEXT["bullet"].sub("", bare)
    whose, colon, rest = text.partition(": ")
    load = _TEXT["listed_load"].search(whose)
    if (text == bare and not (load and text.startswith(load[0]))) or len(whose) > MOST_LABEL:
        return {}  # a sentence
    if makes_other(whose) and not load:
        return {}
    alone = load is not None and load[0] == whose
    named = colon and not (load or column_of(whose))
    said = {"server": whose.strip("*_` ")} if named else {}
    items = _TEXT["listed_end"].split(rest if named or alone else text)
    for item in (of.strip(": ") for of in ([whose, *items] if alone else items)):
        load, found = _TEXT["listed_load"].fullmatch(item), _TEXT["listed_item"].fullmatch(item)
        new = {}
        if load:
            new = {load["name"] or "users": load["n"] or load["count"]}
        elif _TEXT["compared"].search(item) or _TEXT["listed_gain"].match(item):
            continue
        elif found:
            unit, _, after = (found["unit"] or "").partition(" ")
            unit, after = (unit, after) if unit in names("units") else (f"{unit} {after}", "")
            head = " ".join(f"{found['name'] or ''} {after} {unit}".split())
            accepts = _TEXT["listed_accept"].fullmatch(head) and found["value"] >= "1."
            new = {"accept length" if accepts else head: found["value"]}
        elif re.search(r"\d", item):
            return {}  # what it counts may be what the line is of
        elif item and not said:
            new = {"server": item}
        if "" in new or new.keys() & said.keys():
            return {}
        said |= {head: value for head, value in new.items() if head == "server" or column_of(head)}
    return said


def _separator(bare: str, grid: Grid | None, wanted: Wanted) -> str:
    """Return what stands between the cells of a line; empty if it is no row."""
    if bare.startswith(("|", "+")) or (bare and _TEXT["rule"].fullmatch(bare)):
        return "|"
    if grid and grid.separator not in "|=" and grid.separator in bare:
        return grid.separator
    return next((m for m in ("\t", ",", ";", "  ") if m in bare and wanted(_cells(bare, m))), "")


def _cells(bare: str, separator: str) -> tuple[str, ...]:
    if separator == "|":
        bare = bare.replace("||", "|") if bare.startswith("||") else bare  # heads as Jira has them
        inner = bare.removeprefix("|").removesuffix("|")
        return tuple(cell.strip() for cell in inner.split("|")[:MAX_COLUMNS])
    if separator == "  ":
        return tuple(re.split(r"\s{2,}", bare)[:MAX_COLUMNS])
    try:
        cells = next(csv.reader([bare], delimiter=separator, strict=True), [])
    except csv.Error:
        return ()
    return tuple(cell.strip() for cell in cells[:MAX_COLUMNS])


def _spanned(heads: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the heads that the last rows make together; an empty cell goes on from its left.

    >>> list(_spanned([("", "Requests", ""), ("Strategy", "Mean", "p95")]))
    [('Strategy', 'Requests | Mean', 'Requests | p95')]
    """

    def filled(left: str, cell: str) -> str:
        return cell or left

    for begin in range(len(heads) - 1):
        rows = [tuple(accumulate(row, filled)) for row in heads[begin:]]
        if len({len(row) for row in rows}) == 1:
            yield tuple(" | ".join(filter(None, of)) for of in zip(*rows, strict=True))


def _continues(grid: Grid | None, cells: tuple[str, ...]) -> bool:
    """Whether a row goes on with the name of the row above, as in narrow terminals."""
    named = grid is not None and len(cells) == len(grid.header) and any(cells)
    if not named or any(cells[1:]) or not grid or not grid.rows:
        return False
    first, *rest = grid.rows[-1]
    grid.rows[-1] = (f"{first} {cells[0]}", *rest)
    return True
