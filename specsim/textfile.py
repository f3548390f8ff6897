"""Reading a small text file that a person gave, showing what stands in it; writing files."""

from __future__ import annotations

import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from specsim.errors import FormatError, InputError

LIMIT_BYTES = 5_000_000
"""A longer file is refused: a log or a model given by mistake must not be read whole."""


def shown(value: object) -> str:
    """Return `value` as a message shows it: one line, at most 60 characters.

    >>> len(shown([1] * 1000))
    60
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int of more digits than Python prints
        text = type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def read_text(path: str | Path, what: str, limit_bytes: int = LIMIT_BYTES) -> str:
    """Return the UTF-8 text of an input file, without its byte-order mark.

    Parameters
    ----------
    path
        The file.
    what
        What it should be, for the messages, e.g. ``"a setup.toml"``.
    limit_bytes
        A longer file is refused.

    Raises
    ------
    FormatError
        If it is a directory, empty, too long, binary or not UTF-8.
    InputError
        If it cannot be opened.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(limit_bytes + 1)
    except FileNotFoundError:
        raise InputError(path, "does not exist", f"give the path of {what}") from None
    except IsADirectoryError:
        raise FormatError(path, "is a directory", f"give the path of {what}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(path, f"cannot be read ({reason})", f"give {what}") from None
    if len(data) > limit_bytes:
        raise FormatError(path, f"is longer than {limit_bytes / 1e6:g} MB", f"give {what}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(
            path, f"is not UTF-8 text (byte {error.start})", f"give {what}, saved as UTF-8"
        ) from None
    if "\0" in text:
        raise FormatError(path, "is a binary file", f"give {what}")
    if not text.strip():
        raise FormatError(path, "is empty", f"give {what}")
    return text


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises
    ------
    FormatError, InputError
        As :func:`read_text`; or if it is not TOML.
    """
    text = read_text(path, what)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deep"
        raise FormatError(path, f"is not TOML: {reason}", "correct that line") from None


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text as :func:`write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write through a temporary file in the same folder, then rename.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(
            str(path), f"cannot be written ({error.strerror})", "choose another path"
        ) from error
