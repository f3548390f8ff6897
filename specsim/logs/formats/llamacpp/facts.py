"""What llama-server says of itself as it starts: build, models, slots, drafting; and its totals."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

from specsim.logs.entry import Timing
from specsim.logs.settings import chain_settings

_ALGORITHMS = {
    "draft-simple": "STANDALONE",
    "draft-eagle3": "EAGLE3",
    "draft-mtp": "MTP",
    "draft-dflash": "DFLASH",
    "draft-dspark": "DSPARK",
}

_BUILD = re.compile(rb"\bbuild:? +(\d{1,7}) \((?:[0-9a-f]{5,40}|unknown)\) with ")
_INFO = re.compile(
    rb"print_info: (file type|arch|n_layer|n_embd|n_ff|n_vocab|model params|general\.name) +="
    rb" ([^=]{1,100})\s*\Z"
)
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
_SETTINGS = (
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
"""Lines that state settings, by the name of the group."""
_FIRST_COUNTS = ("n_batch", "n_ubatch", "flash_attn", "kv_dtype")
"""Printed again of the draft."""
_FILE = re.compile(rb"loading model '([^']{1,500})'\s*\Z")
_IMPLEMENTATION = re.compile(rb"adding speculative implementation '([a-z0-9-]{1,24})'\s*\Z")
_DEPTH = re.compile(
    rb" - (?:n_match=\d{1,4}, )?n_max=(\d{1,4}), n_min=|, size_m=(\d{1,4}), min_hits="
)
_STATISTICS = re.compile(
    rb"statistics +([a-z0-9-]{1,24}): #calls\(b,g,a\) = +\d{1,9} +(\d{1,9}) +(\d{1,9}), "
    rb"#gen drafts = +(\d{1,9}), .*#acc tokens = +(\d{1,9}), .*dur\(b,g,a\) = "
    rb"\d{1,12}\.\d{3}, (\d{1,12}\.\d{3}), \d{1,12}\.\d{3} ms\s*\Z"
)
_MARK = re.compile(
    rb"build|system_info|n_slots|loading model|print_info|llama_context|llama_kv_cache|speculative"
    rb"|n_max=|size_m=|statistics|synthetic"
)
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


class Totals(NamedTuple):
    """Cumulative statistics of a drafter."""

    name: str  # of the implementation
    calls: int  # times that it was asked
    verified: int  # drafts that were verified
    drafts: int  # that it gave
    accepted: int  # tokens of drafts
    seconds: float  # that drafting took


@dataclass(slots=True)
class Facts:
    """Collects what a server says of itself."""

    build: str | None = None  # None where the binary does not know
    settings: dict[str, object] = field(default_factory=dict)  # as they go to the entry
    models: list[dict[str, object]] = field(default_factory=list)  # the target, then the draft
    implementation: str | None = None  # how it drafts
    depth: int | None = None  # how many tokens at most
    totals: Totals | None = None  # since the server began, requests still running included

    def read(self, line: bytes) -> None:
        """Take in a whole line."""
        if not _MARK.search(line):
            return
        if found := _INFO.search(line):
            self._model(_MODEL_FACTS[found[1]], found[2].decode(errors="replace").strip())
        elif found := _STATISTICS.search(line):
            calls, verified, drafts, accepted = (int(found[i]) for i in range(2, 6))
            seconds = float(found[6]) / 1e3
            self.totals = Totals(found[1].decode(), calls, verified, drafts, accepted, seconds)
        elif found := _IMPLEMENTATION.search(line):
            self.implementation = self.implementation or found[1].decode()
        elif self.implementation and (found := _DEPTH.search(line)):
            self.depth = self.depth or int(found[1] or found[2])
        elif b"synthetic speculative acceptance is enabled" in line:
            self.settings["synthetic_acceptance"] = True
        elif found := _BUILD.search(line):
            self.build = f"b{int(found[1])}" if int(found[1]) else None
        elif found := next((f for p in _SETTINGS if (f := p.search(line))), None):
            self._stated({k: v.decode() for k, v in found.groupdict().items() if v is not None})
        elif found := _FILE.search(line):
            self.settings["model"] = PurePosixPath(found[1].decode(errors="replace")).name

    def _model(self, key: str, value: str) -> None:
        if not self.models or key in self.models[-1]:
            self.models.append({})
        self.models[-1][key] = _number(value)

    def _stated(self, texts: dict[str, str]) -> None:
        for key, text in texts.items():
            if key not in _FIRST_COUNTS or key not in self.settings:
                self.settings[key] = _number(text)
        if "kv_unified" in texts:
            unified = self.settings["kv_unified"] = texts["kv_unified"] == "true"
            pools = 1 if unified else int(texts["max_running_requests"])
            self.settings["kv_tokens"] = int(texts["context_tokens"]) * pools

    @property
    def algorithm(self) -> str | None:
        """Name of the way of drafting; None where the log names none."""
        name = self.implementation
        if name is None:
            return None
        return "NGRAM" if name.startswith("ngram") else _ALGORITHMS.get(name, name.upper())

    def server_settings(self) -> dict[str, object]:
        """Return the settings that have nothing to do with speculation."""
        found = dict(self.settings)
        target = dict(self.models[0]) if self.models else {}
        name = target.pop("name", None)
        if name and not found.get("model"):
            found["model"] = name
        return found | target

    def drafting_settings(self, deepest: int) -> dict[str, object]:
        """Return the settings of speculation; `deepest` is used where the depth is not stated."""
        found: dict[str, object] = {"algorithm": self.algorithm or "STANDALONE", "topk": 1}
        if depth := self.depth or deepest:
            found.update(chain_settings(depth))
        if self.implementation:
            found["implementation"] = self.implementation
        if len(self.models) > 1 and found["algorithm"] != "NGRAM":
            found.update({f"draft_{key}": value for key, value in self.models[-1].items()})
        return found

    def timings(self) -> tuple[Timing, ...]:
        """Return the time of one call of the drafter: all depths of all slots that draft."""
        t = self.totals
        if t is None or not t.calls or not t.seconds:
            return ()
        batch = max(round(t.drafts / t.calls), 1)
        return (Timing("draft", t.seconds / t.calls, count=t.calls, batch_size=batch, name=t.name),)


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
