"""llama.cpp: timings that llama-server prints per request, and llama-speculative's summary."""

from specsim.logs.entry import LogEntry
from specsim.logs.source import Source


def parse(source: Source) -> list[LogEntry]:
    """Read llama-server's log, or the summary of llama-speculative.

    Each round of a request emits its accepted drafts and one token of the target. Builds since
    about 11000 time the n - 1 tokens after the first, which the prefill gives: a request that got
    n tokens of which a were drafts took n - 1 - a rounds. Older ones time n tokens, and n - a
    rounds are counted. Where lines carry the time (``--log-timestamps``), there is a row per
    number of busy slots that was held for some requests' time, with the throughput that clients
    saw. Memory grows with the number of requests.
    """
    from specsim.logs.formats.llamacpp.reader import Reader

    return [run.entry(source.path) for run in Reader().read(source)]
