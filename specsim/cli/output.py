"""The terminal and files: tables on stdout, talk on stderr, plain when piped; whole files."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from operator import itemgetter
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar

from specsim.textfile import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

    from specsim.decide import LoadChoice
    from specsim.uncertainty import Interval

Row = TypeVar("Row")

Columns = Sequence[tuple[str, Callable[[Row], str]]]
"""Of a table: heading, and what a cell says of a row."""

COLOURS = {r"\+\d+ %$": "green", r"-\d+ %$": "red"}
"""Of a gain at the end of a cell; its sign is printed all the same."""

PIPED_WIDTH = 160
LEAST_WIDTH = 60  # a narrower terminal breaks lines itself
PATIENCE_S = 1.0  # what is done sooner shows no progress bar


# --- the terminal


def console(piped_width: int | None = None, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr; wide and without colour when piped.

    Piped, it wraps at `piped_width`, which COLUMNS overrides; for None it wraps nothing.
    """
    from rich.console import Console
    from rich.text import Text

    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    asked = int(columns) if columns.isdecimal() and int(columns) > 0 else None
    width = None if stream.isatty() else asked or piped_width or PIPED_WIDTH
    result = Console(
        file=stream,
        highlighter=lambda text: Text(printable(str(text))),  # names come from files
        markup=False,
        emoji=False,
        soft_wrap=not stream.isatty() and piped_width is None,
        width=width,
    )
    if result.width < LEAST_WIDTH:
        result.width = LEAST_WIDTH
    return result


def titled(title: str, piped_width: int) -> Console:
    """Return a console on stdout that has printed a title."""
    out = console(piped_width)
    out.print(fill(title, out.width), style="bold", soft_wrap=True)
    return out


def table(
    columns: Columns[Row], rows: Iterable[Row], left: Iterable[int] = (0,), wrap: bool = False
) -> Table:
    """Return a table of what each column says of each row.

    Columns are flush right but for those numbered in `left`, which are broken where there is no
    room: no number is cut.
    """
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, (heading, _) in enumerate(columns):
        text = i in left
        justify: Any = "left" if text else "right"
        grid.add_column(heading, justify=justify, no_wrap=not (wrap or text), overflow="fold")
    for row in rows:
        cells = [Text(printable(text(row))) for _, text in columns]
        for cell, (pattern, colour) in product(cells, COLOURS.items()):
            cell.highlight_regex(pattern, colour)
        grid.add_row(*cells)
    return grid


def headed(*headings: str) -> Columns[Sequence[str]]:
    """Return columns of rows that are texts already."""
    return [(heading, itemgetter(i)) for i, heading in enumerate(headings)]


def print_sentences(out: Console, sentences: Iterable[str]) -> None:
    """Print sentences, each wrapped to the console."""
    for sentence in sentences:
        out.print(fill(sentence, out.width), soft_wrap=True)


def print_notes(out: Console, notes: Iterable[str]) -> None:
    """Print what an answer rests on, a line with a dash for each."""
    for note in notes:
        lines = fill(note, out.width, initial_indent="- ", subsequent_indent="  ")
        out.print(lines, soft_wrap=True)


# --- parts of an answer: the question, the verdict, the choices, what they rest on


def question(title: str, piped_width: int) -> Console:
    """Return a console on stdout that has printed the question."""
    out = titled(title, piped_width)
    out.print()
    return out


def print_verdict(out: Console, sentences: Sequence[str], full: bool) -> None:
    """Print all sentences, or those that the short answer has room for."""
    from specsim.report.answer import short

    if full:
        print_sentences(out, sentences)
    else:
        out.print("\n".join(short(sentences, out.width)), soft_wrap=True)
    out.print()


def print_choices(
    out: Console, cells: Columns[LoadChoice], loads: Sequence[LoadChoice], considered: int
) -> None:
    """Print the small table, and by what rule it is chosen."""
    from specsim.report.answer import rule

    out.print(table(cells, loads, left=(1,)))
    out.print()
    print_sentences(out, [f"{rule(loads, considered)}."])


def print_grounds(out: Console, notes: Sequence[str], full: bool, more: str) -> None:
    """Print the notes, or the head of each and what --full would print besides."""
    from specsim.report.answer import assumptions

    if full:
        print_notes(out, notes)
        return
    heads = assumptions(notes)
    rests = f"Rests on: {heads}. " if heads else ""
    print_sentences(out, [f"{rests}--full {more}."])


def remark(notes: Iterable[str]) -> None:
    """Say on stderr what must be seen beside any answer, a line each."""
    for note in notes:
        sys.stderr.write(f"specsim: note: {printable(note)}\n")


def print_document(schema: str, content: Any, **form: int) -> None:
    """Print a result as JSON."""
    from specsim.documents import document

    sys.stdout.write(document(schema, content, **form))


def percent(gain: Interval, wide: bool = True) -> str:
    """Write a gain in per cent, with its interval if there is room."""
    from specsim.decide import whole_percent

    text = whole_percent(gain.value)
    return text + f" ({100 * gain.low:+.0f}..{100 * gain.high:+.0f})" if wide else text


@contextmanager
def status(text: str) -> Iterator[None]:
    """Show a spinner on stderr while something runs, if somebody looks."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(text):
        yield


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that draws a bar on stderr, if it takes long and is seen."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import Progress, TaskID

    began = time.monotonic()
    bar = Progress(console=console(stderr=True), transient=True)
    task: list[TaskID] = []

    def advance(done: int, total: int) -> None:
        if not task:
            if time.monotonic() - began < PATIENCE_S:
                return
            bar.start()
            task.append(bar.add_task(what, total=total))
        bar.update(task[0], completed=done, total=total)

    try:
        yield advance
    finally:
        if task:
            bar.stop()


# --- files


def writable(*endings: str) -> Callable[[str], str]:
    """Return what takes the name of a file that can be written, of some endings if any are said."""

    def read(name: str) -> str:
        path = Path(name)
        if endings and path.suffix.lower() not in endings:
            some = ", ".join(endings[:-1])
            raise ValueError("has another ending", f"end the name in {some} or {endings[-1]}")
        if not path.parent.is_dir():
            raise ValueError("is in a folder that does not exist", "make it, or choose another")
        if path.is_dir():
            raise ValueError("is a directory", "give the name of a file")
        return name

    return read


def write_file(name: str, content: str) -> None:
    """Write a file, whole or not at all, and say so on stderr."""
    from specsim.textfile import write_text

    write_text(Path(name), content)
    sys.stderr.write(f"wrote {name}\n")


def write_plot(plot: str, figure: Figure) -> None:
    """Write a figure in the format of the file's name, and say so on stderr."""
    from specsim.report.figure import drawn
    from specsim.textfile import write_bytes

    write_bytes(Path(plot), drawn(figure, Path(plot).suffix.lower().removeprefix(".")))
    sys.stderr.write(f"wrote {plot}\n")
