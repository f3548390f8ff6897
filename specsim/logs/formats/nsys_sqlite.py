"""Exported databases of Nsight Systems."""

import re

from specsim.logs.format import Format
from specsim.logs.nsys import read_nsys_sqlite

FORMAT = Format(
    name="nsys_sqlite",
    mark=re.compile(rb"\ASQLite format 3\x00"),
    parse=lambda source, samples: read_nsys_sqlite(source.file_name()),
)
