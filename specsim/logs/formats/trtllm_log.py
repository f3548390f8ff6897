"""TensorRT-LLM's iteration log (``print_iter_log``)."""

import re

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._trtllm import Iteration, Server
from specsim.logs.source import Source

_MARK = b"iter = "
_LINE = re.compile(
    rb"iter = (?P<number>\d{1,12}), global_rank = \d{1,6}, rank = (?P<rank>\d{1,6}), "
    rb"(?:num_scheduled_requests(?: =|:) (?P<requests>\d{1,7}), "
    rb"|kv_cache_util = (?P<usage>[01]\.\d{1,9}), "
    rb"|host_step_time = (?P<ms>\d{1,9}\.\d{1,9})ms, |elapsed_time = (?P<s>\d{1,6}\.\d{1,9})s, "
    rb"|[a-z_]{2,40}(?: =|:) [\w./: -]{1,40}, ){0,12}"
    rb"states = \{'num_ctx_requests': (?P<prefills>\d{1,9}), 'num_ctx_tokens': (?P<prompt>\d{1,9}),"
    rb" 'num_generation_tokens': (?P<tokens>\d{1,9})\}\s*\Z"
)


def parse(source: Source) -> list[LogEntry]:
    """Read the iteration log of TensorRT-LLM (``print_iter_log``).

    The batch is ``num_scheduled_requests``; ``num_generation_tokens`` counts the padding of CUDA
    graphs, so a line without the former gives a round time at an unknown batch.
    """
    servers = [Server("trtllm_log")]
    for line in source.lines():
        start = line.find(_MARK)
        if start < 0:
            continue
        found = _LINE.match(line, start)
        if found is None:
            cut = not line.endswith((b"\n", b"\r")) or b"states = " not in line
            servers[-1].unread["truncated" if cut else "damaged field"] += 1
            continue
        number, rank, requests, usage, ms, s, prefills, prompt, tokens = found.groups()
        iteration = Iteration(
            int(number),
            int(rank),
            int(requests) if requests else None,
            float(usage) if usage else None,
            float(ms) / 1e3 if ms else float(s or 0),
            int(prefills),
            int(prompt),
            decodes=int(tokens) > 0,
        )
        if not servers[-1].continues(iteration):
            servers.append(Server("trtllm_log"))
        servers[-1].take(iteration)
    return [server.entry(source.path) for server in servers]


FORMAT = Format(
    name="trtllm_log",
    words=(b"currank_total_requests = ",),
    mark=re.compile(rb"iter = \d+, global_rank = |currank_total_requests = "),
    parse=parse,
)
