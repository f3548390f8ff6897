"""SGLang's forward pass metrics (``--enable-forward-pass-metrics``), dumped as JSON lines.

A message per forward pass and data-parallel rank: what it held, and how long the GPU was at it.
Whether drafts were verified is not said, nor is the time that the GPU waits for the CPU.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._iterations import Pass, Passes
from specsim.logs.formats._results import with_unread
from specsim.logs.json_values import json_values, number, table, whole
from specsim.logs.source import Source
from specsim.logs.unread import MISSING, OUT_OF_RANGE, TOO_MANY, Unread, check, counted

MOST_SECONDS, MOST_CONTEXT, MOST_WORKERS = 1e3, 1e8, 64


def parse(source: Source) -> list[LogEntry]:
    """Read a dump: an entry per worker."""
    workers: dict[str, Passes] = {}
    unread: Counter[str] = Counter()
    for value in json_values(source.lines()):
        for message in value if isinstance(value, list) else [value]:
            with counted(unread):
                worker, rank, one = _pass_of(message)
                check(worker in workers or len(workers) < MOST_WORKERS, TOO_MANY)
                workers.setdefault(worker, Passes(rank)).take(rank, one)
    entries = [of.entry(source.path, FORMAT.name, "sglang") for of in workers.values()]
    return with_unread(entries, unread, source.path, FORMAT.name)


def _pass_of(message: Any) -> tuple[str, int, Pass]:
    """Return worker and rank of a message, and its forward pass."""
    if isinstance(message, Unread):
        raise message
    check(isinstance(message, Mapping), "not an object")
    held, waiting = table(message, "scheduled_requests"), table(message, "queued_requests")
    check(number(message, "version") == 1, "a version of the messages that is not known")
    seconds, rank = number(message, "wall_time"), whole(message, "dp_rank")
    requests, prompts = whole(held, "num_decode_requests"), whole(held, "num_prefill_requests")
    tokens, wait = whole(held, "sum_decode_kv_tokens"), whole(waiting, "num_prefill_requests")
    if seconds is None or rank is None or requests is None or prompts is None or tokens is None:
        raise Unread(MISSING)
    fits = 0 <= seconds <= MOST_SECONDS and requests <= tokens <= MOST_CONTEXT * requests
    check(fits, OUT_OF_RANGE)
    queue = float("nan" if wait is None else wait)
    one = Pass(requests, seconds, prompts > 0, queue, kv_tokens=float(tokens))
    return str(message.get("worker_id", "")), rank, one


FORMAT = Format(
    name="fpm",
    mark=re.compile(rb'"scheduled_requests": ?\{'),
    parse=parse,
    remedy="give a dump of forward passes that decode: a JSON object per line",
    is_json=True,
)
