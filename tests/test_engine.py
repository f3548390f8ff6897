"""Engine rules by version, row by row: trees, overlap, and what a plan holds."""

from __future__ import annotations

from typing import Any

import pytest
from engines import CHAIN, TREE, Server, sglang, spec
from hypothesis import given
from hypothesis import strategies as st

from specsim.engine import EngineSpec, RunPlan, engine_named, with_draft_share
from specsim.errors import EngineRefusal, InputError, UnknownNameError
from specsim.setting import Algorithm, Scheduler, SpecSetting

# --- which scheduler a version takes

# version, topk, asked scheduler -> scheduler that runs, words of the note
RUNS = [
    # 0.4.1-0.5.2: v1 only; an asked overlap is switched off with a warning
    ("0.4.1", 4, "auto", "sequential", "v1"),
    ("0.4.6", 1, "overlap", "sequential", "Overlap scheduler is disabled"),
    ("0.5.2", 1, "auto", "sequential", "v1"),
    ("0.5.2", 4, "sequential", "sequential", ""),
    # 0.5.3: v2 behind --enable-beta-spec (0.5.4 itself too)
    ("0.5.3.post1", 1, "auto", "sequential", "--enable-beta-spec"),
    ("0.5.3", 1, "overlap", "overlap", "--enable-beta-spec"),
    ("0.5.4", 1, "overlap", "overlap", "--enable-beta-spec"),
    # 0.5.4-0.5.10: env SGLANG_ENABLE_SPEC_V2, default False
    ("0.5.4.post1", 1, "overlap", "overlap", "SGLANG_ENABLE_SPEC_V2=True"),
    ("0.5.9", 1, "auto", "sequential", "SGLANG_ENABLE_SPEC_V2=True"),
    ("0.5.9", 1, "overlap", "overlap", "SGLANG_ENABLE_SPEC_V2=True"),
    ("0.5.9", 4, "auto", "sequential", "v1"),
    ("0.5.10.post1", 4, "sequential", "sequential", ""),
    # 0.5.11-0.5.12: v2 by default, trees silently fall back to v1
    ("0.5.11", 1, "auto", "overlap", ""),
    ("0.5.12.post1", 1, "sequential", "sequential", "SGLANG_ENABLE_SPEC_V2=False"),
    ("0.5.11", 4, "auto", "sequential", "Spec v1 is used"),
    ("0.5.12.post1", 4, "overlap", "sequential", "Spec v1 is used"),
    # 0.5.13+: v1 deleted, v2 takes trees
    ("0.5.13", 4, "auto", "overlap", ""),
    ("0.5.13", 4, "overlap", "overlap", ""),
    ("0.5.23", 4, "sequential", "sequential", "Non-overlap (synchronous) spec v2"),
    ("main", 1, "auto", "overlap", ""),
]


@pytest.mark.parametrize(("version", "topk", "asked", "runs", "note"), RUNS)
def test_scheduler_by_version(
    version: str, topk: int, asked: Scheduler, runs: Scheduler, note: str
) -> None:
    algorithm: Algorithm = "EAGLE" if version == "0.4.1" else "EAGLE3"
    plan = sglang(version).plan(spec(topk, asked, algorithm))
    assert plan.allowed
    assert not plan.what_if
    assert plan.reason is None
    assert plan.setting.scheduler == runs
    assert note in " ".join(plan.notes)
    assert bool(plan.notes) == bool(note)


