"""Prometheus metrics of SGLang and vLLM."""

import re

from specsim.logs.format import Format
from specsim.logs.prometheus import START, read_prometheus

FORMAT = Format(
    name="prometheus",
    mark=re.compile(START.pattern, re.MULTILINE),
    parse=lambda source, samples: read_prometheus(source.lines(), source.path),
)
