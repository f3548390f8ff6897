"""The terminal: tables on stdout, talk on stderr; plain when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED_WIDTH = 160


def console(stderr: bool = False) -> Console:
    """Return a console on stdout or stderr; wide and without colour when piped."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        highlight=False,
        soft_wrap=not stream.isatty(),
        width=None if stream.isatty() else PIPED_WIDTH,
    )


def table(*columns: str) -> Table:
    """Return a table: the first column left, the others right."""
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        grid.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return grid


@contextmanager
def status(text: str) -> Iterator[None]:
    """Show a spinner on stderr while something runs, if somebody looks."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(text):
        yield
