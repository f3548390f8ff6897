"""TensorRT-LLM iteration logs."""

import re

from specsim.logs.format import Format
from specsim.logs.trtllm import read_trtllm_log

FORMAT = Format(
    name="trtllm_log",
    mark=re.compile(rb"iter = \d+, global_rank = |currank_total_requests = "),
    parse=lambda source, samples: read_trtllm_log(source.lines(), source.path),
)