# version, setting, extra of the set-up -> words of the rule, of the remedy
REFUSED: list[tuple[str, SpecSetting, dict[str, Any], str, str]] = [
    # topk > 1 with v2
    ("0.5.3", spec(4, "overlap"), {}, "crashes", "0.5.13"),
    ("0.5.6", spec(4, "overlap"), {}, "13352", "sequential"),
    (
        "0.5.7",
        spec(4, "overlap"),
        {},
        "Spec v2 currently only supports topk = 1 for speculative decoding.",
        "0.5.13",
    ),
    ("0.5.10.post1", spec(2, "overlap"), {}, "0.5.7-0.5.10", "sequential"),
    # page size
    ("0.5.2", TREE, {"page_size": 16, "attention_backend": "fa3"}, "page_size > 1", "page_size 1"),
    ("0.5.9", TREE, {"page_size": 16, "attention_backend": "triton"}, "page_size > 1", "fa3"),
    ("0.5.13", TREE, {"page_size": 64, "attention_backend": "flashmla"}, "got attention", "triton"),
    # trtllm_mha is topk 1 only
    ("0.5.9", TREE, {"attention_backend": "trtllm_mha"}, "only supports topk = 1", "topk 1"),
    ("0.5.23", TREE, {"attention_backend": "TRTLLM_MHA"}, "only supports topk = 1", "another"),
    # algorithms that are not there yet
    ("0.4.0", spec(1, "auto", "EAGLE"), {}, "before 0.4.1", "0.4.1"),
    ("0.4.4", spec(1, "auto"), {}, "EAGLE3 is not in SGLang", "0.4.4.post1"),
    ("0.5.1", spec(1, "auto", "STANDALONE"), {}, "before 0.5.2", "0.5.2"),
    ("0.5.2", spec(1, "auto", "NGRAM"), {}, "before 0.5.3", "0.5.3"),
]


@pytest.mark.parametrize(("version", "setting", "extra", "rule", "remedy"), REFUSED)
def test_refusals_name_rule_version_and_remedy(
    version: str, setting: SpecSetting, extra: dict[str, Any], rule: str, remedy: str
) -> None:
    engine = sglang(version, **extra)
    with pytest.raises(EngineRefusal) as caught:
        engine.plan(setting)
    error = caught.value
    assert rule in error.rule
    assert error.version == version
    assert version in str(error)
    assert remedy in error.remedy
    assert "--what-if" in error.remedy
    assert setting.label in str(error)

    plan = engine.plan(setting, what_if=True)
    assert plan.what_if
    assert not plan.allowed
    assert plan.reason is not None
    assert rule in plan.reason
    assert (plan.setting.topk, plan.setting.num_draft_tokens) == (
        setting.topk,
        setting.num_draft_tokens,
    )
    assert plan.setting.scheduler == setting.scheduler or setting.scheduler == "auto"


@pytest.mark.parametrize("version", ["0.4.6", "0.5.12"])
def test_what_if_keeps_an_overlap_that_the_engine_would_drop(version: str) -> None:
    plan = sglang(version).plan(spec(4, "overlap"), what_if=True)
    assert plan.what_if
    assert plan.setting.scheduler == "overlap"
    assert plan.timeline == "overlap"


@pytest.mark.parametrize(("version", "topk", "asked", "runs", "note"), RUNS)
def test_what_if_changes_nothing_that_is_not_bent(
    version: str, topk: int, asked: Scheduler, runs: Scheduler, note: str
) -> None:
    if asked == runs or asked == "auto":
        setting, engine = spec(topk, asked, "EAGLE"), sglang(version)
        assert engine.plan(setting, what_if=True) == engine.plan(setting)


@pytest.mark.parametrize("backend", ["flashinfer", "fa3"])
def test_trees_on_pages_where_they_run(backend: str) -> None:
    assert sglang("0.5.9", page_size=16, attention_backend=backend).plan(TREE).allowed
    for version in ("0.5.13", "0.5.23"):
        assert sglang(version, page_size=16, attention_backend="triton").plan(TREE).allowed


@pytest.mark.parametrize("version", ["0.4.5", "0.4.8"])
def test_trees_on_pages_became_chains(version: str) -> None:  # 0.4.4-0.4.8
    engine = sglang(version, page_size=16)
    plan = engine.plan(TREE)
    assert (plan.setting.topk, plan.setting.num_draft_tokens) == (1, 3)
    assert "adjusted to 1" in plan.notes[0]
    assert engine.plan(TREE, what_if=True).setting.topk == 4


@pytest.mark.parametrize(("version", "tokens"), [("0.4.4.post1", 3), ("0.4.5", 6), ("0.5.23", 6)])
def test_chain_verifies_all_its_drafts(version: str, tokens: int) -> None:  # from 0.4.5
    asked = SpecSetting("EAGLE3", 1, 5, 3)
    for what_if in (False, True):
        plan = sglang(version).plan(asked, what_if=what_if)
        assert plan.setting.num_draft_tokens == tokens
        assert ("adjusted" in " ".join(plan.notes)) == (tokens == 6)


