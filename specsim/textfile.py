"""Reading a small text file that a person gave, showing what stands in it; writing files."""

import contextlib
import errno
import math
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from specsim.errors import FormatError, InputError

LIMIT_BYTES = 5_000_000
"""A longer file is refused: a log or a model given by mistake must not be read whole."""

MOST_DEPTH = 50  # of tables in tables; the deepest file that specsim reads has six

LARGEST = 1e40
"""No number that is written in a file is larger; squares and exponentials of it must be finite."""

_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")


def printable(text: str) -> str:
    r"""Return a text without what a terminal would obey.

    >>> printable("a\x1b[31mb")
    'a?[31mb'
    """
    return _CONTROL.sub("?", text)


def csv_cell(text: str) -> str:
    """Return a cell that no spreadsheet takes for a formula; :func:`from_csv_cell` undoes it.

    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell("topk=1")
    ("'=1+1", '-1.5', 'topk=1')
    """
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


def from_csv_cell(text: str) -> str:
    """Return what :func:`csv_cell` was given.

    >>> from_csv_cell("'=1+1")
    '=1+1'
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


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


def carried(path: str | Path) -> str:
    """Return what stands for a file where the file may be missing: its name, then its text.

    :func:`read_text` takes it for the file, :func:`name_of` for its name.
    """
    file = Path(path)
    return f"{file.resolve().parent.name}/{file.name}\n{read_text(file, 'a file')}"


def name_of(path: str | Path) -> str:
    r"""Return the name of a file, or of one that is :func:`carried`.

    >>> name_of("my/config.json"), name_of("my/config.json\n{}")
    ('my/config.json', 'my/config.json')
    """
    return str(path).partition("\n")[0].strip()


def read_text(path: str | Path, what: str, limit_bytes: int = LIMIT_BYTES) -> str:
    """Return the UTF-8 text of an input file, without its byte-order mark.

    `what` it should be goes into the messages, e.g. ``"a setup.toml"``. Raises :class:`InputError`
    if it cannot be opened, :class:`FormatError` if it is a directory, empty, longer than
    `limit_bytes`, binary or not UTF-8.
    """
    if "\n" in str(path):
        return str(path).partition("\n")[2]
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
        why = f"is not UTF-8 text (byte {error.start})"
        raise FormatError(path, why, f"give {what}, saved as UTF-8") from None
    if "\0" in text:
        raise FormatError(path, "is a binary file", f"give {what}")
    if _CONTROL.search(text):
        raise FormatError(path, "holds control characters", f"give {what} without them")
    if not text.strip():
        raise FormatError(path, "is empty", f"give {what}")
    return text


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Return the content of a TOML file; refuses what :func:`read_text`, :func:`parse_toml` do."""
    return parse_toml(read_text(path, what), name_of(path))


def parse_toml(text: str, origin: str | Path) -> dict[str, Any]:
    """Return the content of a TOML text; a :class:`FormatError` says what is wrong in it."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        reason = "a number has too many digits" if "digits" in reason else reason
        raise FormatError(origin, f"is not TOML: {reason}", "correct that line") from None
    check_tree(content, origin)
    return content


def check_schema(found: object, schema: str, origin: object, remedy: str) -> None:
    """Refuse a document of another schema; one of a later number asks for a newer specsim."""
    name, _, number = schema.partition("/")
    later = re.fullmatch(rf"{re.escape(name)}/([0-9]{{1,9}})", str(found))
    if later and int(later[1]) > int(number):
        why = "was written by a newer specsim"
        raise FormatError(f"{origin}: schema {found}", why, "upgrade specsim")
    if found != schema:
        said = f"{origin}: schema {shown(found)}" if found is not None else f"{origin}: schema"
        why = "is missing" if found is None else f"is not {schema}"
        raise FormatError(said, why, remedy)


def check_tree(content: Any, origin: str | Path, largest: float = LARGEST) -> None:
    """Refuse nesting too deep, or a number beyond `largest`, anywhere in TOML or JSON."""
    level = [content]
    for _ in range(MOST_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value, *value.values()]
            elif isinstance(value, list):
                below += value
            elif isinstance(value, int | float) and largest < abs(value) < math.inf:
                where = f"{origin}: {shown(value)}"
                raise FormatError(where, "is beyond anything real", "correct that number")
        level = below
        if not level:
            return
    raise FormatError(origin, "is nested too deep", "give the file that was meant")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text as :func:`write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all: through a temporary one beside it, which is renamed.

    A link is followed, and the mode of a file that stands there is kept; what is no file, such as
    a pipe or /dev/null, is written into. Raises :class:`InputError` if the folder does not exist or
    cannot be written to.
    """
    import tempfile  # few commands write

    temporary, there = "", None
    try:
        with contextlib.suppress(FileNotFoundError):
            there = path.stat()
        if there is not None and not stat.S_ISREG(there.st_mode):
            with path.open("wb") as file:
                file.write(content)
            return
        if there is not None and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        target = Path(os.path.realpath(path))
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".specsim.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        if there is not None:
            with contextlib.suppress(OSError, AttributeError):  # not ours to give, or Windows
                os.chown(temporary, there.st_uid, there.st_gid)
        os.chmod(temporary, 0o666 & ~mask if there is None else stat.S_IMODE(there.st_mode))
        os.replace(temporary, target)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        reason = f"cannot be written ({error.strerror})"
        raise InputError(str(path), reason, "choose another path") from error
