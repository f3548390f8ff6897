"""Output of nccl-tests."""

import re

from specsim.logs.format import Format
from specsim.logs.nccl import LOOKS_LIKE, read_nccl

FORMAT = Format(
    name="nccl_tests",
    mark=re.compile(
        rb"^" + LOOKS_LIKE.pattern + rb"|^# nThread \d|out-of-place +in-place", re.MULTILINE
    ),
    parse=lambda source, samples: read_nccl(source.lines(), source.path),
)
