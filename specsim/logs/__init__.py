"""Logs, results and traces: what people have -> entries with one row per load level.

:func:`read_file` finds the format by content; ``formats/`` holds a module for each. All readers are
streams: memory does not grow with the file.
"""

from specsim.logs.entry import LogEntry as LogEntry
from specsim.logs.entry import LogRow as LogRow
from specsim.logs.entry import Timing as Timing
from specsim.logs.entry import WindowCount as WindowCount
from specsim.logs.format import read_file as read_file
from specsim.logs.format import require_usable as require_usable
from specsim.logs.source import Source as Source
