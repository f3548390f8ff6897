"""Engine versions: parsing, and the order that the rules need."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from packaging.version import Version

from specsim.errors import InputError

_NEWEST = ("main", "master", "latest", "nightly")
_NEWER_THAN_ALL = Version("999999999")
_RANGE = re.compile(r"v?\d+(?:\.\d+)+\s*[-\u2013]\s*(v?\d+(?:\.\d+)+\S*)")
_BUILD = re.compile(r"b\d+")


@dataclass(frozen=True, slots=True, order=True)
class EngineVersion:
    """A version, ordered as PEP 440 orders it; a local part (``+g57...``) does not count."""

    key: Version
    text: str = field(compare=False)  # as it was written

    def since(self, first: str) -> bool:
        """Whether this is release `first` or a later one.

        >>> parse_version("0.5.12.post1").since("0.5.12")
        True
        """
        return self >= parse_version(first)

    def before(self, first: str) -> bool:
        """Whether this is older than release `first`."""
        return not self.since(first)


@cache
def parse_version(text: str) -> EngineVersion:
    """Return the version that `text` names.

    Release numbers, pre-, post- and development releases, a leading v, llama.cpp's build numbers
    (b4567); ``main`` and its like are newer than every release; of a range (``0.5.7-0.5.10``) the
    last release counts.

    Raises
    ------
    InputError
        If the text is no version.

    Examples
    --------
    >>> parse_version("0.5.9") < parse_version("0.5.12.post1") < parse_version("main")
    True
    """
    plain = text.strip().lower()
    if plain in _NEWEST:
        return EngineVersion(_NEWER_THAN_ALL, text)
    whole = _RANGE.fullmatch(plain)
    plain = whole[1] if whole else plain
    plain = plain[1:] if _BUILD.fullmatch(plain) else plain
    try:
        key = Version(Version(plain).public)
    except ValueError:  # also of numbers with thousands of digits
        raise InputError(
            f"engine version {text!r}",
            "is not a version",
            "write it as the engine prints it, such as 0.5.9, 0.5.12.post1 or main",
        ) from None
    return EngineVersion(key, text)
