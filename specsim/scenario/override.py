"""One override as it is typed: ``KEY=VALUE``, or ``KEY=*FACTOR`` for numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from specsim.errors import InputError, UnknownNameError
from specsim.library import Kind, kinds_of
from specsim.parameters import ACCEPTANCE, COST
from specsim.server import SECTIONS

HOMES = {
    "hardware": ("gpu", "link", "allreduce"),
    "model": ("quantisation", "weight_bytes"),
    "engine": (
        *("attention_backend", "kv_dtype", "tp", "dp", "ep", "max_running_requests", "kv_tokens"),
        *("cuda_graph_max_bs", "chunked_prefill_size", "page_size", "mem_fraction_static"),
    ),
    "workload": ("input_len", "output_len", "input_cached", "shared_prefix_len"),
}
"""Keys of setup.toml by their section."""

SETUP = {key: f"{section}.{key}" for section, keys in HOMES.items() for key in keys} | {
    "gpus": "hardware.gpu_count",
    "model": "model.id",
    "draft": "draft.id",
    "engine": "engine.name",
    "engine.version": "engine.version",
    "context": "workload.input_len",
}
"""Keys that change the setup, and where they stand in it; ``context`` keeps the cached share."""

ACCEPT_LENGTH = "accept_length"

ALIASES = {
    "quantization": "quantisation",
    "gpu_count": "gpus",
    "gpu_name": "gpu",
    "engine_version": "engine.version",
    "version": "engine.version",
    "context_len": "context",
    "isl": "input_len",
    "osl": "output_len",
    "allreduce.alpha": "allreduce.latency",
}
"""Other words for a key."""


def kind_of(key: str) -> Kind:
    """Return what a key of the setup holds: a number, or a text if neither int nor float."""
    section, _, name = SETUP[key].partition(".")
    kind: Kind = kinds_of(SECTIONS[section])[name]
    return kind


def parameter_keys() -> dict[str, str]:
    """Keys that change a parameter of the profile, and its name; ``draft`` is the drafter."""
    rows = COST | {name: row for name, row in ACCEPTANCE.items() if name != "accept_level"}
    keys = {key: name for name, row in rows.items() for key in (name, *row.set_as)}
    return {key: name for key, name in keys.items() if key not in SETUP}


def override_keys() -> tuple[str, ...]:
    """Return every key that an override may have."""
    return tuple(sorted({*SETUP, *parameter_keys(), ACCEPT_LENGTH}))


@dataclass(frozen=True, slots=True)
class Override:
    """One change."""

    key: str  # one of `override_keys`
    text: str  # what stands behind ``=``, or behind ``=*``
    factor: bool = False  # whether it multiplies

    @property
    def label(self) -> str:
        """As it is typed."""
        return f"{self.key}={'*' if self.factor else ''}{self.text}"

    def changed(self, old: float | None) -> float:
        """Return the new value of a number; refuses none, and to multiply what is not set."""
        if self.factor and old is None:
            why = "multiplies a number that is not set"
            raise InputError(f"--set {self.label}", why, "give a value instead")
        try:
            number = float(self.text)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            why = "needs a number that is not negative"
            raise InputError(f"--set {self.label}", why, f"{self.key}=*0.5")
        return old * number if self.factor and old is not None else number


def parse_override(text: str) -> Override:
    """Read ``KEY=VALUE`` or ``KEY=*FACTOR``; ``parameter NAME=...`` and ``parameter.NAME`` too.

    >>> parse_override("allreduce.latency=*0.5")
    Override(key='allreduce.latency', text='0.5', factor=True)
    """
    raw, equals, value = text.partition("=")
    key, value = raw.strip().lower().replace("-", "_"), value.strip()
    for prefix in ("parameter.", "parameter "):
        key = key.removeprefix(prefix).strip()
    places = {place: short for short, place in SETUP.items() if short != "context"}
    key = ALIASES.get(key, places.get(key, key))
    if not equals or not value:
        raise InputError(f"--set {text}", "is not KEY=VALUE", "write e.g. allreduce.latency=*0.5")
    if key not in override_keys():
        raise UnknownNameError("--set key", raw.strip(), (*override_keys(), *ALIASES))
    factor = value.startswith("*")
    if factor and key in SETUP and kind_of(key) not in (int, float):
        raise InputError(f"--set {text}", "multiplies a text", f"write {key}=NAME")
    return Override(key, value.removeprefix("*").strip(), factor)


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Read several; one text may hold more, parted by spaces or semicolons.

    >>> [o.label for o in parse_overrides(["tp=4 link=nvlink4"])]
    ['tp=4', 'link=nvlink4']
    """
    parts = []
    for text in texts:
        for piece in text.split(";"):
            words = piece.split()
            joined = words and words[0].lower() == "parameter"
            parts += [" ".join(words)] if joined else words
    return tuple(parse_override(part) for part in parts)
