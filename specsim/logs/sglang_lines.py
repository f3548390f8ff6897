"""Grammar of SGLang's ``Decode batch`` line, 0.4.0 to 0.5.23.

A line is parsed strictly here, once per layout; further lines of the same layout are read many at
a time (``sglang_matrix``). What does not fit the grammar is not guessed at: it is reported as
unread, with a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

MARK = b"Decode batch"

RUNNING, TOKENS, QUEUE = b"#running-req", b"#token", b"#queue-req"
ACCEPT_LEN, ACCEPT_RATE = b"accept len", b"accept rate"
GRAPH, THROUGHPUT = b"cuda graph", b"gen throughput (token/s)"
TOKEN_COUNTS = (b"#token", b"#full token")
USAGES = (b"token usage", b"full token usage")
LARGEST = b"largest-len"

_INT = rb"\d{1,9}"
_TWO_DECIMALS = rb"\d{1,9}\.\d\d"
_BOOL = rb"True|False"
_ANY = rb"-?\d{1,15}(?:\.\d{1,15})?%?|True|False|None|nan|inf|[A-Za-z_]{1,32}"

VALUES: dict[bytes, bytes] = {
    RUNNING: _INT,
    TOKENS: _INT,
    b"#full token": _INT,
    b"#swa token": _INT,
    b"mamba num": _INT,
    b"token usage": _TWO_DECIMALS,
    b"full token usage": _TWO_DECIMALS,
    b"swa token usage": _TWO_DECIMALS,
    b"mamba usage": _TWO_DECIMALS,
    ACCEPT_LEN: _TWO_DECIMALS,
    ACCEPT_RATE: _TWO_DECIMALS,
    b"pre-allocated usage": _TWO_DECIMALS,
    b"#prealloc-req": _INT,
    b"#transfer-req": _INT,
    b"#host-receive-req": _INT,
    b"#retracted-req": _INT,
    GRAPH: _BOOL,
    THROUGHPUT: _TWO_DECIMALS,
    LARGEST: _INT,
    QUEUE: _INT,
    b"cap len": _ANY,
    b"block accept len": _ANY,
    b"fwd occupancy": _ANY,
}
"""Known fields and their values; others (TFLOPS and the like) are passed over if well formed."""

RESEMBLANCE = 0.75
"""Share of common characters from which on an unknown key is a damaged known one."""
CONDITIONAL = frozenset(
    (b"#host-receive-req", b"#retracted-req", b"cap len", b"block accept len", b"fwd occupancy")
)
"""Fields that one server prints in some lines only."""

_ANSI = re.compile(rb"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_HEAD = re.compile(rb"Decode batch(?: ?\[\d{1,9}\]| \d{1,9})?([.,]) ")
_KEY = re.compile(rb"#?[A-Za-z][\w #./()%-]{0,60}")
_COUNT = re.compile(rb"\d{1,9}")
_STAMP = re.compile(rb"(?<!\d)(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?!\d)")
_RANK = re.compile(rb" (DP|TP|PP|EP)(\d{1,5})(?=[ \]])")

Row = tuple[bytes, ...]
"""Values as printed, empty where the line has no such field; positions are those below."""
RUNNING_AT, TOKENS_AT, USAGE_AT, ACCEPT_AT, RATE_AT, GRAPH_AT, TPS_AT, QUEUE_AT = range(8)

Ranks = tuple[int | None, ...]
"""Data-, tensor-, pipeline- and expert-parallel rank of a line; None where it names none."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What tells one server's lines from another's: versions and speculation differ in it."""

    comma: bool
    trailing_comma: bool
    keys: frozenset[bytes]

    def like(self, other: Signature) -> bool:
        """Equal, but for a trailing comma, which a paste may lose."""
        return self.comma == other.comma and self.keys == other.keys

    @property
    def accept_length(self) -> bool:
        """Whether the lines print an accept length: the server speculates."""
        return ACCEPT_LEN in self.keys

    @property
    def accept_rate(self) -> bool:
        """Whether the lines print an accept rate."""
        return ACCEPT_RATE in self.keys

    @property
    def cuda_graph(self) -> bool:
        """Whether the lines tell if a CUDA graph ran."""
        return GRAPH in self.keys

    @property
    def largest_len(self) -> bool:
        """Whether the lines are of 0.4.3."""
        return LARGEST in self.keys


Kind = Literal["int", "two_decimals", "bool", "any"]

_KINDS: dict[bytes, Kind] = {_INT: "int", _TWO_DECIMALS: "two_decimals", _BOOL: "bool", _ANY: "any"}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a layout: the text before its value, and where the value goes.

    `column` is an index into a row; None for a field that is passed over.
    """

    literal: bytes
    kind: Kind
    column: int | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a line in their order, from ``Decode batch`` on."""

    fields: tuple[Field, ...]
    signature: Signature


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """One decode line that was read, and the layout that further lines may share."""

    prefix: bytes
    row: Row
    signature: Signature
    layout: Layout


