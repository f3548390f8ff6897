"""InferenceX's golden acceptance YAML: accept length by number of speculative tokens.

Only the small part of YAML that such files use is read: nested mappings by indentation, lists of
mappings, comments and scalars.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from specsim.logs.entry import LogEntry, LogRow, WindowCount
from specsim.logs.settings import chain_settings
from specsim.logs.source import as_lines

_PAIR = re.compile(
    r"(?P<indent> *)(?:- )?(?P<key>[\w.\"' -]{1,64}):(?: +(?P<value>[^#]*?))? *(?: #.*)?"
)
_DAMAGED = re.compile(r" *[\"']?\d{1,2}[\"']?:")
_FLOW = re.compile(r"(\d{1,2})\"?'?: *(\d{1,2}\.\d{1,6})(?=[,} ])")
_DEPTH = re.compile(r"(?:num_speculative_tokens|k|n|depth|mtp|draft)?[ _-]?(\d{1,2})")
_DEPTH_KEYS = ("num_speculative_tokens", "speculative_tokens", "k", "depth")
_LENGTH_KEYS = ("accept_length", "acceptance_length", "mean_acceptance_length", "al", "golden_al")
_LENGTH = re.compile(r"\d{1,2}\.\d{1,6}")


def read_golden(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read accept lengths by depth of chain; one entry per depth and mode.

    An accept length counts the bonus token: 1 + accepted drafts per round.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entries.
    """
    found: list[tuple[str, int, float]] = []
    unread: Counter[str] = Counter()
    notes: dict[str, str] = {}
    where: list[tuple[int, str]] = []
    depth: int | None = None
    for raw in as_lines(lines):
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
        if not value:
            where.append((indent, key))
        elif value.startswith("{"):
            full = f"{mode}/{key}" if mode else key
            found += [(full, int(k), float(al)) for k, al in _FLOW.findall(value)]
        elif key.lower() in _DEPTH_KEYS and value.isdigit():
            depth = int(value[:3])
        elif key.lower() in _LENGTH_KEYS and depth is not None and _LENGTH.fullmatch(value):
            found.append((mode, depth, float(value)))
        elif (at := _DEPTH.fullmatch(key)) and _LENGTH.fullmatch(value):
            found.append((mode, int(at[1]), float(value)))
        elif not where:
            notes[key] = value
    good = []
    for mode, k, length in found:
        if 1 <= k <= 64 and 1 <= length <= k + 1:
            good.append((mode, k, length))
        else:
            unread["accept length out of range"] += 1
    entries = [_entry(path, notes, *one) for one in good]
    if unread:
        entries = [*entries, LogEntry(path, "golden_acceptance", unread=dict(unread))]
    return entries or [LogEntry(path, "golden_acceptance")]


def _entry(path: str, notes: dict[str, str], mode: str, k: int, length: float) -> LogEntry:
    row = LogRow(kind="closed_loop", accept_length=length, accept_length_scope="run")
    settings: dict[str, object] = chain_settings(k)
    settings.update({name: notes[name] for name in ("model", "dataset") if name in notes})
    return LogEntry(
        path=path,
        format="golden_acceptance",
        engine="vllm",
        settings=settings,
        rows=(row,),
        windows=WindowCount(1, 1),
        label=mode,
    )
