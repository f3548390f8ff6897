"""TensorRT-LLM iteration statistics."""

import re

from specsim.logs.format import Format
from specsim.logs.trtllm import read_trtllm_stats

FORMAT = Format(
    name="trtllm_stats",
    mark=re.compile(rb'"iterLatencyMS"'),
    parse=lambda source, samples: read_trtllm_stats(source.lines(), source.path),
    is_json=True,
)
