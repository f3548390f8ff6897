"""SGLang server logs."""

import re

from specsim.logs.format import Format
from specsim.logs.sglang import read_sglang

FORMAT = Format(
    name="sglang_log",
    mark=re.compile(
        rb"Decode batch(?: ?\[\d+\])?[.,] |Prefill batch(?: ?\[\d+\])?[.,] "
        rb"|server_args=ServerArgs\("
        rb"|max_total_num_tokens=\d|KV Cache is allocated\. #tokens|#retracted_reqs: "
        rb"|Max running requests is reset to|Capture (?:draft |draft extend )?cuda graph "
        rb"|Capture [a-z ]{5,14} CUDA graph |[Ss]pec v[12] "
    ),
    parse=lambda source, samples: read_sglang(source.lines(), source.path, samples),
    remedy="give a log that has 'Decode batch' lines of steady decoding",
)
