"""What people have, one module per source; its patterns, names and words are tables beside it.

``formats.toml`` says by which marks each is known. A module that starts with an underscore is
shared by several.
"""

import re
import tomllib
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any


@cache
def listed(file: str, *path: str) -> Any:
    """Return a table of a ``.toml`` of this folder, by the keys that lead to it.

    >>> listed("benchmarks", "console", "trtllm_bench", "labels")["TP Size"]
    'tp'
    """
    if path:
        return listed(file, *path[:-1])[path[-1]]
    return tomllib.loads(files(__name__).joinpath(f"{file}.toml").read_text("utf-8"))


@cache
def pattern(text: str, parts_of: str = "") -> re.Pattern[bytes]:
    """Return a compiled pattern of a table, for bytes; ``^`` is the begin of a line.

    ``$name`` stands for one of the ``parts`` of the table `parts_of`.
    """
    if parts_of:
        text = Template(text).substitute(listed(parts_of, "parts"))
    return re.compile(text.encode(), re.MULTILINE)


@cache
def texts(file: str) -> dict[str, re.Pattern[str]]:
    """Return the ``texts`` of a table: compiled patterns for text."""
    return {name: re.compile(text) for name, text in listed(file, "texts").items()}


@cache
def patterns(file: str) -> dict[str, re.Pattern[bytes]]:
    """Return the ``patterns`` of a table, compiled."""
    parts_of = file if "parts" in listed(file) else ""
    return {name: pattern(text, parts_of) for name, text in listed(file, "patterns").items()}
