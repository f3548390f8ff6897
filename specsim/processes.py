"""Work on several cores: one function over many arguments, results in their order."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""What ``map`` is of one argument."""


@contextmanager
def mapping(jobs: int) -> Iterator[Map]:
    """Yield what maps a function in so many processes; with one, in this one.

    On Linux processes are forked, which costs next to nothing, if this one has no other thread: a
    copy of a process with threads may hang. Else they are started anew, and import what they need.
    Ctrl-C is for this process to obey. Where no process can be started, this one does the work.
    """
    if jobs <= 1:
        yield map
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    forks = sys.platform == "linux" and threading.active_count() == 1
    context = multiprocessing.get_context("fork" if forks else "spawn")
    ignore = signal.SIGINT, signal.SIG_IGN
    try:
        pool = ProcessPoolExecutor(jobs, context, signal.signal, ignore)
        pool.submit(int)  # starts them
    except (ImportError, NotImplementedError, OSError):  # a sandbox without semaphores or forks
        yield map
        return
    with pool:
        yield pool.map
