"""Grammar of SGLang's ``Decode batch`` and ``Prefill batch`` lines, 0.4.0 to 0.5.23.

A decode line is parsed strictly here, once per layout; from its fields one regular expression is
made, with which further lines of the same layout are read. What does not fit the grammar is not
guessed at: it is reported as unread, with a reason.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal, NamedTuple, Self

import numpy as np

from specsim.arrays import Flags, Floats
from specsim.logs.columns import Rank
from specsim.logs.diagnose import finding, words
from specsim.logs.entry import Diagnosis
from specsim.logs.formats import listed, pattern, patterns
from specsim.logs.unread import DAMAGED, TRUNCATED, TWO_IN_ONE, Unread, check

MARK = b"Decode batch"

_PARTS = patterns("sglang")
_VALUES = {name: text.encode() for name, text in listed("sglang", "values").items()}


class Field(NamedTuple):
    """A field that some version prints."""

    value: bytes  # regular expression
    column: str = ""  # in which its value goes; of those that are passed over, none
    sometimes: bool = False  # one server prints it in some lines only


FIELDS = {
    key.encode(): Field(**{**row, "value": _VALUES[row["value"]]})
    for key, row in listed("sglang", "fields").items()
}
"""Known fields; others (TFLOPS and the like) are passed over if they are well formed."""

COLUMNS = ("running", "tokens", "usage", "accept", "rate", "graph", "tps", "queue")
"""What the fields say."""

Printed = dict[str, Sequence[bytes]]
"""Texts of lines by column, `prefix` among them; empty where a line has no such field."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The lines of some versions: what tells one server's lines from another's."""

    comma: bool  # "Decode batch," rather than "Decode batch."
    trailing_comma: bool
    fields: frozenset[bytes]  # known keys, without those that are there sometimes
    pattern: re.Pattern[bytes]  # of a whole line; its groups are columns

    def read(self, lines: Sequence[bytes]) -> Printed | None:
        """Read lines that are all of this layout; None if any is not."""
        found = self.pattern.findall(b"".join(lines))
        if len(found) != len(lines):
            return None
        texts = list(zip(*found, strict=True)) if found else [()] * self.pattern.groups
        return {name: texts[at - 1] for name, at in self.pattern.groupindex.items()}

    def like(self, other: Self) -> bool:
        """Equal, but for a trailing comma, which a paste may lose."""
        return self.comma == other.comma and self.fields == other.fields

    def prints(self, column: str) -> bool:
        """Whether the lines have a field for a column."""
        return any(FIELDS[key].column == column for key in self.fields)


_GENERATIONS = listed("sglang", "generations")
NEWEST: str = _GENERATIONS[-1]["versions"]


def generation(layout: Layout) -> str:
    """Versions that print decode lines of this layout, as ``first-last``."""
    first: str = next(
        g["versions"]
        for g in _GENERATIONS
        if g["comma"] == layout.comma
        and g.get("trailing_comma") in (None, layout.trailing_comma)
        and all(map(layout.prints, g.get("prints", ())))
        and not any(map(layout.prints, g.get("lacks", ())))
    )
    return first


_COUNT = re.compile(_VALUES["int"])
_SPEED = b"gen throughput (token/s)"
RESEMBLANCE = 0.75  # share of common characters from which on an unknown key is a damaged known one


def parse_decode_line(line: bytes) -> tuple[Printed, Layout]:
    """Read one line that contains ``Decode batch``: what it says, and the layout of its like.

    A line without an end may have been cut: its last number is not trusted. Raises
    :class:`Unread` if it could not be read, saying why.
    """
    text, ended = _bare(line)
    check(text.count(MARK) == 1, TWO_IN_ONE)
    start = text.index(MARK)
    head = _PARTS["head"].match(text, start)
    if head is None:
        raise Unread(DAMAGED if ended else TRUNCATED)
    body, trailing = text[head.end() :], text.endswith(b",")
    keys = _keys(body.removesuffix(b","))
    check(b"#queue-req" in keys or _SPEED in keys, TRUNCATED)
    check(b"#running-req" in keys and _SPEED in keys, "a field is missing")
    layout = _layout(_COUNT.sub(b"0", head[0]), keys, trailing)
    printed = layout.read([text + b"\n"])
    if printed is None:
        raise Unread(DAMAGED)
    return (printed if ended or trailing else {**printed, "queue": (b"",)}), layout


