"""vLLM server logs, V0 to 0.33: throughput and drafting lines, configuration.

vLLM prints every ten seconds: a line with the throughput of each engine, and under it, if anything
was drafted, a line with the drafting of the same interval.
"""

from specsim.logs.entry import LogEntry
from specsim.logs.source import Source


def parse(source: Source) -> list[LogEntry]:
    """Read a log; the reader is imported when a log is vLLM's."""
    from specsim.logs.formats.vllm.entry import server_entry
    from specsim.logs.formats.vllm.reader import Reader

    return [server_entry(server, source.path) for server in Reader().read(source)]
