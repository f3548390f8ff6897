"""vLLM server logs."""

import re

from specsim.logs.format import Format
from specsim.logs.vllm import read_vllm

FORMAT = Format(
    name="vllm_log",
    mark=re.compile(
        rb"Avg generation throughput: |SpecDecoding metrics: |Speculative metrics: "
        rb"|vLLM API server version|LLM engine \(v\d"
    ),
    parse=lambda source, samples: read_vllm(source.lines(), source.path, samples),
    remedy="give a log that has 'Avg generation throughput' lines of a busy server",
)