def parse_decode_line(line: bytes) -> DecodeLine | str:
    """Read one line that contains ``Decode batch``.

    Parameters
    ----------
    line
        The line with its end. A line without one may have been cut: its last number is not
        trusted.

    Returns
    -------
    DecodeLine or str
        What the line says, or why it could not be read.
    """
    text, ended = _bare(line)
    if text.count(MARK) != 1:
        return "two lines written into one"
    start = text.index(MARK)
    head = _HEAD.match(text, start)
    if head is None:
        return "damaged field" if ended else "truncated"
    body, trailing = text[head.end() :], text.endswith(b",")
    fields = _fields(body.removesuffix(b","))
    if isinstance(fields, str):
        return fields
    fault = _fault(fields)
    if fault:
        return fault
    values = {**fields, QUEUE: fields[QUEUE] if ended or trailing else b""}
    keys = frozenset(fields.keys() & VALUES.keys() - CONDITIONAL)
    signature = Signature(head[1] == b",", trailing, keys)
    row = tuple(next((values[k] for k in keys if k in values), b"") for keys in _COLUMNS)
    return DecodeLine(text[:start], row, signature, _layout(head[0], list(fields), signature))


_COLUMNS: tuple[tuple[bytes, ...], ...] = (
    (RUNNING,),
    TOKEN_COUNTS,
    USAGES,
    (ACCEPT_LEN,),
    (ACCEPT_RATE,),
    (GRAPH,),
    (THROUGHPUT,),
    (QUEUE,),
)


def parse_prefix(prefix: bytes) -> tuple[bytes, bytes]:
    """Return (time stamp, ranks) of what stands before the message; either may be empty.

    >>> parse_prefix(b"[2026-01-01 00:00:00 DP1 TP4] ")
    (b'2026-01-01 00:00:00', b' DP1 TP4] ')
    """
    start = prefix.rfind(b"[20")
    if start >= 0 and prefix[start + 20 : start + 21] in (b" ", b"]"):
        return prefix[start + 1 : start + 20], prefix[start + 20 :]
    stamps = _STAMP.findall(prefix)
    return (b" ".join(stamps[-1]) if stamps else b""), b"".join(_rank_texts(prefix))


def parse_ranks(text: bytes) -> Ranks:
    """Return the (DP, TP, PP, EP) ranks named in a prefix.

    >>> parse_ranks(b" DP1 TP4] ")
    (1, 4, None, None)
    """
    found = {kind: int(number) for kind, number in _RANK.findall(text)}
    return tuple(found.get(kind) for kind in (b"DP", b"TP", b"PP", b"EP"))


def _rank_texts(prefix: bytes) -> list[bytes]:
    return [b" " + kind + number + b"]" for kind, number in _RANK.findall(prefix)]


def _bare(line: bytes) -> tuple[bytes, bool]:
    """Strip colours, quotes and line ends; tell whether the line was complete."""
    ended = line.endswith((b"\n", b"\r"))
    text = _ANSI.sub(b"", line).replace(b"|END", b"")
    start = text.find(MARK)
    if b'"' in text[:start]:  # the message of a structured (JSON) log
        close = text.find(b'"', start)
        if close > 0:
            text, ended = text[:close].removesuffix(b"\\n"), True
    return text.rstrip(b"\r\n`\"' "), ended


def _fields(text: bytes) -> dict[bytes, bytes] | str:
    fields: dict[bytes, bytes] = {}
    parts = text.split(b", ")
    for part in parts:
        key, colon, value = part.partition(b": ")
        if not colon or not re.fullmatch(VALUES.get(key, _ANY), value):
            return "truncated" if part is parts[-1] and QUEUE not in fields else "damaged field"
        if key in fields:
            return "two lines written into one"
        if key not in VALUES and (not _KEY.fullmatch(key) or _misspelt(key, text)):
            return "damaged field"
        fields[key] = value
    return fields


def _fault(fields: dict[bytes, bytes]) -> str | None:
    """Why well-formed fields make no measurement."""
    if QUEUE not in fields:
        return "truncated"
    if RUNNING not in fields or THROUGHPUT not in fields:
        return "a field is missing"
    return None


def _misspelt(key: bytes, text: bytes) -> bool:
    """Whether an unknown key looks like a damaged known one that the line lacks."""
    return any(known + b": " not in text for known in _resembled(key))


@lru_cache(1024)
def _resembled(key: bytes) -> tuple[bytes, ...]:
    """Known keys that an unknown one resembles."""
    spelt = key.decode("latin-1")
    return tuple(
        known
        for known in VALUES
        if SequenceMatcher(None, spelt, known.decode()).ratio() > RESEMBLANCE
    )


def _layout(head: bytes, keys: list[bytes], signature: Signature) -> Layout:
    """Describe lines with these fields in this order; a count of iterations is passed over."""
    fields: list[Field] = []
    counted = _COUNT.search(head)
    if counted:
        fields.append(Field(head[: counted.start()], "int", None))
    literal = head[counted.end() :] if counted else head
    for key in keys:
        column = next((i for i, names in enumerate(_COLUMNS) if key in names), None)
        fields.append(Field(literal + key + b": ", _KINDS[VALUES.get(key, _ANY)], column))
        literal = b", "
    return Layout(tuple(fields), signature)
