"""Kernel summaries of Nsight Systems."""

import re

from specsim.logs.format import Format
from specsim.logs.nsys import read_kernel_summary

FORMAT = Format(
    name="nsys_kernel_summary",
    mark=re.compile(rb"Total Time \(ns\)[^\n]{1,16}Instances"),
    parse=lambda source, samples: read_kernel_summary(source.lines(), source.path),
)
