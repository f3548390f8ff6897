"""What pasting does to a log: labels, fences and comments between two runs, wrapped lines."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from specsim.errors import InputError
from specsim.logs.formats import listed, pattern, patterns
from specsim.setting import NO_SPECULATION

_TEXT = patterns("paste")
_LOAD = re.compile(listed("paste", "load"), re.IGNORECASE)
_LINE_STARTS = frozenset(bytes([c]) for c in b"[0123456789")
_LONGEST = 100


def label_of(line: bytes) -> str:
    r"""Return the label that a line is; empty if it is none.

    >>> label_of(b"with eagle:\n"), label_of(b"[2026-01-01] with eagle")
    ('with eagle', '')
    """
    if line[:1] in _LINE_STARTS or len(line) > _LONGEST or line.lstrip()[:2] == b"--":
        return ""  # a flag of a command is none
    found = _TEXT["label"].fullmatch(line)
    return found[1].decode("utf-8", "replace").strip() if found else ""


@dataclass(slots=True)
class Headings:
    r"""The headings above a place of a text: markdown's, bold lines, ``== titles ==``.

    >>> above = Headings()
    >>> for line in (b"# Results\n", b"## org/m, FP8\n", b"### concurrency 8\n"):
    ...     _ = above.read(line)
    >>> above.label
    'org/m, FP8'
    """

    texts: dict[int, str] = field(default_factory=dict)  # by level
    fenced: bool = False

    def read(self, line: bytes) -> bool:
        """Read a line; return whether it is a heading."""
        if line.lstrip()[:3] == b"```":
            self.fenced = not self.fenced
        found = _TEXT["heading"].fullmatch(line) if len(line) < 2 * _LONGEST else None
        if found is None or (found["level"] and self.fenced) or b"://" in line:
            return False  # a comment of a shell, a link
        if found["level"] == b"#" and b": " in line:  # a comment above a paste
            return False
        level = len(found["level"] or b"#######")
        self.texts = {of: text for of, text in self.texts.items() if of < level}
        raw = found["text"] or found["strong"] or found["ruled"] or found["colon"]
        self.texts[level] = raw.decode("utf-8", "replace").strip(" *_`:")
        return True

    @property
    def label(self) -> str:
        """Parts that may name a server; of the title of the whole page only if it is alone."""
        split = ((level, part.strip()) for level, t in self.texts.items() for part in t.split(","))
        named = [(level, part) for level, part in split if part and not _LOAD.fullmatch(part)]
        return ", ".join(
            [part for level, part in named if level > 1] or [part for _, part in named]
        )


def separates(line: bytes) -> bool:
    """Whether a line may stand between two runs: a comment or a fence, not the rest of a line."""
    return (line[:1] == b"#" and not _TEXT["torn"].match(line)) or line.lstrip()[:3] == b"```"


MAY_LAUNCH = pattern("|".join(listed("formats", "launch", "mark")))
VERSION = "engine_version"  # among settings of a launch: the release that an image names
MOST_HEADING = 60  # bytes of a line that may name a server: a longer one is a comment
MOST_SECTIONS, MOST_TEXT = 64, 1 << 15  # of a paste's text, which is a person's: more is none


@dataclass(slots=True)
class Section:
    """Text under a label, and the launches that it holds."""

    label: str
    text: bytes = b""
    recent: bool = True  # no measurement came since
    used: bool = False


@dataclass(slots=True)
class Above:
    r"""What a paste says above measurements of one engine: whose they are, how it was launched.

    >>> above = Above("sglang")
    >>> above.read(b"## with eagle\n"), above.label
    (True, 'with eagle')
    """

    engine: str
    pending: bool = False  # something that may separate two servers came since a measurement
    sections: list[Section] = field(default_factory=lambda: [Section("")])
    _headings: Headings = field(default_factory=Headings)
    _label: str = ""

    @property
    def label(self) -> str:
        """Headings and the label below them."""
        return ", ".join(filter(None, (self._headings.label, self._label)))

    def read(self, line: bytes, drain: Callable[[], None] | None = None) -> bool:
        """Take in a line that is no measurement; return whether another server may begin.

        Measurements that wait to be read are of the server before: then `drain` reads them first.
        """
        if len(line) > MOST_TEXT or _TEXT["logged"].match(line):
            return False
        label = label_of(line)
        named = label or separates(line) or _TEXT["heading"].fullmatch(line[: 2 * _LONGEST])
        begins = bool(named or MAY_LAUNCH.search(line))
        if begins and drain is not None:
            drain()
        heading = len(line) <= MOST_HEADING and self._headings.read(line)
        if heading or label:
            self._label = "" if heading else label
            self.sections = [*self.sections[-MOST_SECTIONS:], Section(self.label)]
        section = self.sections[-1]
        if not section.recent:
            section = Section(section.label)
            self.sections.append(section)
        section.text = (section.text + line)[:MOST_TEXT]
        self.pending |= begins
        return begins

    def launch(self) -> Mapping[str, object]:
        """Return how the server of the measurements that come was launched, as far as it is said.

        By the only command since the last ones; of several, or of earlier ones, by the one under
        the same label. No speculation is for the log to say: a command may be cut.
        """
        recent = [s for s in self.sections if s.recent]
        for section in recent:
            section.recent = False
        self.pending = False
        named = [s for s in self.sections if s.label == self.label and s.label and not s.used]
        for sections in ([s for s in recent if s in named], recent, named):
            found = [(s, said) for s in sections for said in self._launches(s)]
            if len(found) == 1:
                found[0][0].used = True
                return found[0][1]
        return {}

    def left(self) -> Mapping[str, object]:
        """Return the only launch that no measurement has taken, as one that is told below."""
        found = [said for s in self.sections if not s.used for said in self._launches(s)]
        return found[0] if len(found) == 1 else {}

    def _launches(self, section: Section) -> list[dict[str, object]]:
        if not MAY_LAUNCH.search(section.text):
            return []
        from specsim.engine.command import launches_in

        try:
            found = list(launches_in(section.text.decode("utf-8", "replace")))
        except InputError:
            return []
        said = []
        for launch in (of for of in found if of.engine == self.engine):
            settings = {**launch.settings, **({VERSION: launch.version} if launch.version else {})}
            none = NO_SPECULATION if settings.get("algorithm") == "none" else {}
            said.append({k: v for k, v in settings.items() if k not in none})  # the log says it
        return said


MARGIN = _TEXT["margin"]  # before each line of a quotation, or of the log of several services


def margins(head: bytes) -> set[bytes]:
    r"""Return whose lines a text is of, by what stands before each; nothing for its author's own.

    >>> margins(b"> a\n> b\n"), margins(b"[pod/a/x] 1\n[pod/a/x] 2\n"), margins(b"> a\nb\n")
    ({b''}, {b'a/x'}, set())
    """
    found = [MARGIN.match(line) for line in head.splitlines() if line.strip()]
    whose = {m[1] or m[2] or b"" for m in found if m}
    return whose if all(found) and len(whose) <= len(found) / 2 else set()


_RECORDS = tuple(map(pattern, listed("paste", "records")))  # how lines of a log begin
LEAST_WIDTH, MOST_WIDTH = 40, 400
AT_ONCE = 4096
STRIPPED = 12  # blanks at the end of a line that a copy may have lost


def wrapping(head: bytes) -> tuple[re.Pattern[bytes], int] | None:
    r"""Return how records begin and how wide the lines are, of a text that was wrapped.

    >>> wrapping(b"[2026-01-01 00:00:00] Decode batch, #runni\nng-req: 1, #token: 7\n")[1]
    42
    """
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")]
    record = max(_RECORDS, key=lambda begins: sum(map(bool, map(begins.match, lines))))
    goes_on = [
        len(line)
        for line, after in pairwise(lines)
        if record.match(line) and _continues(after, record) and not _TEXT["complete"].search(line)
    ]
    if not goes_on:
        return None
    width = max(goes_on)
    whole = sum(1 for line in lines if record.match(line) and len(line) >= width - STRIPPED)
    cut = Counter(length >= width - STRIPPED for length in goes_on)[True]
    fits = LEAST_WIDTH <= width <= MOST_WIDTH and max(map(len, lines)) <= width
    return (record, width) if fits and cut >= 0.6 * whole else None


def unwrapped(lines: Iterable[bytes], record: re.Pattern[bytes], width: int) -> Iterator[bytes]:
    """Join lines that were wrapped; yields them many at a time."""
    done: list[bytes] = []
    last = 0  # length of the line before
    for line in lines:
        text = line.rstrip(b"\r\n")
        if done and last >= width - STRIPPED and _continues(text, record):
            begun = done[-1].rstrip(b"\r\n")
            lost = width - last or (begun[-1:] in b",:" and text[:1] != b" ")
            done[-1] = begun + b" " * lost + line
        else:
            if len(done) >= AT_ONCE:
                yield b"".join(done)
                done = []
            done.append(line)
        last = len(text)
    yield b"".join(done)


def _continues(line: bytes, record: re.Pattern[bytes]) -> bool:
    """Whether a line may be the rest of one."""
    return bool(line.strip()) and not (record.match(line) or label_of(line) or separates(line))