@pytest.mark.parametrize(
    ("version", "asked", "runs"),
    [
        ("0.3.6", "auto", "sequential"),
        ("0.4.0", "auto", "overlap"),
        ("0.5.9", "auto", "overlap"),
        ("0.5.23", "sequential", "sequential"),
    ],
)
def test_plain_decoding(version: str, asked: Scheduler, runs: Scheduler) -> None:
    plan = sglang(version).plan(SpecSetting.none(asked))
    assert plan.setting == SpecSetting.none(runs)
    assert plan.timeline == ("run_ahead" if runs == "overlap" else "sequential")
    assert plan.finish_lag_rounds == (1 if runs == "overlap" else 0)
    assert plan.draft_extend == "none"
    assert plan.extend_tokens_per_request(1.0) == 0
    assert plan.reserved_tokens_per_request == 1
    assert plan.draft_forwards == 0


def test_ngram_overlaps_by_0_5_23() -> None:
    for version, runs in (("0.5.9", "sequential"), ("0.5.13", "sequential"), ("0.5.23", "overlap")):
        plan = sglang(version).plan(spec(4, "auto", "NGRAM"))
        assert plan.setting.scheduler == runs
        assert plan.draft_extend == "none"
        assert plan.draft_forwards == 0


# --- the round


@pytest.mark.parametrize(
    ("version", "backend", "timeline"),
    [
        ("0.5.9", "triton", "overlap"),
        ("0.5.12", "trtllm_mla", "overlap"),
        ("0.5.13", "triton", "run_ahead"),
        ("0.5.13", "trtllm_mla", "run_ahead"),
        ("0.5.13", "trtllm_mha", "overlap"),
        ("0.5.14", "trtllm_mha", "run_ahead"),
        ("0.5.15", "dsa", "run_ahead"),
        ("0.5.17", "fa3", "overlap"),
        ("0.5.18", "fa3", "run_ahead"),
        ("0.5.23", "flashinfer", "overlap"),
        ("0.5.23", "FlashMLA", "run_ahead"),
        ("0.5.23", None, "overlap"),
    ],
)
def test_timeline_of_v2(version: str, backend: str | None, timeline: str) -> None:
    plan = sglang(version, attention_backend=backend).plan(spec(1, "overlap"))
    assert plan.timeline == timeline
    assert plan.finish_lag_rounds == 1
    assert ("not stated" in " ".join(plan.notes)) == (backend is None)


@pytest.mark.parametrize(
    ("version", "scheduler", "topk", "extend", "tokens", "reserve"),
    [
        ("0.5.9", "sequential", 4, "accepted", 3, 1),  # padded to S + 1 in a graph
        ("0.5.9", "overlap", 1, "verify", 3, 2),
        ("0.5.13", "overlap", 4, "verify", 16, 2),
        ("0.5.13", "sequential", 4, "verify", 16, 2),  # synchronous v2
    ],
)
def test_extend_and_reserve(
    version: str, scheduler: Scheduler, topk: int, extend: str, tokens: int, reserve: int
) -> None:
    plan = sglang(version).plan(spec(topk, scheduler))
    assert plan.draft_extend == extend
    assert plan.extend_tokens_per_request(1.8) == tokens
    assert plan.extend_tokens_per_request(1.8, eager=True) == (
        1.8 if extend == "accepted" else tokens
    )
    assert plan.reserved_tokens_per_request == reserve * plan.alloc_tokens
    assert plan.draft_forwards == 1
    assert plan.prefill == "first"


@pytest.mark.parametrize(
    ("version", "backend", "eager"),
    [
        ("0.5.9", "flashinfer", True),  # eager except on Triton and TRTLLM-MLA
        ("0.5.9", "triton", False),
        ("0.5.9", "trtllm_mla", False),
        ("0.5.12.post1", "fa3", True),
        ("0.5.13", "trtllm_mha", False),
        ("0.5.23", "flashinfer", False),
    ],
)
def test_extend_without_a_graph(version: str, backend: str, eager: bool) -> None:
    engine = sglang(version, attention_backend=backend)
    assert engine.plan(spec(1, "overlap")).extend_eager is eager
    assert not engine.plan(SpecSetting.none()).extend_eager


