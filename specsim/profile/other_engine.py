"""The same hardware, model and drafter under another engine."""

from dataclasses import replace

from specsim.engine import EngineSpec, engine_named
from specsim.profile.profile import Profile


def under_engine(
    profile: Profile, engine: str, version: str | None = None
) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile as another engine would run it, and notes; its own one unchanged.

    Parallelism, KV format and attention backend stay; caps, graph sizes, chunks and memory
    fraction, which mean other things there, become that engine's defaults. None stands for the
    newest version that is known.
    """
    own, other = profile.setup.engine, engine_named(engine)
    if other.name == own.name:
        return profile, ()
    chosen = version or other.newest
    spec = EngineSpec(
        name=other.name,
        version=chosen,
        tp=own.tp,
        dp=own.dp,
        ep=own.ep,
        attention_backend=own.attention_backend,
        kv_dtype=own.kv_dtype,
    )
    newest = "" if version else ", the newest whose rules are known"
    notes = (
        f"all lines are under {other.name} {chosen}{newest}, at its defaults for caps, graph "
        "sizes, chunks and memory; costs and acceptance were fitted under "
        f"{own.name} {own.version}",
    )
    return replace(profile, setup=replace(profile.setup, engine=spec)), notes
