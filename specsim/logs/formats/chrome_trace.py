"""Chrome traces of the torch profiler."""

import re

from specsim.logs.chrome_trace import read_chrome_trace
from specsim.logs.format import Format

FORMAT = Format(
    name="chrome_trace",
    mark=re.compile(rb'"traceEvents"|"deviceProperties"|"ph": ?"[XM]"'),
    parse=lambda source, samples: read_chrome_trace(source.chunks(), source.path),
    is_json=True,
)
