"""One override as it is typed: ``KEY=VALUE``, or ``KEY=*FACTOR`` for numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from specsim.errors import InputError, UnknownNameError
from specsim.parameters import ACCEPTANCE, COST

SETUP_TEXT = {
    "gpu": "hardware.gpu",
    "link": "hardware.link",
    "allreduce": "hardware.allreduce",
    "model": "model.id",
    "quantisation": "model.quantisation",
    "draft": "draft.id",
    "engine": "engine.name",
    "engine.version": "engine.version",
    "attention_backend": "engine.attention_backend",
    "kv_dtype": "engine.kv_dtype",
}
"""Keys of setup.toml that hold a text, and where they stand in it."""

SETUP_COUNT = {
    "gpus": "hardware.gpu_count",
    "tp": "engine.tp",
    "dp": "engine.dp",
    "ep": "engine.ep",
    "max_running_requests": "engine.max_running_requests",
    "cuda_graph_max_bs": "engine.cuda_graph_max_bs",
    "kv_tokens": "engine.kv_tokens",
    "chunked_prefill_size": "engine.chunked_prefill_size",
    "page_size": "engine.page_size",
}
"""Keys that hold a whole number."""

SETUP_NUMBER = {
    "mem_fraction_static": "engine.mem_fraction_static",
    "weight_bytes": "model.weight_bytes",
    "input_len": "workload.input_len",
    "output_len": "workload.output_len",
    "input_cached": "workload.input_cached",
    "shared_prefix_len": "workload.shared_prefix_len",
    "context": "workload.input_len",
}
"""Keys that hold a number; ``context`` keeps the cached share of the prompt."""

SETUP = SETUP_TEXT | SETUP_COUNT | SETUP_NUMBER

ACCEPT_LENGTH = "accept_length"

ALIASES = {
    "quantization": "quantisation",
    "gpu_count": "gpus",
    "gpu_name": "gpu",
    "engine_version": "engine.version",
    "version": "engine.version",
    "engine.name": "engine",
    "engine.max_running_requests": "max_running_requests",
    "engine.attention_backend": "attention_backend",
    "engine.kv_tokens": "kv_tokens",
    "engine.tp": "tp",
    "context_len": "context",
    "isl": "input_len",
    "osl": "output_len",
    "allreduce.alpha": "allreduce.latency",
}
"""Other words for a key."""


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
        """Return the new value of a number.

        Raises
        ------
        InputError
            If it is none, not finite or negative, or what is multiplied is not set.
        """
        if self.factor and old is None:
            raise InputError(
                f"--set {self.label}", "multiplies a number that is not set", "give a value instead"
            )
        try:
            number = float(self.text)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise InputError(
                f"--set {self.label}", "needs a number that is not negative", f"{self.key}=*0.5"
            )
        return old * number if self.factor and old is not None else number


def parse_override(text: str) -> Override:
    """Read ``KEY=VALUE`` or ``KEY=*FACTOR``; ``parameter NAME=...`` and ``parameter.NAME`` too.

    Raises
    ------
    InputError, UnknownNameError
        If it is not of that form, or the key is unknown; names the nearest one.

    Examples
    --------
    >>> parse_override("allreduce.latency=*0.5")
    Override(key='allreduce.latency', text='0.5', factor=True)
    """
    raw, equals, value = text.partition("=")
    key, value = raw.strip().lower().replace("-", "_"), value.strip()
    for prefix in ("parameter.", "parameter "):
        key = key.removeprefix(prefix).strip()
    key = ALIASES.get(key, key)
    if not equals or not value:
        raise InputError(f"--set {text}", "is not KEY=VALUE", "write e.g. allreduce.latency=*0.5")
    if key not in override_keys():
        raise UnknownNameError("--set key", raw.strip(), (*override_keys(), *ALIASES))
    factor = value.startswith("*")
    if factor and key in SETUP_TEXT:
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