@pytest.mark.parametrize(
    ("version", "setting", "page", "alloc"),
    [
        ("0.5.9", SpecSetting("EAGLE3", 1, 2, 3), 1, 3),  # max(S k, n)
        ("0.5.9", SpecSetting("EAGLE3", 4, 2, 16), 1, 16),
        ("0.5.9", SpecSetting("EAGLE3", 4, 5, 8), 1, 20),
        ("0.5.9", SpecSetting("EAGLE3", 4, 5, 8), 16, 20),
        ("0.5.13", SpecSetting("EAGLE3", 4, 5, 8), 16, 128),  # floor((32-2+5)/16) * 16 * 4
        ("0.5.13", SpecSetting("EAGLE3", 1, 5, 6), 16, 6),
    ],
)
def test_allocation(version: str, setting: SpecSetting, page: int, alloc: int) -> None:
    plan = sglang(version, page_size=page).plan(setting)
    assert plan.alloc_tokens == alloc


# --- everything holds together

any_setting = st.builds(
    lambda k, s, share, alg, sched: SpecSetting(
        alg, k, s, 2 + round(share * (k + (s - 1) * k * k - 1)), sched
    ),
    st.integers(1, 8),
    st.integers(1, 8),
    st.floats(0, 1),
    st.sampled_from(["EAGLE", "EAGLE3", "MTP", "STANDALONE", "NGRAM"]),
    st.sampled_from(["auto", "sequential", "overlap"]),
)
any_spec = st.builds(
    EngineSpec,
    st.sampled_from(["sglang", "vllm", "tensorrt-llm", "llama.cpp"]),
    st.sampled_from(["0.4.1", "0.4.6", "0.5.2", "0.5.3", "0.5.9", "0.5.12", "0.5.23", "main"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    attention_backend=st.sampled_from([None, "triton", "fa3", "flashinfer", "trtllm_mha"]),
    page_size=st.sampled_from([1, 16, 64]),
    max_running_requests=st.none() | st.integers(1, 512),
    cuda_graph_max_bs=st.none() | st.integers(1, 600),
)
any_engine = st.builds(Server, any_spec, st.floats(8e9, 300e9))


@given(any_setting | st.just(SpecSetting.none()), any_engine)
def test_every_plan_is_whole(setting: SpecSetting, engine: Server) -> None:
    plan = engine.plan(setting, what_if=True)
    assert plan.setting.scheduler in ("sequential", "overlap")
    assert plan.allowed == (plan.reason is None) == (not plan.what_if)
    assert plan.max_running_requests >= 1
    assert plan.reserved_tokens_per_request >= plan.alloc_tokens >= plan.setting.num_draft_tokens
    assert list(plan.graph_batch_sizes) == sorted(set(plan.graph_batch_sizes))
    assert (plan.timeline == "sequential") == (plan.setting.scheduler == "sequential")
    assert plan.finish_lag_rounds == (plan.setting.scheduler == "overlap")
    if plan.graph_unit == "requests":
        assert plan.graph_batch_sizes[-1] <= plan.max_running_requests
    rule = ""
    try:
        strict: RunPlan | None = engine.plan(setting)
    except EngineRefusal as refusal:
        strict, rule = None, refusal.rule
    if strict is None:
        assert rule in (plan.reason or "")
    elif plan.allowed:
        assert strict == plan


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"tp": 0}, "tp = 0"),
        ({"page_size": -1}, "page_size = -1"),
        ({"max_running_requests": 0}, "max_running_requests = 0"),
        ({"mem_fraction_static": 1.2}, "mem_fraction_static = 1.2"),
        ({"version": "soon"}, "is not a version"),
    ],
)
def test_impossible_set_ups(kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sglang().but(**kwargs)


def test_unknown_engine() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sglang'"):
        engine_named("sglan")
    with pytest.raises(UnknownNameError, match="did you mean 'sglang'"):
        Server(EngineSpec("sglan", "0.5.9"), 1e9).plan(CHAIN)


@pytest.mark.parametrize(("share", "verified"), [(1.0, 6.0), (0.24, 2.2), (0.01, 1.05)])
def test_a_lookup_verifies_only_what_it_finds(share: float, verified: float) -> None:
    """1 + q S: llama.cpp's ngram-simple drafted in 24 % of the rounds (own data)."""
    lookup = SpecSetting.of(1, 5, algorithm="NGRAM")
    plan = Server(EngineSpec("llama.cpp", "11434"), 1e10).plan(lookup)
    found = with_draft_share(plan, share)
    assert found.verified_per_request == pytest.approx(verified)
    assert found is with_draft_share(plan, share)  # equal plans are one, so rows group
