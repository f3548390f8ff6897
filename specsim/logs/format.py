"""What a log format is, and which of them a file is in: by its content, never by its name."""

import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from operator import itemgetter
from typing import Any

from specsim.errors import FormatError
from specsim.logs import formats
from specsim.logs.entry import LogEntry
from specsim.logs.formats import listed, pattern
from specsim.logs.source import Source

FIRST_BYTES = 1 << 16
"""The first look is at so much; most files show what they are within it."""
SEARCH_BYTES = 32 << 20
"""How far into a file a known line is looked for."""


Reader = Callable[[Source], list[LogEntry]]
"""From an open file to one entry per server or run."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format that specsim reads: a row of ``formats/formats.toml``, or of one's own.

    One's own is one new file in ``specsim/logs/formats`` with a ``FORMAT``; nothing else need know
    of it (CONTRIBUTING.md has one).
    """

    name: str
    # What only such files hold. The format whose marks are most frequent is it.
    mark: re.Pattern[bytes]
    parse: Reader
    # What to give instead of such a file that measures nothing.
    remedy: str = "give a complete result"
    # One of these is in any such text: by them it is found deep within a file of another format.
    words: tuple[bytes, ...] = ()
    # Marks of JSON formats come first in a file that begins with a bracket, last in any other.
    is_json: bool = False


def known_formats() -> list[Format]:
    """Return the formats of the table, then those of modules that it does not name.

    The modules of the former are imported when a file is of theirs.
    """
    found = pkgutil.iter_modules(formats.__path__)
    modules = sorted({m.name for m in found if m.name[0] != "_"} - _modules())
    own = [import_module(f"{formats.__name__}.{name}").FORMAT for name in modules]
    return [*_shipped(), *own]


@cache
def _shipped() -> tuple[Format, ...]:
    return tuple(_of_row(name, **row) for name, row in listed("formats").items())


@cache
def _modules() -> set[str]:
    return {row["parse"].partition(":")[0] for row in listed("formats").values()}


def _of_row(
    name: str, parse: str, mark: list[str], words: Sequence[str] = (), **more: Any
) -> Format:
    found = tuple(word.encode() for word in words)
    return Format(name, pattern("|".join(mark)), partial(_parse, parse), words=found, **more)


def _parse(by: str, source: Source) -> list[LogEntry]:
    """Read a file by a function of a module, ``module:function``."""
    module, _, function = by.partition(":")
    read: Reader = getattr(import_module(f"{formats.__name__}.{module}"), function)
    return read(source)


def detect(source: Source) -> Format:
    """Return the format of an open file, whose head grows while nothing known was found in it.

    Raises :class:`FormatError` if it is in no format that specsim reads.
    """
    found = detect_text(source.head[:FIRST_BYTES])
    begun = 0
    while found is None:
        found = detect_text(source.head, begun)
        begun = max(len(source.head) - 4096, 0)
        if found is None and (len(source.head) >= SEARCH_BYTES or not source.grow()):
            raise FormatError(
                source.path,
                "is in no format that specsim reads",
                "give a log of SGLang, vLLM, TensorRT-LLM or llama.cpp, a benchmark result, "
                "Prometheus metrics, a torch or Nsight trace, nccl-tests output, or a probe.json",
            )
    return found


def detect_text(head: bytes, begin: int = 0) -> Format | None:
    """Return the format whose marks are most frequent in the head of a file, from `begin` on.

    >>> detect_text(b"[2026-01-01 00:00:00] Decode batch, #running-req: 1").name
    'sglang_log'
    """
    json_first = _begins_json(head)
    formats = known_formats()
    for is_json in (json_first, not json_first):
        counts = [(len(f.mark.findall(head, begin)), f) for f in formats if f.is_json == is_json]
        found = [(f.name != "launch", n, f) for n, f in counts if n]  # a log names its program
        if found:
            return max(found, key=itemgetter(0, 1))[2]
    return None


def _begins_json(head: bytes) -> bool:
    r"""Whether the first line that is no comment begins an object or a list: a log's date does not.

    >>> _begins_json(b"# made today\n[{"), _begins_json(b"[2026-01-01 00:00:00] Decode batch")
    (True, False)
    """
    for line in head[:FIRST_BYTES].splitlines():
        text = line.strip()
        if text and not text.startswith(b"#"):
            return text[:1] == b"{" or (text[:1] == b"[" and text[1:].lstrip()[:1] in b'[{"')
    return False
