"""What llama-server says of itself as it starts: build, models, slots, drafting; and its totals."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from specsim.logs.entry import Timing
from specsim.logs.facts import Facts as EngineFacts
from specsim.logs.formats import listed, patterns
from specsim.setting import chain_settings

_LINE = patterns("llama.cpp")
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(slots=True)
class Facts:
    """Collects what a server says of itself."""

    told: EngineFacts = field(default_factory=lambda: EngineFacts("llama.cpp"))
    models: list[dict[str, object]] = field(default_factory=list)  # the target, then the draft
    depths: dict[str, object] = field(default_factory=dict)  # by way of drafting, as named; or None
    launched: Mapping[str, object] = field(default_factory=dict)  # what a command says
    # The latest of each way of drafting, as the pattern of statistics names them.
    totals: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def read(self, line: bytes) -> None:
        """Take in a whole line."""
        if not self.told.concerned(line):
            return
        named = _LINE["drafter"].search(line)
        if named and b"--spec" not in line:  # a command may be of another server
            self.depths.setdefault(named["name"].decode().replace("_", "-"), None)
        found, known = _LINE["info"].search(line), listed("llama.cpp", "model")
        if found and (key := known.get(found[1].decode())):
            if not self.models or key in self.models[-1]:
                self.models.append({})
            self.models[-1][key] = _number(found[2].decode(errors="replace").strip())
        elif found := _LINE["statistics"].search(line):
            self.totals[found["name"].decode()] = found.groupdict()
        elif found := _LINE["file"].search(line):
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
            known: str = listed("llama.cpp", "algorithms").get(name, name.upper())
            return "NGRAM" if name.startswith("ngram") else known
        draft = str(self.models[-1].get("architecture", "")) if len(self.models) > 1 else ""
        heads = (head for head in ("eagle3", "mtp", "dflash", "dspark") if head in draft)
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


def _number(text: str) -> object:
    """Return a count, a count with a unit, or the text.

    >>> _number("30"), _number("134.52 M"), _number("F16")
    (30, 134520000, 'F16')
    """
    if re.fullmatch(r"\d{1,12}", text):
        return int(text)
    found = re.fullmatch(r"(\d{1,6}\.\d{2}) ([KMBT])", text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else text
