"""The same hardware, model and drafter under another engine."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from specsim.errors import UnknownNameError
from specsim.profile.profile import Profile
from specsim.server import EngineSpec
from specsim.server.spec import EngineName

NEWEST_READ: dict[EngineName, str] = {
    "sglang": "0.5.23",
    "vllm": "0.33.0",
    "tensorrt-llm": "main",
    "llama.cpp": "main",
}
"""The newest version whose rules the engine module holds."""


def parse_engine(text: str) -> EngineName:
    """Return the engine of that name.

    >>> parse_engine("vLLM")
    'vllm'
    """
    names: tuple[EngineName, ...] = get_args(EngineName)
    for name in names:
        if name == text.strip().lower():
            return name
    raise UnknownNameError("engine", text, names)


def under_engine(
    profile: Profile, engine: EngineName, version: str | None = None
) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile as another engine would run it.

    Parallelism, KV format and attention backend stay; caps, graph sizes, chunks and memory
    fraction, which mean other things there, become that engine's defaults.

    Parameters
    ----------
    profile
        What was fitted under its own engine.
    engine, version
        What to model; the newest version that is known for None.

    Returns
    -------
    profile, notes
        Unchanged and without notes if the engine is the profile's own.
    """
    own = profile.setup.engine
    if engine == own.name:
        return profile, ()
    chosen = version or NEWEST_READ[engine]
    other = EngineSpec(
        name=engine,
        version=chosen,
        tp=own.tp,
        dp=own.dp,
        ep=own.ep,
        attention_backend=own.attention_backend,
        kv_dtype=own.kv_dtype,
    )
    newest = "" if version else ", the newest whose rules are known"
    notes = (
        f"all lines are under {engine} {chosen}{newest}, at its defaults for caps, graph sizes, "
        f"chunks and memory; costs and acceptance were fitted under {own.name} {own.version}",
    )
    return replace(profile, setup=replace(profile.setup, engine=other)), notes
