"""Which settings SGLang runs, refuses or bends, by version."""

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

NGRAM_OVERLAP_FROM = "0.5.14"
"""Release from which an n-gram lookup keeps the overlap scheduler."""

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


def _chain_tokens(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    chain = as_chain(setting)
    if setting.topk > 1 or setting.algorithm == "NGRAM" or setting == chain:
        return None
    if not setting.speculates or engine.parsed_version.before("0.4.5"):
        return None
    return Ruling(
        '"speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when '
        f'speculative_eagle_topk == 1" (0.4.5+): {chain.num_draft_tokens} tokens are verified',
        chain,
    )


def _plain_scheduler(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    if setting.speculates:
        return None
    overlaps = engine.parsed_version.since("0.4.0")
    definite = scheduler_default(setting, overlap=overlaps)
    forced = overlaps and definite.scheduler == "sequential"
    return Ruling("sequential: needs --disable-overlap-schedule" if forced else "", definite)


def _ngram_scheduler(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    if setting.algorithm != "NGRAM":
        return None
    if engine.parsed_version.since(NGRAM_OVERLAP_FROM):
        return _v2_only(setting)
    sequential = setting.with_scheduler("sequential")
    rule = (
        '"The overlap scheduler and mixed chunked prefill are disabled because of using ngram '
        'speculative decoding." (before 0.5.14)'
    )
    return Ruling(rule, sequential, bends=setting.scheduler == "overlap")


def _spec_scheduler(setting: SpecSetting, engine: EngineSpec) -> Ruling | None:
    if not setting.speculates or setting.algorithm == "NGRAM":
        return None
    era = spec_era(engine.parsed_version)
    if era == "v2-only":
        return _v2_only(setting)
    if era == "default":
        return _v2_by_default(setting)
    if setting.scheduler != "overlap":
        note = f"spec v1, sequential: the default {_ERA_TEXT[era]}"
        return Ruling(note if setting.scheduler == "auto" else "", _sequential(setting))
    if era == "v1":
        return Ruling(
            '"Overlap scheduler is disabled because of using eagle speculative decoding." '
            "(0.4.1-0.5.2): spec v1 runs, sequential",
            _sequential(setting),
            bends=True,
        )
    if setting.topk == 1:
        how = "--enable-beta-spec" if era == "beta-flag" else "env SGLANG_ENABLE_SPEC_V2=True"
        return Ruling(f"spec v2, overlap: needs {how}", setting)
    if engine.parsed_version.since("0.5.7"):
        rule = (
            'ValueError "Spec v2 currently only supports topk = 1 for speculative decoding." '
            "(0.5.7-0.5.10)"
        )
    else:
        rule = (
            "spec v2 with topk > 1 is not checked and crashes: tensor sizes do not match in cat "
            "(0.5.3-0.5.6, sglang issues 13352 and 14077)"
        )
    return Ruling(rule, remedy="use --scheduler sequential (spec v1), topk 1, or SGLang 0.5.13+")


_ERA_TEXT: dict[SpecEra, str] = {
    "v1": "and only worker to 0.5.2",
    "beta-flag": "of 0.5.3-0.5.4; v2 is behind --enable-beta-spec",
    "env": "of 0.5.4.post1-0.5.10; v2 is behind env SGLANG_ENABLE_SPEC_V2=True",
}


def _sequential(setting: SpecSetting) -> SpecSetting:
    return setting.with_scheduler("sequential")


def _v2_by_default(setting: SpecSetting) -> Ruling:
    """Rules of 0.5.11 and 0.5.12 (0.5.12.post1 ``server_args.py:3748-3771``)."""
    if setting.topk > 1:
        rule = (
            '"Spec v1 is used for eagle/eagle3/standalone speculative decoding because spec v2 '
            'currently only supports topk = 1." (0.5.11-0.5.12)'
        )
        # Asked for or not, the engine silently takes v1; only an asked overlap is a what-if.
        return Ruling(rule, _sequential(setting), bends=setting.scheduler == "overlap")
    if setting.scheduler == "sequential":
        return Ruling("spec v1, sequential: needs env SGLANG_ENABLE_SPEC_V2=False", setting)
    return Ruling("", setting.with_scheduler("overlap"))


def _v2_only(setting: SpecSetting) -> Ruling:
    """Rules from 0.5.13 on: the v1 worker is gone, v2 takes trees."""
    if setting.scheduler == "sequential":
        return Ruling(
            '"Non-overlap (synchronous) spec v2 is used" (0.5.13+): needs '
            "--disable-overlap-schedule; the v1 worker is gone",
            setting,
        )
    return Ruling("", setting.with_scheduler("overlap"))


RULES = (
    listed,
    _mixed_chunk,
    _tree_on_pages,
    _chain_tokens,
    _plain_scheduler,
    _ngram_scheduler,
    _spec_scheduler,
)
