"""Launch arguments of the engines: one table to read commands and logs by, and to write flags.

``flags.csv`` has a row for each argument: what it sets in specsim's words (the keys of a log's
settings), how its value is written, the releases that have it, and all its names: flags, and fields
as a configuration file, JSON or a log spells them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from specsim.engine.rules import parse_version, rows
from specsim.setting import algorithm_name, chain_settings

NEUTRAL, UNMODELLED = "neutral", "unmodelled"
"""Settings of arguments that bear on nothing here, and of those whose effect is not modelled."""

_NUMBER = re.compile(
    r"(-?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:e-?\d{1,3})?)([kKmMgG]?)", re.IGNORECASE
)
GGUF_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+[-_]gguf(?::[\w.-]+)?", re.IGNORECASE)
"""A repository that llama.cpp fetches files from."""
_SCALE = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}


@dataclass(frozen=True, slots=True)
class Flag:
    """An argument of an engine: a row of the table."""

    setting: str  # what it sets
    # number, text, list, largest (of a list), json, file, switch, optional (value or none), repo
    # (of GGUF files), =CONSTANT, is:VALUE (whether it is that), map:THEIRS=OURS;...
    kind: str
    since: str  # first release that has it, as far as read; empty for all
    before: str  # first release without it; empty for none
    names: tuple[str, ...]

    @property
    def takes_value(self) -> bool:
        """Whether a value follows on the command line."""
        return self.kind != "switch" and self.kind[0] != "="

    def of_release(self, version: str) -> bool:
        """Whether a release has it."""
        parsed = parse_version(version)
        return parsed.since(self.since or "0") and not (self.before and parsed.since(self.before))

    def says(self, value: object) -> bool:
        """Whether a command can say a value by it."""
        if self.kind == "repo":
            return GGUF_REPOSITORY.fullmatch(str(value)) is not None
        return self.kind[0] != "=" or self.kind == f"={value}"

    @property
    def pairs(self) -> dict[str, str]:
        """What stands for what in a ``map``."""
        return dict(pair.split("=") for pair in self.kind[4:].split(";"))

    def _other(self, text: str) -> str | None:
        """Return the name of an algorithm that is not in the map: MTP of a model, or its own."""
        if self.setting != "algorithm":
            return None
        return "MTP" if text.endswith("mtp") else algorithm_name(text)

    def value(self, said: object) -> object:
        """Return a value as specsim holds it; None where it says nothing or is no such value."""
        text = str(said).lower()
        if self.kind[:3] == "is:":
            return True if text == self.kind[3:] else None
        if said in (None, "", "None", "null"):
            return None
        if self.kind[:4] == "map:":
            return self.pairs.get(text.split(",")[0]) or self._other(text)
        if self.kind == "switch":
            return text not in ("false", "0", "off")
        if self.kind[0] == "=":
            constant = {"true": True, "false": False}.get(self.kind[1:], self.kind[1:])
            return constant if text != "false" else None
        if self.kind == "number":
            return said if isinstance(said, int | float) else _number(str(said))
        if self.kind in ("list", "largest"):
            words = said if isinstance(said, list | tuple) else re.split(r"[\s,\[\]()]+", str(said))
            listed = [n for w in words if (n := w if isinstance(w, list) else _number(str(w)))]
            return listed if self.kind == "list" else max(listed, default=None)
        return said if isinstance(said, str | Mapping) else str(said)


def _number(text: str) -> int | float | None:
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    value = float(found[1]) * _SCALE[found[2]]
    return int(value) if value.is_integer() else value


@cache
def flags_of(engine: str) -> tuple[Flag, ...]:
    """Return the arguments of an engine, or of a dialect that has rows of its own."""
    return tuple(
        Flag(row["setting"], row["kind"], row["since"], row["before"], tuple(names.split()))
        for row in rows("flags", engine)
        if (names := row["names"])
    )


def plain(name: str) -> str:
    """Return a name as it is looked up: engines take dashes for underscores and back."""
    return name.lstrip("-").replace("_", "-")


@cache
def _by_name(engine: str) -> dict[str, Flag]:
    found: dict[str, Flag] = {}
    for flag in flags_of(engine):
        for name in flag.names:
            found.setdefault(plain(name), flag)
    return found


def flag_named(engine: str, name: str) -> Flag | None:
    """Return the argument of that name, or the only one that begins so, as argparse does."""
    table, wanted = _by_name(engine), plain(name)
    if wanted in table or not name.startswith("--") or len(wanted) < 4:
        return table.get(wanted)
    begun = {id(flag): flag for key, flag in table.items() if key.startswith(wanted)}
    return next(iter(begun.values())) if len(begun) == 1 else None


def flat(
    engine: str, arguments: Mapping[str, object], head: str = ""
) -> Iterator[tuple[str, object]]:
    """Yield arguments, those in tables of arguments by dotted names."""
    table = _by_name(engine)
    for key, value in arguments.items():
        name = f"{head}{key}"
        if isinstance(value, Mapping) and (
            plain(name) not in table or any(k.startswith(f"{plain(name)}.") for k in table)
        ):
            yield from flat(engine, value, f"{name}.")
        else:
            yield name, value


_UNSAID = ("", "none", "null", "auto", "true", "false")
_EXACT = ("number", "map", "list", "largest")  # kinds that not every text is a value of
_COUNTS = ("topk", "num_steps", "num_draft_tokens", "chain")


def said_by(
    engine: str, arguments: Mapping[str, object]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return what arguments say by setting, and which of them are not known.

    Parameters
    ----------
    engine
        Or a dialect that has rows of its own in ``flags.csv``.
    arguments
        By flag or field name, tables of arguments nested; where several say the same, the first
        that says anything counts.
    """
    said: dict[str, object] = {}
    unknown: list[str] = []
    for name, text in flat(engine, arguments):
        flag = flag_named(engine, name)
        if flag is None:
            unknown.append(name)
            continue
        value = flag.value(text)
        given = str(text).lower() not in _UNSAID or (text == "" and name[:1] == "-")
        odd = given and value is None and flag.kind.partition(":")[0] in _EXACT
        if odd or (flag.setting in _COUNTS and isinstance(value, int | float) and value < 0):
            unknown.append(f"{name} {text or 'without a value'}")
            continue
        if flag.setting == UNMODELLED and (value is True or value not in (None, False, 0, 1)):
            listed = said.setdefault(UNMODELLED, [])
            assert isinstance(listed, list)
            listed.append(flag.names[0])
        elif flag.setting not in (NEUTRAL, UNMODELLED) and value is not None:
            said.setdefault(flag.setting, value)
    chain = said.pop("chain", None)
    if isinstance(chain, int):
        said = {**chain_settings(chain), **said}
    return said, tuple(dict.fromkeys(unknown))


def flag_words(engine: str, version: str, setting: str, value: object = None) -> list[str]:
    """Return the words that set something in that release; none where `value` is None.

    >>> flag_words("sglang", "0.5.21", "cuda_graph_max_bs", 64)
    ['--cuda-graph-max-bs-decode', '64']
    """
    flags = [f for f in flags_of(engine) if f.setting == setting and f.names[0].startswith("-")]
    if value is None or not flags:
        return []
    able = [f for f in flags if f.says(value)] or flags
    flag = next((f for f in able if f.of_release(version)), able[-1])
    if not flag.takes_value:
        return [flag.names[0]]
    theirs = {ours: name for name, ours in reversed(flag.pairs.items())} if ":" in flag.kind else {}
    return [flag.names[0], theirs.get(str(value), str(value))]


def flags_for(engine: str, version: str, said: Mapping[str, object]) -> list[str]:
    """Return the words that set several things."""
    return [w for name, value in said.items() for w in flag_words(engine, version, name, value)]
