"""The terminal: tables on stdout, talk on stderr; plain when piped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED_WIDTH = 160

LEAST_WIDTH = 60
"""A narrower terminal breaks lines itself."""


def console(stderr: bool = False, piped_width: int | None = None) -> Console:
    """Return a console on stdout or stderr; wide and without colour when piped.

    Parameters
    ----------
    stderr
        Instead of stdout.
    piped_width
        Wrap at this width when piped (COLUMNS overrides); None wraps nothing there.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    asked = int(columns) if columns.isdecimal() and int(columns) > 0 else None
    width = None if stream.isatty() else asked or piped_width or PIPED_WIDTH
    result = Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not stream.isatty() and piped_width is None,
        width=width,
    )
    if result.width < LEAST_WIDTH:
        result.width = LEAST_WIDTH
    return result


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
