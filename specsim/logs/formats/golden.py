"""Accept lengths that an engine's tests are held to."""

import re

from specsim.logs.format import Format
from specsim.logs.golden import read_golden

FORMAT = Format(
    name="golden_acceptance",
    mark=re.compile(
        rb"^ *[\"']?(?:num_speculative_tokens_?)?\d{1,2}[\"']?: +\d\.\d"
        rb"|^ *num_speculative_tokens: +\d|: +\{[\"']?1[\"']?: *\d\.\d",
        re.MULTILINE,
    ),
    parse=lambda source, samples: read_golden(source.lines(), source.path),
)
