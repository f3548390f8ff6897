"""What llama-server says of itself as it starts: build, models, slots, drafting; and its totals."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

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
_SYSTEM = re.compile(rb"system_info: n_threads = (\d{1,4}) \(n_threads_batch = (\d{1,4})\) / \d")
_SLOTS = re.compile(
    rb"\bn_slots = (\d{1,4})(?:, n_ctx_slot = (\d{1,8}), kv_unified = '(\w+)')?\s*\Z"
)
_MODEL = re.compile(rb"loading (draft )?model '([^']{1,500})'\s*\Z")
_INFO = re.compile(
    rb"print_info: (file type|arch|n_layer|n_embd|n_ff|n_vocab|model params|general\.name) +="
    rb" ([^=]{1,100})\s*\Z"
)
_CONTEXT = re.compile(rb"llama_context: (n_batch|n_ubatch|flash_attn) += (\w{1,12})\s*\Z")
_KV = re.compile(rb"llama_kv_cache: size = .*, K \((\w{1,8})\): ")
_IMPLEMENTATION = re.compile(rb"adding speculative implementation '([a-z0-9-]{1,24})'\s*\Z")
_DEPTH = re.compile(
    rb" - (?:n_match=\d{1,4}, )?n_max=(\d{1,4}), n_min=|, size_m=(\d{1,4}), min_hits="
)
_STATISTICS = re.compile(
    rb"statistics +([a-z0-9-]{1,24}): #calls\(b,g,a\) = +(\d{1,9}) +(\d{1,9}) +(\d{1,9}), "
    rb"#gen drafts = +(\d{1,9}), .*#acc tokens = +(\d{1,9}), .*dur\(b,g,a\) = "
    rb"\d{1,12}\.\d{3}, (\d{1,12}\.\d{3}), \d{1,12}\.\d{3} ms\s*\Z"
)
_MARKS = (
    b"build",
    b"system_info",
    b"n_slots",
    b"loading ",
    b"print_info",
    b"llama_context",
    b"llama_kv_cache",
    b"speculative",
    b"n_max=",
    b"size_m=",
    b"statistics",
    b"synthetic",
)
_NAMES = {
    b"file type": "file_type",
    b"arch": "architecture",
    b"n_layer": "layers",
    b"n_embd": "hidden",
    b"n_ff": "intermediate",
    b"n_vocab": "vocabulary",
    b"model params": "params",
    b"general.name": "name",
}
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True)
class Totals:
    """Cumulative statistics of a drafter.

    Parameters
    ----------
    name
        Of the implementation.
    calls, drafts, seconds
        Times that it was asked, the drafts that it gave, and how long it took.
    verified, accepted
        Drafts that were verified, and tokens of them that were accepted.
    """

    name: str
    calls: int
    verified: int
    drafts: int
    accepted: int
    seconds: float


@dataclass(slots=True)
class Facts:
    """Collects what a server says of itself.

    Attributes
    ----------
    build
        Number of the build; None where the binary does not know.
    settings
        What goes to the entry as it stands.
    models
        What is printed of each model that is loaded: the target, then the draft.
    implementation, depth
        How it drafts, and how many tokens at most.
    totals
        Of all drafting since the server began, requests that are still running included.
    """

    build: str | None = None
    settings: dict[str, object] = field(default_factory=dict)
    models: list[dict[str, object]] = field(default_factory=list)
    implementation: str | None = None
    depth: int | None = None
    totals: Totals | None = None

    def read(self, line: bytes) -> None:
        """Take in a whole line."""
        if not any(mark in line for mark in _MARKS):
            return
        if found := _INFO.search(line):
            self._model(_NAMES[found[1]], found[2].decode(errors="replace").strip())
        elif found := _STATISTICS.search(line):
            calls, verified, drafts, accepted = (int(found[i]) for i in range(3, 7))
            seconds = float(found[7]) / 1e3
            self.totals = Totals(found[1].decode(), calls, verified, drafts, accepted, seconds)
        elif found := _IMPLEMENTATION.search(line):
            self.implementation = self.implementation or found[1].decode()
        elif self.implementation and (found := _DEPTH.search(line)):
            self.depth = self.depth or int(found[1] or found[2])
        elif b"synthetic speculative acceptance is enabled" in line:
            self.settings["synthetic_acceptance"] = True
        else:
            self._server(line)

    @property
    def algorithm(self) -> str | None:
        """Name of the way of drafting; None where the log names none."""
        name = self.implementation
        if name is None:
            return None
        return "NGRAM" if name.startswith("ngram") else _ALGORITHMS.get(name, name.upper())

    def all_settings(self, deepest: int) -> dict[str, object]:
        """Return the settings of a server that speculates.

        Parameters
        ----------
        deepest
            Positions of drafts that were counted, used where the depth is not stated.
        """
        found: dict[str, object] = {"algorithm": self.algorithm or "STANDALONE", "topk": 1}
        depth = self.depth or deepest
        if depth:
            found.update(chain_settings(depth))
        if self.implementation:
            found["implementation"] = self.implementation
        if len(self.models) > 1 and found["algorithm"] != "NGRAM":
            found.update({f"draft_{key}": value for key, value in self.models[-1].items()})
        return found

    def server_settings(self) -> dict[str, object]:
        """Return the settings that have nothing to do with speculation."""
        found = dict(self.settings)
        if self.models:
            target = dict(self.models[0])
            name = found.get("model") or target.pop("name", None)
            found.update({"model": name} if name else {})
            target.pop("name", None)
            found.update(target)
        return found

    def timings(self) -> tuple[Timing, ...]:
        """Return the time of one call of the drafter: all depths of all slots that draft."""
        t = self.totals
        if t is None or not t.calls or not t.seconds:
            return ()
        batch = max(round(t.drafts / t.calls), 1)
        return (Timing("draft", t.seconds / t.calls, count=t.calls, batch_size=batch, name=t.name),)

    def _model(self, key: str, value: str) -> None:
        if not self.models or key in self.models[-1]:
            self.models.append({})
        self.models[-1][key] = _number(value)

    def _server(self, line: bytes) -> None:
        s = self.settings
        if found := _BUILD.search(line):
            self.build = f"b{int(found[1])}" if int(found[1]) else None
        elif found := _SYSTEM.search(line):
            s["threads"], s["threads_batch"] = int(found[1]), int(found[2])
        elif found := _SLOTS.search(line):
            slots = int(found[1])
            s["max_running_requests"] = slots
            if found[2]:
                s["context_tokens"] = int(found[2])
                s["kv_unified"] = found[3] == b"true"
                s["kv_tokens"] = int(found[2]) * (1 if s["kv_unified"] else slots)
        elif found := _MODEL.search(line):
            if not found[1]:  # the draft's is told by its block of facts
                s["model"] = PurePosixPath(found[2].decode(errors="replace")).name
        elif found := _CONTEXT.search(line):
            s.setdefault(found[1].decode(), _number(found[2].decode()))
        elif found := _KV.search(line):
            s.setdefault("kv_dtype", found[1].decode())


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
