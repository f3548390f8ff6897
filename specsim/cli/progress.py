"""A progress bar on stderr that shows only when something takes over a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that draws the bar; silent when stderr is piped."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import Progress, TaskID

    from specsim.cli.console import console

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