def _bare(line: bytes) -> tuple[bytes, bool]:
    """Strip colours, quotes and line ends; tell whether the line was complete."""
    ended = line.endswith((b"\n", b"\r"))
    text = _PARTS["colour"].sub(b"", line).replace(b"|END", b"")
    start = text.find(MARK)
    if b'"' in text[:start]:  # the message of a structured (JSON) log
        close = text.find(b'"', start)
        if close > 0:
            text, ended = text[:close].removesuffix(b"\\n"), True
    return text.rstrip(b"\r\n`\"'| "), ended


def _keys(text: bytes) -> tuple[bytes, ...]:
    """Keys of fields that are all well formed."""
    keys: list[bytes] = []
    parts = _PARTS["comma"].split(text) if b"[" in text else text.split(b", ")
    for part in parts:
        key, colon, value = part.partition(b": ")
        known = FIELDS.get(key, Field(_VALUES["any"]))
        if not colon or not re.fullmatch(known.value, value):
            cut = part is parts[-1] and b"#queue-req" not in keys
            raise Unread(TRUNCATED if cut else DAMAGED)
        check(key not in keys, TWO_IN_ONE)
        if key not in FIELDS:  # nor a damaged known one that the line lacks
            lacked = any(known + b": " not in text for known in _resembled(key))
            check(_PARTS["key"].fullmatch(key) and not lacked, DAMAGED)
        keys.append(key)
    return tuple(keys)


@lru_cache(1024)
def _resembled(key: bytes) -> tuple[bytes, ...]:
    """Known keys that an unknown one resembles."""
    spelt = key.decode("latin-1")
    return tuple(
        known
        for known in FIELDS
        if SequenceMatcher(None, spelt, known.decode()).ratio() > RESEMBLANCE
    )


@lru_cache(256)
def _layout(head: bytes, keys: Sequence[bytes], trailing: bool) -> Layout:
    """Describe lines with these fields in this order; a 0 in the head is a count of iterations."""
    parts, left = [], [*COLUMNS]
    for key in keys:
        field = FIELDS.get(key, Field(_VALUES["any"]))
        group = b"?:"
        if field.column in left:
            left.remove(field.column)
            group = b"?P<%s>" % field.column.encode()
        parts.append(re.escape(key) + b": (" + group + field.value + b")")
    absent = b"".join(b"(?P<%s>)" % column.encode() for column in left)
    # The group that may not be gone back into ends at the first mark of a line.
    start = rb"(?m:^)(?>(?P<prefix>[^\n]*?)Decode batch)"
    start += re.escape(head[len(MARK) :]).replace(b"0", _COUNT.pattern)
    end = (b"," if trailing else b"") + rb" ?\r?\n"
    return Layout(
        comma=head.endswith(b", "),
        trailing_comma=trailing,
        fields=frozenset(key for key in keys if key in FIELDS and not FIELDS[key].sometimes),
        pattern=re.compile(start + b", ".join(parts) + absent + end),
    )


def parse_prefix(prefix: bytes) -> tuple[bytes, bytes]:
    """Return (time stamp, ranks) of what stands before the message; either may be empty.

    >>> parse_prefix(b"[2026-01-01 00:00:00 DP1 TP4] ")
    (b'2026-01-01 00:00:00', b' DP1 TP4] ')
    """
    start = prefix.rfind(b"[20")
    if start >= 0 and prefix[start + 20 : start + 21] in (b" ", b"]"):
        return prefix[start + 1 : start + 20], prefix[start + 20 :]
    stamps, ranks = _PARTS["stamp"].findall(prefix), _PARTS["rank"].findall(prefix)
    stamp = b" ".join(stamps[-1]) if stamps else b""
    return stamp, b"".join(b" " + kind + number + b"]" for kind, number in ranks)


def parse_ranks(text: bytes) -> tuple[Rank, tuple[Rank, ...]]:
    """Return the data-parallel rank, and the (TP, PP, EP) ranks, that a prefix names.

    >>> parse_ranks(b" DP1 TP4] ")
    (1, (4, None, None))
    """
    found = {kind: int(number) for kind, number in _PARTS["rank"].findall(text)}
    return found.get(b"DP"), tuple(found.get(kind) for kind in (b"TP", b"PP", b"EP"))


