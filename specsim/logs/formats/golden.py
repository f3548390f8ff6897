"""InferenceX's golden acceptance YAML: accept length by number of speculative tokens.

Only the small part of YAML that such files use is read: nested mappings by indentation, lists of
mappings, comments and scalars.
"""

from __future__ import annotations

import re
from collections import Counter

from specsim.logs.entry import LogEntry, LogRow, WindowCount
from specsim.logs.format import Format
from specsim.logs.settings import chain_settings
from specsim.logs.source import Source

_PAIR = re.compile(
    r"(?P<indent> *)(?:- )?(?P<key>[\w.\"' -]{1,64}):(?: +(?P<value>[^#]*?))? *(?: #.*)?"
)
_DAMAGED = re.compile(r" *[\"']?\d{1,2}[\"']?:")
_FLOW = re.compile(r"(\d{1,2})\"?'?: *(\d{1,2}\.\d{1,6})(?=[,} ])")
_DEPTH = re.compile(r"(?:num_speculative_tokens|k|n|depth|mtp|draft)?[ _-]?(\d{1,2})")
_DEPTH_KEYS = ("num_speculative_tokens", "speculative_tokens", "k", "depth")
_LENGTH_KEYS = ("accept_length", "acceptance_length", "mean_acceptance_length", "al", "golden_al")
_LENGTH = re.compile(r"\d{1,2}\.\d{1,6}")
_DEEPEST = 64


def parse(source: Source, samples: int) -> list[LogEntry]:
    """Read accept lengths (bonus included) by depth of chain; one entry per depth and mode."""
    found: list[tuple[str, int, float]] = []
    unread: Counter[str] = Counter()
    notes: dict[str, str] = {}
    where: list[tuple[int, str]] = []
    depth: int | None = None
    for raw in source.lines():
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        pair = _PAIR.fullmatch(line)
        if pair is None and _DAMAGED.match(line):
            unread["damaged field"] += 1
        if pair is None or line.lstrip().startswith("#"):
            continue
        if not raw.endswith((b"\n", b"\r")):
            unread["truncated"] += 1
            continue
        indent, key = len(pair["indent"]), pair["key"].strip(" \"'")
        value = (pair["value"] or "").strip(" \"'")
        where = [w for w in where if w[0] < indent]
        mode = "/".join(name for _, name in where)
        length = float(value) if _LENGTH.fullmatch(value) else None
        if not value:
            where.append((indent, key))
        elif value.startswith("{"):
            full = f"{mode}/{key}" if mode else key
            found += [(full, int(k), float(al)) for k, al in _FLOW.findall(value)]
        elif key.lower() in _DEPTH_KEYS and value.isdigit():
            depth = int(value[:3])
        elif key.lower() in _LENGTH_KEYS and depth is not None and length is not None:
            found.append((mode, depth, length))
        elif (at := _DEPTH.fullmatch(key)) and length is not None:
            found.append((mode, int(at[1]), length))
        elif not where:
            notes[key] = value
    good = [one for one in found if 1 <= one[1] <= _DEEPEST and 1 <= one[2] <= one[1] + 1]
    unread["accept length out of range"] = len(found) - len(good)
    entries = [_entry(source.path, notes, *one) for one in good]
    if +unread or not entries:
        entries.append(LogEntry(source.path, "golden_acceptance", unread=dict(+unread)))
    return entries


def _entry(path: str, notes: dict[str, str], mode: str, k: int, length: float) -> LogEntry:
    settings: dict[str, object] = chain_settings(k)
    settings |= {name: notes[name] for name in ("model", "dataset") if name in notes}
    return LogEntry(
        path=path,
        format="golden_acceptance",
        engine="vllm",
        settings=settings,
        rows=(LogRow(kind="closed_loop", accept_length=length, accept_length_scope="run"),),
        windows=WindowCount(1, 1),
        label=mode,
    )


FORMAT = Format(
    name="golden_acceptance",
    mark=re.compile(
        rb"^ *[\"']?(?:num_speculative_tokens_?)?\d{1,2}[\"']?: +\d\.\d"
        rb"|^ *num_speculative_tokens: +\d|: +\{[\"']?1[\"']?: *\d\.\d",
        re.MULTILINE,
    ),
    parse=parse,
)
