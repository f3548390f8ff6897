"""Which settings SGLang runs, refuses or bends, by version."""

from functools import partial
from typing import Literal

from specsim.engine.rules import (
    EngineSpec,
    EngineVersion,
    Ruling,
    as_chain,
    listed,
    scheduler_default,
)
from specsim.setting import Algorithm, SpecSetting

SpecEra = Literal["v1", "beta-flag", "env", "default", "v2-only"]

MIXED_FROM = "0.5.20"
"""Release from which these take mixed chunks (``spec_info.py``, ``supports_mixed_chunk``)."""
MIXED: tuple[Algorithm, ...] = ("none", "EAGLE", "EAGLE3", "MTP", "DFLASH", "DSPARK")

V2_ONLY_FROM = "0.5.13"
"""Release in which the v1 worker is gone and v2, which overlaps, takes trees."""


def spec_era(version: EngineVersion) -> SpecEra:
    """Return how the overlapping worker (v2) is reached in that version.

    0.5.4 itself still has the flag, the environment variable came with 0.5.4.post1.
    """
    if version.before("0.5.3"):
        return "v1"
    if version.before("0.5.4.post1"):
        return "beta-flag"
    if version.before("0.5.11"):
        return "env"
    return "default" if version.before(V2_ONLY_FROM) else "v2-only"


def mixes(setting: SpecSetting, engine: EngineSpec) -> bool:
    """Whether prompt chunks join decode steps: as asked for, where the release allows it."""
    if not engine.mixed_chunk or not setting.speculates:
        return engine.mixed_chunk
    return setting.algorithm in MIXED and engine.parsed_version.since(MIXED_FROM)


def _mixed_chunk(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    if not engine.mixed_chunk or mixes(setting, engine):
        return None
    words = f'"Mixed chunked prefill is disabled" with {setting.algorithm} in this release'
    return Ruling(words, setting)


def _tree_on_pages(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    version, backend = engine.parsed_version, engine.backend
    if setting.topk == 1 or engine.page_size == 1:
        return None
    if version.since("0.4.4") and version.before("0.4.9"):
        return Ruling(
            '"speculative_eagle_topk is adjusted to 1 when page_size > 1" (0.4.4-0.4.8)',
            as_chain(setting),
            bends=True,
        )
    if version.before("0.5.0"):  # no page size before 0.4.4, no check in 0.4.9
        return None
    takes: tuple[str, ...] = ("flashinfer",)
    if version.before(V2_ONLY_FROM):
        if version.since("0.5.6") and setting.algorithm != "NGRAM":
            takes += ("fa3",)
        rule = (
            'ValueError "speculative_eagle_topk > 1 with page_size > 1 is unstable and produces '
            'incorrect results for paged attention backends." (0.5.0-0.5.12)'
        )
    else:
        takes = ("flashinfer", "fa3", "triton") if setting.algorithm != "NGRAM" else takes[:1]
        rule = (
            'ValueError "speculative_eagle_topk > 1 with page_size > 1 is only supported on '
            f'{takes}; got attention_backend={engine.attention_backend!r}." (0.5.13+)'
        )
    if backend in takes:
        return None
    return Ruling(rule, remedy=f"use page_size 1, or attention backend {' or '.join(takes)}")


def _plain_scheduler(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    if setting.speculates:
        return None
    overlaps = engine.parsed_version.since("0.4.0")
    definite = scheduler_default(setting, overlap=overlaps)
    forced = overlaps and definite.scheduler == "sequential"
    return Ruling("sequential: needs --disable-overlap-schedule" if forced else "", definite)


RULES = (
    listed,
    _mixed_chunk,
    _tree_on_pages,
    partial(listed, name="chains"),
    _plain_scheduler,
    partial(listed, name="schedulers"),
)
