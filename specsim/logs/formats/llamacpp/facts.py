"""What llama-server says of itself as it starts: build, models, slots, drafting; and its totals."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from specsim.logs.entry import LogEntry, Timing
from specsim.logs.facts import Facts as EngineFacts
from specsim.logs.formats import listed
from specsim.logs.json_values import table, text, whole
from specsim.setting import NO_SPECULATION, chain_settings

_MODEL_FACTS: dict[str, str] = listed("facts", "llama.cpp")["model"]
_ALGORITHMS: dict[str, str] = listed("facts", "llama.cpp")["algorithms"]
_INFO = re.compile(
    rb"print_info: (%s) += ([^=]{1,100})\s*\Z" % "|".join(map(re.escape, _MODEL_FACTS)).encode()
)
_NAMED = re.compile(
    rb"(?:impl_|[\s'=,:])(?P<name>draft[-_](?:simple|eagle3|mtp|dflash|dspark)|ngram[-_][a-z0-9_-]{2,16})"
    rb"(?![a-z0-9])"
)
"""A way of drafting: as one is added, or in its own lines."""
_FILE = re.compile(rb"loading model '([^']{1,500})'\s*\Z")
_STATISTICS = re.compile(
    rb"statistics +(?P<name>[a-z0-9-]{1,24}): #calls\(b,g,a\) = +\d{1,9} +(?P<calls>\d{1,9}) +"
    rb"(?P<verified>\d{1,9}), #gen drafts = +(?P<drafts>\d{1,9}), .*"
    rb"#acc tokens = +(?P<accepted>\d{1,9}), .*"
    rb"dur\(b,g,a\) = \d{1,12}\.\d{3}, (?P<ms>\d{1,12}\.\d{3}), \d{1,12}\.\d{3} ms\s*\Z"
)
"""Of the life of a server, requests still running included: times that the drafter was asked,
drafts that were verified, drafts that it gave, their tokens that were accepted."""
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(slots=True)
class Facts:
    """Collects what a server says of itself."""

    told: EngineFacts = field(default_factory=lambda: EngineFacts("llama.cpp"))
    models: list[dict[str, object]] = field(default_factory=list)  # the target, then the draft
    depths: dict[str, object] = field(default_factory=dict)  # by way of drafting, as named; or None
    launched: Mapping[str, object] = field(default_factory=dict)  # what a command says
    # The latest of each way of drafting, as _STATISTICS names them.
    totals: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def read(self, line: bytes) -> None:
        """Take in a whole line."""
        if not self.told.concerned(line):
            return
        named = _NAMED.search(line)
        if named and b"--spec" not in line:  # a command may be of another server
            self.depths.setdefault(named["name"].decode().replace("_", "-"), None)
        if found := _INFO.search(line):
            key = _MODEL_FACTS[found[1].decode()]
            if not self.models or key in self.models[-1]:
                self.models.append({})
            self.models[-1][key] = _number(found[2].decode(errors="replace").strip())
        elif found := _STATISTICS.search(line):
            self.totals[found["name"].decode()] = found.groupdict()
        elif found := _FILE.search(line):
            self.told.settings["model"] = PurePosixPath(found[1].decode(errors="replace")).name
        else:
            self.told.learn(line)
            self._complete(self.told.settings)

    def _complete(self, settings: dict[str, object]) -> None:
        """Take what a line said further: a depth is of the drafter that was named last."""
        if depth := settings.pop("depth", None):
            name = next(reversed(self.depths), "")
            self.depths[name] = self.depths.get(name) or depth
        context, slots = settings.get("context_tokens"), settings.get("max_running_requests")
        unified = settings.get("kv_unified")
        if isinstance(unified, str) and isinstance(context, int) and isinstance(slots, int):
            settings["kv_unified"] = unified == "true"
            settings["kv_tokens"] = context * (1 if unified == "true" else slots)

    @property
    def build(self) -> str | None:
        """Build of the binary; None where it does not know."""
        number = self.told.version
        return f"b{number}" if number and int(number) else None

    @property
    def implementation(self) -> str | None:
        """The way of drafting: of several the one that gave most drafts, else one with a model."""
        drafts = {name: int(total["drafts"]) for name, total in self.totals.items()}
        if any(drafts.values()):
            return max(drafts, key=drafts.__getitem__)
        names = [name for name in (*self.depths, *self.totals) if name]
        return next((n for n in names if not n.startswith("ngram")), names[0] if names else None)

    @property
    def algorithm(self) -> str | None:
        """Name of the way of drafting; None where the log names none."""
        name = self.implementation
        if name is not None:
            return "NGRAM" if name.startswith("ngram") else _ALGORITHMS.get(name, name.upper())
        draft = str(self.models[-1].get("architecture", "")) if len(self.models) > 1 else ""
        heads = (known for known in ("eagle3", "mtp", "dflash", "dspark") if known in draft)
        if draft:
            return next(heads, "standalone").upper()
        return str(self.launched["algorithm"]) if "algorithm" in self.launched else None

    def server_settings(self) -> dict[str, object]:
        """Return the settings that have nothing to do with speculation."""
        found = dict(self.told.settings)
        target = dict(self.models[0]) if self.models else {}
        name = target.pop("name", None)
        if name and not found.get("model"):
            found["model"] = name
        return found | target

    def drafting_settings(self, deepest: int) -> dict[str, object]:
        """Return the settings of speculation; `deepest` is used where the depth is not stated."""
        name = self.implementation
        said = {"algorithm": self.algorithm, "implementation": name}
        found: dict[str, object] = {"topk": 1, **{k: v for k, v in said.items() if v is not None}}
        depth = self.depths.get(name or "") or self.depths.get("") or deepest
        if isinstance(depth, int) and depth:
            found |= chain_settings(depth)
        others = [n for n in {**self.depths, **self.totals} if n and n != name]
        if others:
            found["also_drafting"] = " ".join(others)
        if len(self.models) > 1 and self.algorithm != "NGRAM":
            found |= {f"draft_{key}": value for key, value in self.models[-1].items()}
        return found

    def timings(self) -> tuple[Timing, ...]:
        """Return the time of one call of each drafter: all depths of all slots that draft."""
        timed = (
            (name, int(t["calls"]), int(t["drafts"]), float(t["ms"]) / 1e3)
            for name, t in self.totals.items()
        )
        return tuple(
            Timing("draft", s / n, count=n, batch_size=max(round(drafts / n), 1), name=name)
            for name, n, drafts, s in timed
            if n and s
        )


def drafting_of(slot: Mapping[str, Any]) -> dict[str, object]:
    """Return how a slot of ``/slots`` drafts; how it is named shows once it has had a request."""
    names = (text(table(slot, "params"), "speculative.types") or "").split(",")
    named = [_ALGORITHMS.get(n, "NGRAM" if n.startswith("ngram") else "") for n in names]
    if slot.get("speculative") is False:
        return dict(NO_SPECULATION)
    return {"algorithm": named[-1]} if named[-1] else {}


def props(record: Mapping[str, Any]) -> LogEntry:
    """Return what llama-server tells at ``/props``."""
    model, built = text(record, "model_path"), text(record, "build_info")
    build = re.match(r"b[1-9]\d{0,6}", built or "")  # b0 is one that does not know
    slots, each = whole(record, "total_slots"), table(record, "default_generation_settings")
    found = {"max_running_requests": slots, "context_tokens": whole(each, "n_ctx")}
    named = {"model": PurePosixPath(model).name} if model else {}
    settings = named | {name: value for name, value in found.items() if value}
    return LogEntry("", "llamacpp_props", "llama.cpp", build[0] if build else None, settings)


def _number(text: str) -> object:
    """Return a count, a count with a unit, or the text.

    >>> _number("30"), _number("134.52 M"), _number("F16")
    (30, 134520000, 'F16')
    """
    if re.fullmatch(r"\d{1,12}", text):
        return int(text)
    found = re.fullmatch(r"(\d{1,6}\.\d{2}) ([KMBT])", text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else text
