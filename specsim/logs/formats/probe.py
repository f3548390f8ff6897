"""The probe.json that ``specsim probe`` writes."""

import re

from specsim.logs.format import Format
from specsim.logs.probe import read_probe

FORMAT = Format(
    name="probe",
    mark=re.compile(rb'"schema": ?"specsim\.probe/'),
    parse=lambda source, samples: read_probe(source.lines(), source.path),
    is_json=True,
)
