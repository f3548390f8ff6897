"""Engine versions: parsing, and the order that the rules need."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from functools import cache

from specsim.errors import InputError

_NEWEST = ("main", "master", "latest", "nightly")

_VERSION = re.compile(
    r"[vb]?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[._-]?(?P<pre>alpha|beta|a|b|rc)[._-]?(?P<pre_number>\d*))?"
    r"(?:[._-]?post[._-]?(?P<post>\d*))?"
    r"(?:[._-]?dev[._-]?(?P<dev>\d*))?"
    r"(?:\+[\w.-]*)?"
)
_PRE_ORDER = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "rc": 2}
_DEV_ONLY, _FINAL = (-1, 0), (3, 0)


@dataclass(frozen=True, slots=True, order=True)
class EngineVersion:
    """A version, ordered as PEP 440 orders it; a local part (``+g57...``) does not count.

    Attributes
    ----------
    key
        What is compared: release, pre-release, post-release, development number.
    text
        As it was written.
    """

    key: tuple[tuple[int, ...], tuple[int, int], int, int]
    text: str = field(compare=False)

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
        return EngineVersion(((sys.maxsize,), _FINAL, -1, sys.maxsize), text)
    whole = re.fullmatch(r"v?\d+(?:\.\d+)+\s*[-\u2013]\s*(v?\d+(?:\.\d+)+\S*)", plain)
    match = _VERSION.fullmatch(whole.group(1) if whole else plain)
    if match is None:
        raise InputError(
            f"engine version {text!r}",
            "is not a version",
            "write it as the engine prints it, such as 0.5.9, 0.5.12.post1 or main",
        )
    release = [int(part) for part in match["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    post, dev = match["post"], match["dev"]
    if match["pre"] is not None:
        pre = (_PRE_ORDER[match["pre"]], int(match["pre_number"] or 0))
    else:
        pre = _DEV_ONLY if dev is not None and post is None else _FINAL
    return EngineVersion(
        (
            tuple(release),
            pre,
            -1 if post is None else int(post or 0),
            sys.maxsize if dev is None else int(dev or 0),
        ),
        text,
    )