def prefill_versions(line: bytes) -> str:
    """Versions that print a prefill line like this; empty if it does not tell."""
    rows = listed("sglang", "prefills")
    return next((row["versions"] for row in rows if pattern(row["pattern"]).search(line)), "")


def implausible(printed: Mapping[str, Floats], most: float) -> dict[str, Flags]:
    """Return where columns hold numbers that no server prints, which make the line unread.

    `most` is the longest accept length that the setting can emit.
    """
    return {
        "accept length below 1": printed["accept"] < 1,
        "accept length above num_steps + 1": printed["accept"] > most,
        "accept rate above 1": printed["rate"] > 1,
        "token usage above 1": printed["usage"] > 1.01,
    }


Definition = Literal["with_bonus", "drafts_only"]
"""Of the accept rate: accept_len/n (0.5.3 to 0.5.10; 0.5.3 and 0.5.4 divide by num_steps + 1), or,
from 0.5.11, (accept_len - 1)/(n - 1)."""

_BONUS: dict[Definition, int] = {"with_bonus": 0, "drafts_only": 1}
"""Tokens that are taken off the length and off n."""
_CANDIDATES = np.arange(2, 65)
_HALF_STEP = 0.00501  # half a step of the printed numbers
_SAMPLE = 64
_CONSISTENT = 0.98


@dataclass(slots=True)
class AcceptRate:
    """Finds num_draft_tokens and the definition of the accept rate from printed pairs."""

    seen: int = 0  # lines looked at
    # Lines consistent with each candidate n, by definition.
    fits: dict[Definition, Floats] = field(
        default_factory=lambda: {name: np.zeros(len(_CANDIDATES)) for name in _BONUS}
    )

    def see(self, accept: Floats, rate: Floats) -> None:
        """Look at a few lines of a batch."""
        known = np.isfinite(accept) & np.isfinite(rate) & (rate > 0)
        length, printed = accept[known][:_SAMPLE, None], rate[known][:_SAMPLE, None]
        self.seen += len(length)
        for name, bonus in _BONUS.items():
            slots = _CANDIDATES - bonus
            # Both numbers are rounded, the length by half a step and the rate by another.
            near = np.abs((length - bonus) / slots - printed) <= _HALF_STEP * (1 + 1 / slots)
            self.fits[name] += near.sum(axis=0)

    def candidates(self, definition: Definition) -> list[int]:
        """Values of n with which nearly all lines agree."""
        agree = self.fits[definition] >= _CONSISTENT * self.seen
        return [int(n) for n in _CANDIDATES[agree]] if self.seen else []

    def definition(
        self, layout: Layout, num_draft_tokens: object, versions: str
    ) -> Definition | None:
        """Return the definition, if the versions (one, or a range) or the numbers decide it."""
        old = not layout.comma or layout.trailing_comma
        if old or versions.startswith(("0.5.9.", "0.5.10")) or versions == "0.5.9":
            return "with_bonus"
        if versions and versions != NEWEST:
            return "drafts_only"
        found = {d: self.candidates(d) for d in _BONUS}
        n = num_draft_tokens
        possible = [d for d, these in found.items() if (n in these if n is not None else these)]
        return possible[0] if len(possible) == 1 else None

    def num_draft_tokens(self, definition: Definition | None) -> int | None:
        """Return n if just one value agrees with all lines."""
        found = self.candidates(definition) if definition else []
        return found[0] if len(found) == 1 else None

    def told(self, layout: Layout, settings: Mapping[str, object], versions: str) -> Diagnosis:
        """Tell what the accept rate is, and what it implies."""
        n, inferred = settings.get("num_draft_tokens"), settings.get("inferred")
        definition = self.definition(layout, None if inferred else n, versions) or "either"
        of_steps = definition == "with_bonus" and not layout.comma
        formula = words("accept_rate_definition", "with_bonus_of_steps" if of_steps else definition)
        known = inferred and n is not None
        implied = words("accept_rate_definition", "implied", n=n) if known else ""
        return finding("accept_rate_definition", "sglang", formula=formula, implied=implied)
