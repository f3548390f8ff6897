"""Logs of llama.cpp's tools and server."""

import re

from specsim.logs.format import Format
from specsim.logs.llamacpp import read_llamacpp

FORMAT = Format(
    name="llamacpp",
    mark=re.compile(
        rb"llama_perf_\w|llama_print_timings|^n_(?:drafted|accept) +=|eval time = +\d"
        rb"|draft acceptance(?: rate)? = ",
        re.MULTILINE,
    ),
    parse=lambda source, samples: read_llamacpp(source.lines(), source.path),
)
