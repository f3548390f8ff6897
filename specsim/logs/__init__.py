"""Logs, results and traces: what people have -> entries with one row per load level.

:func:`read_file` finds the format by content; ``formats/`` holds a module for each. All readers are
streams: memory does not grow with the file.
"""

from specsim.logs.document import csv_text, log_json
from specsim.logs.entry import (
    CODES,
    Diagnosis,
    LogEntry,
    LogRow,
    Timing,
    WindowCount,
)
from specsim.logs.format import Format, detect, detect_text, known_formats
from specsim.logs.read import read_file, require_usable
from specsim.logs.source import Source, open_source

__all__ = [
    "CODES",
    "Diagnosis",
    "Format",
    "LogEntry",
    "LogRow",
    "Source",
    "Timing",
    "WindowCount",
    "csv_text",
    "detect",
    "detect_text",
    "known_formats",
    "log_json",
    "open_source",
    "read_file",
    "require_usable",
]
