"""The report that ``trtllm-bench`` prints, of TensorRT-LLM without a server."""

import re
from collections import Counter

from specsim.logs.entry import LogEntry
from specsim.logs.format import Format
from specsim.logs.formats._benchmarks import figures_of, runs
from specsim.logs.formats._results import joined, run_entry, with_unread
from specsim.logs.source import Source
from specsim.logs.unread import counted


def parse(source: Source) -> list[LogEntry]:
    """Read printed reports."""
    unread: Counter[str] = Counter()
    entries = []
    for said in runs(source, FORMAT.name, unread):
        with counted(unread):
            if figures_of(said):
                entries.append(run_entry(FORMAT.name, said))
    return with_unread(joined(entries, source.path), +unread, source.path, FORMAT.name)


FORMAT = Format(
    name="trtllm_bench",
    mark=re.compile(
        rb"^Total Output Throughput \(tokens/sec\):|^Number of concurrent requests: "
        rb"|^Max Runtime Batch Size: |^Per GPU Output Throughput \(tps/gpu\):",
        re.MULTILINE,
    ),
    parse=parse,
)
