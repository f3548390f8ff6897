"""InferenceX's golden acceptance YAML: accept length by number of speculative tokens.

Only the small part of YAML that such files use is read: nested mappings by indentation, lists of
mappings, comments and scalars.
"""

from collections import Counter
from dataclasses import replace

from specsim.logs.entry import LogEntry
from specsim.logs.formats import texts
from specsim.logs.formats._benchmarks import Said
from specsim.logs.formats._results import collected, run_entry
from specsim.logs.source import Source
from specsim.logs.unread import DAMAGED, TRUNCATED, check, counted

_TEXT = texts("lines")
_DEPTH_KEYS = ("num_speculative_tokens", "speculative_tokens", "k", "depth")
_LENGTH_KEYS = ("accept_length", "acceptance_length", "mean_acceptance_length", "al", "golden_al")
_FIRST, _DEEPEST = 4, 64


def parse(source: Source) -> list[LogEntry]:
    """Read accept lengths (bonus included) by depth of chain; one entry per depth and mode."""
    found: list[tuple[str, float, float]] = []
    unread: Counter[str] = Counter()
    notes: dict[str, str] = {}
    where: list[tuple[int, str]] = []
    depth = ""
    for raw in source.lines():
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        pair = _TEXT["yaml_pair"].fullmatch(line)
        if pair is None or line.lstrip().startswith("#"):
            unread[DAMAGED] += pair is None and _TEXT["yaml_damaged"].match(line) is not None
            continue
        if not raw.endswith((b"\n", b"\r")):
            unread[TRUNCATED] += 1
            continue
        indent, key = len(pair["indent"]), pair["key"].strip(" \"'")
        value = (pair["value"] or "").strip(" \"'")
        where = [w for w in where if w[0] < indent]
        path = [name for _, name in where]
        named = _TEXT["yaml_depth"].fullmatch(key)
        at = depth if key.lower() in _LENGTH_KEYS else named[1] if named else ""
        said = [(at, value)] if at and _TEXT["yaml_length"].fullmatch(value) else []
        if not value:
            where.append((indent, key))
        elif value.startswith("{"):
            path, said = [*path, key], _TEXT["yaml_flow"].findall(value)
        elif key.lower() in _DEPTH_KEYS and value.isdigit():
            depth = value[:3]
        elif not where and not said:
            notes[key] = value
        found += [("/".join(path), float(k), float(length)) for k, length in said]
    texts: Said = {name: notes[name] for name in ("model", "dataset") if name in notes}
    entries = []
    least = {mode: k for mode, k, _ in sorted(found, reverse=True)}
    for mode, k, length in found:
        with counted(unread):
            known = 1 <= least[mode] <= _FIRST and not _TEXT["yaml_no_mode"].search(mode)
            check(known and k <= _DEEPEST and 1 <= length <= k + 1, "accept length out of range")
            entry = run_entry("golden_acceptance", {"k": k, "accept_length": length, **texts})
            entries.append(replace(entry, label=mode))
    return collected(entries, unread, source.path, "golden_acceptance")
