"""SGLang server logs, 0.4.0 to 0.5.23: decode windows, start-up facts and warnings.

SGLang prints one decode line every 40 decode iterations (``decode_log_interval``); its throughput
is tokens since the last such line over the wall time in between, prefill and idle time included.
"""

from specsim.logs.entry import LogEntry
from specsim.logs.source import Source


def parse(source: Source) -> list[LogEntry]:
    """Read a log; the reader is imported when a log is SGLang's."""
    from specsim.logs.formats.sglang.entry import server_entry
    from specsim.logs.formats.sglang.reader import Reader

    return [server_entry(server, source.path) for server in Reader().read(source)]
