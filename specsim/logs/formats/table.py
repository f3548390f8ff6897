"""Tables that benchmarks print."""

import re

from specsim.logs.format import Format
from specsim.logs.tables import read_tables

FORMAT = Format(
    name="table",
    mark=re.compile(
        rb"Serving Benchmark Result|\| Acc Length +\|| Speed \(token/s\) +\||\| Key +\| Value +\|"
        rb"|\| *batch size *\|"
    ),
    parse=lambda source, samples: read_tables(source.lines(), source.path),
)
