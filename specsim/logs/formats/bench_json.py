"""JSON results of benchmarks and servers."""

import re

from specsim.logs.bench_json import read_bench_json
from specsim.logs.format import Format

FORMAT = Format(
    name="bench_json",
    mark=re.compile(
        rb'"output_throughput"|"internal_states"|"acc_length"|"step_time"'
        rb'|"spec_accept_histogram"|"spec_correct_drafts_histogram"|"acceptance_histogram"'
    ),
    parse=lambda source, samples: read_bench_json(source.lines(), source.path),
    is_json=True,
)
