"""InferenceX's golden acceptance YAML: accept length by number of speculative tokens."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specsim.logs.entry import LogEntry
from specsim.logs.formats import texts
from specsim.logs.formats._benchmarks import Said
from specsim.logs.formats._nested import yaml_values
from specsim.logs.formats._results import collected, run_entry
from specsim.logs.source import Source
from specsim.logs.unread import Unread, check, counted

_TEXT = texts("lines")
_DEPTH_KEYS = ("num_speculative_tokens", "speculative_tokens", "k", "depth")
_LENGTH_KEYS = ("accept_length", "acceptance_length", "mean_acceptance_length", "al", "golden_al")
_FIRST, _DEEPEST = 4, 64


def parse(source: Source) -> list[LogEntry]:
    """Read accept lengths (bonus included) by depth of chain; one entry per depth and mode."""
    unread: Counter[str] = Counter()
    entries: list[LogEntry] = []
    for value in yaml_values(source.lines()):
        with counted(unread):
            if isinstance(value, Unread):
                raise value
            found = list(_lengths(value))
            notes = value if isinstance(value, dict) else {}
            texts: Said = {n: str(notes[n]) for n in ("model", "dataset") if notes.get(n)}
            least = {mode: k for mode, k, _ in sorted(found, reverse=True)}
            for mode, k, length in found:
                with counted(unread):
                    known = 1 <= least[mode] <= _FIRST and not _TEXT["yaml_no_mode"].search(mode)
                    good = known and k <= _DEEPEST and 1 <= length <= k + 1
                    check(good, "accept length out of range")
                    said: Said = {"k": k, "accept_length": length, **texts}
                    entries.append(replace(run_entry("golden_acceptance", said), label=mode))
    return collected(entries, unread, source.path, "golden_acceptance")


def _lengths(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, float, float]]:
    """Yield the accept lengths in a node: mode, depth, length."""
    for one in node if isinstance(node, list) else ():
        yield from _lengths(one, path)
    for key, value in node.items() if isinstance(node, dict) else ():
        named = _TEXT["yaml_depth"].fullmatch(key)
        of = [v for name, v in node.items() if name.lower() in _DEPTH_KEYS and type(v) is int]
        depth = of[:1] if key.lower() in _LENGTH_KEYS else [int(named[1])] if named else []
        if isinstance(value, dict | list):
            yield from _lengths(value, (*path, key))
        elif isinstance(value, float) and depth:
            yield "/".join(path), float(depth[0]), value
