"""What llama-server says of itself as it starts: build, models, slots, drafting; and its totals."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from specsim.logs.entry import Timing
from specsim.logs.settings import chain_settings, stated

_ALGORITHMS = {
    "draft-simple": "STANDALONE",
    "draft-eagle3": "EAGLE3",
    "draft-mtp": "MTP",
    "draft-dflash": "DFLASH",
    "draft-dspark": "DSPARK",
}
_MODEL_FACTS = {
    b"file type": "file_type",
    b"arch": "architecture",
    b"n_layer": "layers",
    b"n_embd": "hidden",
    b"n_ff": "intermediate",
    b"n_vocab": "vocabulary",
    b"model params": "params",
    b"general.name": "name",
}
_INFO = re.compile(
    rb"print_info: (%s) += ([^=]{1,100})\s*\Z" % b"|".join(map(re.escape, _MODEL_FACTS))
)
_BUILD = re.compile(rb"\bbuild:? +(?P<build>\d{1,7}) \((?:[0-9a-f]{5,40}|unknown)\) with ")
_STATED = (
    re.compile(rb"adding speculative implementation '(?P<implementation>[a-z0-9-]{1,24})'\s*\Z"),
    re.compile(
        rb"(?: - (?:n_match=\d{1,4}, )?n_max=|, size_m=)(?P<depth>\d{1,4}), (?:n_min=|min_hits=)"
    ),
    _BUILD,
    re.compile(
        rb"system_info: n_threads = (?P<threads>\d{1,4}) "
        rb"\(n_threads_batch = (?P<threads_batch>\d{1,4})\) / \d"
    ),
    re.compile(
        rb"\bn_slots = (?P<max_running_requests>\d{1,4})"
        rb"(?:, n_ctx_slot = (?P<context_tokens>\d{1,8}), kv_unified = '(?P<kv_unified>\w+)')?\s*\Z"
    ),
    re.compile(
        rb"llama_context: (?:n_batch += (?P<n_batch>\w{1,12})|n_ubatch += (?P<n_ubatch>\w{1,12})"
        rb"|flash_attn += (?P<flash_attn>\w{1,12}))\s*\Z"
    ),
    re.compile(rb"llama_kv_cache: size = .*, K \((?P<kv_dtype>\w{1,8})\): "),
)
"""Lines that state something, by the name of the group."""
_FIRST_COUNTS = ("implementation", "depth", "n_batch", "n_ubatch", "flash_attn", "kv_dtype")
"""Printed again of the draft, or of a further way of drafting."""
_FILE = re.compile(rb"loading model '([^']{1,500})'\s*\Z")
_STATISTICS = re.compile(
    rb"statistics +(?P<name>[a-z0-9-]{1,24}): #calls\(b,g,a\) = +\d{1,9} +(?P<calls>\d{1,9}) +"
    rb"(?P<verified>\d{1,9}), #gen drafts = +(?P<drafts>\d{1,9}), .*"
    rb"#acc tokens = +(?P<accepted>\d{1,9}), .*"
    rb"dur\(b,g,a\) = \d{1,12}\.\d{3}, (?P<ms>\d{1,12}\.\d{3}), \d{1,12}\.\d{3} ms\s*\Z"
)
"""Of the life of a server, requests still running included: times that the drafter was asked,
drafts that were verified, drafts that it gave, their tokens that were accepted."""
_MARK = re.compile(
    rb"build|system_info|n_slots|loading model|print_info|llama_context|llama_kv_cache|speculative"
    rb"|n_max=|size_m=|statistics|synthetic"
)
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(slots=True)
class Facts:
    """Collects what a server says of itself."""

    said: dict[str, object] = field(default_factory=dict)  # settings, build and way of drafting
    models: list[dict[str, object]] = field(default_factory=list)  # the target, then the draft
    totals: dict[str, bytes] = field(default_factory=dict)  # the latest, as _STATISTICS names them

    def read(self, line: bytes) -> None:
        """Take in a whole line."""
        if not _MARK.search(line):
            return
        if found := _INFO.search(line):
            key = _MODEL_FACTS[found[1]]
            if not self.models or key in self.models[-1]:
                self.models.append({})
            self.models[-1][key] = _number(found[2].decode(errors="replace").strip())
        elif found := _STATISTICS.search(line):
            self.totals = found.groupdict()
        elif b"synthetic speculative acceptance is enabled" in line:
            self.said["synthetic_acceptance"] = True
        elif found := next((f for p in _STATED if (f := p.search(line))), None):
            self._state(stated(found))
        elif found := _FILE.search(line):
            self.said["model"] = PurePosixPath(found[1].decode(errors="replace")).name

    def _state(self, values: dict[str, object]) -> None:
        for key, value in values.items():
            if key not in _FIRST_COUNTS or key not in self.said:
                self.said[key] = value
        slots, context = values.get("max_running_requests"), values.get("context_tokens")
        if isinstance(slots, int) and isinstance(context, int):
            unified = self.said["kv_unified"] = values["kv_unified"] == "true"
            self.said["kv_tokens"] = context * (1 if unified else slots)

    @property
    def build(self) -> str | None:
        """Build of the binary; None where it does not know."""
        number = self.said.get("build")
        return f"b{number}" if number else None

    @property
    def algorithm(self) -> str | None:
        """Name of the way of drafting; None where the log names none."""
        if "implementation" not in self.said:
            return None
        name = str(self.said["implementation"])
        return "NGRAM" if name.startswith("ngram") else _ALGORITHMS.get(name, name.upper())

    def server_settings(self) -> dict[str, object]:
        """Return the settings that have nothing to do with speculation."""
        other = ("build", "implementation", "depth")
        found = {key: value for key, value in self.said.items() if key not in other}
        target = dict(self.models[0]) if self.models else {}
        name = target.pop("name", None)
        if name and not found.get("model"):
            found["model"] = name
        return found | target

    def drafting_settings(self, deepest: int) -> dict[str, object]:
        """Return the settings of speculation; `deepest` is used where the depth is not stated."""
        found: dict[str, object] = {"algorithm": self.algorithm or "STANDALONE", "topk": 1}
        depth = self.said.get("depth") or deepest
        if isinstance(depth, int) and depth:
            found |= chain_settings(depth)
        if "implementation" in self.said:
            found["implementation"] = self.said["implementation"]
        if len(self.models) > 1 and found["algorithm"] != "NGRAM":
            found |= {f"draft_{key}": value for key, value in self.models[-1].items()}
        return found

    def timings(self) -> tuple[Timing, ...]:
        """Return the time of one call of the drafter: all depths of all slots that draft."""
        if not self.totals:
            return ()
        calls, seconds = int(self.totals["calls"]), float(self.totals["ms"]) / 1e3
        if not calls or not seconds:
            return ()
        batch = max(round(int(self.totals["drafts"]) / calls), 1)
        name = self.totals["name"].decode()
        return (Timing("draft", seconds / calls, count=calls, batch_size=batch, name=name),)


def begins_server(line: bytes) -> bool:
    """Whether a line is the first of a server's log."""
    return b"build" in line and _BUILD.search(line) is not None


def _number(text: str) -> object:
    """Return a count, a count with a unit, or the text.

    >>> _number("30"), _number("134.52 M"), _number("F16")
    (30, 134520000, 'F16')
    """
    if re.fullmatch(r"\d{1,12}", text):
        return int(text)
    found = re.fullmatch(r"(\d{1,6}\.\d{2}) ([KMBT])", text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else text
