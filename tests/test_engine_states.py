"""Four engines, and the states that their servers may be in: modelled with a note, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specsim.engine import EngineSpec, RunPlan, engine_named, engine_names, padded_batch
from specsim.engine.flags import flags_of
from specsim.engine.rules import rows
from specsim.engine.rulings import state_notes
from specsim.engine.sglang import adaptive_table
from specsim.errors import EngineRefusal, InputError
from specsim.predict import predict
from specsim.profile import load_profile
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.question import Question
from specsim.server import setup_from_mapping, setup_to_mapping
from specsim.server.system import assemble
from specsim.setting import Scheduler, SpecSetting
from specsim.simulate import sglang_default

GIB = 2**30
CHAIN = SpecSetting.of(1, 3)

GIVEN: dict[str, object] = {
    "disable_cuda_graph": True,
    "dp": 2,
    "pp": 2,
    "dcp": 2,
    "disaggregation": "decode",
    "a2a_backend": "deepep",
    "mixed_chunk": True,
    "verification": "rejection",
}
REFUSED = {
    # (state, engine): what the message names; everything else is modelled, and its note says so
    **{("pp", engine): "pipeline parallelism" for engine in engine_names()},
    ("dcp", "tensorrt-llm"): "decode context parallelism",
    ("dcp", "llama.cpp"): "no decode context parallelism",
    ("dp", "llama.cpp"): "no data-parallel attention",
    ("disaggregation", "llama.cpp"): "no split",
    ("a2a_backend", "llama.cpp"): "no expert parallelism",
}


def plan(engine: str, setting: SpecSetting = CHAIN, **state: object) -> RunPlan:
    record = engine_named(engine)
    spec = replace(EngineSpec(engine, record.newest, tp=4), **state)  # type: ignore[arg-type]
    return record.plan(setting, spec, 80 * GIB, False)


@pytest.mark.parametrize("engine", engine_names())
@pytest.mark.parametrize("state", GIVEN)
def test_a_state_is_modelled_with_its_note_or_refused_by_name(engine: str, state: str) -> None:
    given = {state: GIVEN[state]}
    if (state, engine) in REFUSED:
        with pytest.raises(InputError, match=REFUSED[state, engine]) as caught:
            plan(engine, **given)
        assert state in str(caught.value)
        return
    usual, under = plan(engine), plan(engine, **given)
    new = [note for note in under.notes if note not in usual.notes]
    assert len(new) == 1 + (state == "dp" and engine == "vllm")  # of its tables, too


def test_the_states_of_the_table_are_those_of_the_grid() -> None:
    shown = {row["field"] for row in rows("states", "vllm")}
    assert shown == set(GIVEN)
    own = [row["field"] for row in rows("states", "command") if row["engine"] == "command"]
    settings = {flag.setting for engine in engine_names() for flag in flags_of(engine)}
    derived = {"replicas", "chosen", "of_checkpoint", "cpu_layers"}
    assert set(own) <= settings | derived
    assert state_notes(EngineSpec("sglang", "0.5.23")) == []


@pytest.mark.parametrize("engine", ["sglang", "vllm", "tensorrt-llm"])
def test_without_graphs_every_batch_is_eager(engine: str) -> None:
    padded, eager = padded_batch(plan(engine, disable_cuda_graph=True), [1.0, 7.0])
    assert eager.all()
    assert padded.tolist() == [1.0, 7.0]


def test_a_prefill_server_is_refused() -> None:
    with pytest.raises(InputError, match="decodes nothing"):
        plan("sglang", disaggregation="prefill")


def changed(**engine: object) -> object:
    profile = load_profile()
    mapping = setup_to_mapping(profile.setup)
    mapping["engine"] |= engine
    return replace(profile, setup=setup_from_mapping(mapping))


@pytest.mark.parametrize("solver", ["analytic", "simulate"])
def test_a_decode_server_stops_for_no_prompt(solver: str) -> None:
    question = Question(concurrency=(4,), input_len=8000, output_len=200)
    usual = predict(load_profile(), question, solver=solver, seed=1)  # type: ignore[arg-type]
    split = predict(changed(disaggregation="decode"), question, solver=solver, seed=1)  # type: ignore[arg-type]
    for one, other in zip(usual.rows, split.rows, strict=True):
        assert other.output_tps > 1.1 * one.output_tps
        assert other.ttft_s < 0.2 * one.ttft_s
    cached = Question(concurrency=(4,), input_len=8000, output_len=200)
    assert predict(load_profile(), cached, solver="analytic").rows  # the usual server is untouched


def test_eager_rounds_of_a_small_model_cost_more() -> None:
    mapping = {
        "schema": "specsim.setup/1",
        "hardware": {"gpu": "h100-sxm"},
        "model": {"id": "smollm2-135m"},
        "engine": {"name": "sglang", "version": "0.5.23"},
        "draft": {"id": "eagle3"},
    }
    eager = mapping | {"engine": {**mapping["engine"], "disable_cuda_graph": True}}  # type: ignore[dict-item]
    question = Question(concurrency=(1, 8), settings=(SpecSetting.of(1, 3),))
    both = [
        predict(uncalibrated_profile(setup_from_mapping(m)), question, solver="analytic")
        for m in (mapping, eager)
    ]
    for one, other in zip(both[0].rows, both[1].rows, strict=True):
        assert other.output_tps < one.output_tps
    assert any("no CUDA graphs" in note for note in both[1].notes)


# --- rulings of the newest releases


@pytest.mark.parametrize(
    ("version", "setting", "state", "words"),
    [
        ("0.5.9", SpecSetting.of(1, 3, algorithm="STANDALONE"), {"dp": 2}, "standalone"),
        ("0.5.23", SpecSetting.of(1, 3, algorithm="NGRAM"), {"dp": 2}, "ngram"),
        ("0.5.22", SpecSetting.of(1, 7, algorithm="DFLASH"), {"dp": 2}, "DFLASH"),
        ("0.5.10", SpecSetting.of(1, 7, algorithm="DFLASH"), {}, "not in SGLang before 0.5.11"),
        ("0.5.15", SpecSetting.of(1, 7, algorithm="DSPARK"), {}, "not in SGLang before 0.5.16"),
        ("0.5.23", SpecSetting.of(1, 3, algorithm="UNO"), {}, "TP=PP=1"),
        ("0.5.23", SpecSetting.of(1, 3, algorithm="MEDUSA"), {}, "SGLang has no MEDUSA"),
        ("0.5.23", SpecSetting.of(2, 3), {"verification": "block"}, "use topk 1"),
        ("0.5.13", SpecSetting.of(1, 3), {"verification": "rejection"}, "before 0.5.14"),
        (
            "0.5.23",
            SpecSetting.of(1, 3, algorithm="STANDALONE"),
            {"verification": "rejection"},
            "of EAGLE, EAGLE3, MTP only",
        ),
        (
            "0.5.23",
            SpecSetting.of(2, 3, algorithm="NGRAM"),
            {"page_size": 64, "attention_backend": "fa3"},
            "page_size > 1",
        ),
    ],
)
def test_sglang_refuses(
    version: str, setting: SpecSetting, state: dict[str, object], words: str
) -> None:
    engine = replace(EngineSpec("sglang", version, tp=4), **state)  # type: ignore[arg-type]
    with pytest.raises(EngineRefusal, match=words):
        engine_named("sglang").plan(setting, engine, 80 * GIB, False)


def test_ngram_overlaps_from_0_5_14() -> None:
    ngram = SpecSetting.of(1, 3, algorithm="NGRAM")
    kinds = {}
    for version in ("0.5.13", "0.5.14"):
        engine = EngineSpec("sglang", version)
        kinds[version] = engine_named("sglang").plan(ngram, engine, 80 * GIB, False).timeline
    assert kinds["0.5.13"] == "sequential"
    assert kinds["0.5.14"] != "sequential"


def test_dflash_takes_attention_ranks_with_its_own_head() -> None:
    dflash = SpecSetting.of(1, 7, algorithm="DFLASH")
    notes = plan("sglang", dflash, dp=2).notes
    assert any("--enable-dp-lm-head" in note for note in notes)


def test_the_adaptive_table_follows_the_release() -> None:
    tables = {v: adaptive_table(v) for v in ("0.5.13", "0.5.19", "0.5.20", "0.5.23")}
    assert tables["0.5.13"] == {1: (1, 3, 7), 8: (1, 3), 32: (1,)}
    assert tables["0.5.19"][1] == (1, 3, 7)
    assert tables["0.5.20"] == tables["0.5.23"] == adaptive_table()
    assert next(tier.steps for tier in sglang_default("0.5.13").tiers) == (1, 3, 7)


def test_mixed_chunks_follow_release_and_drafter() -> None:
    record = engine_named("sglang")
    for version, algorithm, prefill in (
        ("0.5.19", "EAGLE3", "first"),
        ("0.5.20", "EAGLE3", "mixed"),
        ("0.5.23", "STANDALONE", "first"),
        ("0.5.9", "none", "mixed"),
    ):
        setting = SpecSetting.of(1, 3, algorithm=algorithm)  # type: ignore[arg-type]
        engine = EngineSpec("sglang", version, mixed_chunk=True)
        assert record.plan(setting, engine, 80 * GIB, False).prefill == prefill


@pytest.mark.parametrize(
    ("model", "kv_dtype", "version", "words"),
    [
        ("deepseek-v3", "fp8", "0.24.0", "DCP not support fp8 kvcache"),
        ("deepseek-v3", "fp8", "0.25.0", None),
        ("deepseek-v3", "bf16", "0.24.0", None),
        ("gpt-oss-120b", "bf16", "0.33.0", "DCP not support sliding window"),
        ("qwen3-next-80b-a3b", "bf16", "0.25.0", "DCP not support hybrid attn"),
        ("qwen3-next-80b-a3b", "bf16", "0.26.0", None),
        ("qwen3-235b-a22b", "fp8", "0.24.0", None),  # only latent attention refuses it
    ],
)
def test_vllm_shares_out_the_caches_that_its_release_can(
    model: str, kv_dtype: str, version: str, words: str | None
) -> None:
    mapping: dict[str, object] = {
        "schema": "specsim.setup/1",
        "hardware": {"gpu": "h200-sxm", "gpu_count": 16},
        "model": {"id": model},
        "engine": {
            "name": "vllm",
            "version": version,
            "tp": 16,
            "kv_dtype": kv_dtype,
            "dcp": 2,
        },
    }
    system = assemble(setup_from_mapping(mapping))
    if words is None:
        assert system.plan(SpecSetting.none()).allowed
    else:
        with pytest.raises(InputError, match=words):
            system.plan(SpecSetting.none())
        assert system.plan(SpecSetting.none(), what_if=True)


# --- vLLM's defaults


@pytest.mark.parametrize(
    ("gpu", "gib", "version", "chunk", "requests"),
    [
        ("NVIDIA A100 80GB", 79, "0.33.0", 2048, 256),
        ("NVIDIA GB10", 119, "0.33.0", 2048, 256),
        ("NVIDIA H100", 79, "0.33.0", 8192, 1024),
        ("NVIDIA B200", 178, "0.33.0", 16384, 1024),
        ("NVIDIA B200", 178, "0.24.0", 8192, 1024),
        ("NVIDIA L40S", 44, "0.33.0", 2048, 256),
    ],
)
def test_vllm_budgets_by_device(
    gpu: str, gib: float, version: str, chunk: int, requests: int
) -> None:
    record = engine_named("vllm")
    memory = record.class_bytes(gpu, gib * GIB)
    made = record.plan(CHAIN, EngineSpec("vllm", version), memory, False)
    assert (made.chunked_prefill_size, made.max_running_requests) == (chunk, requests)


def test_vllm_graph_sizes() -> None:
    record = engine_named("vllm")
    plain = record.plan(SpecSetting.none(), EngineSpec("vllm", "0.28.0"), 79 * GIB, False)
    sizes = plain.graph_batch_sizes
    assert sizes[:4] == (1, 2, 4, 8)
    assert {248, 256, 272, 512} <= set(sizes)
    assert not {264, 520} & set(sizes)
    five = SpecSetting.of(1, 4)
    before = record.plan(five, EngineSpec("vllm", "0.29.0"), 178 * GIB, False).graph_batch_sizes
    after = record.plan(five, EngineSpec("vllm", "0.30.0"), 178 * GIB, False).graph_batch_sizes
    assert {5, 10, 20, 40} <= set(after)
    # whole requests, the largest below the bound: 1024 would be 1025
    assert {5, 10, 20, 25, 35, 1010} <= set(before)
    assert max(before) == 1010
    assert not any(size % 5 for size in before)
    old = record.plan(five, EngineSpec("vllm", "0.11.0"), 79 * GIB, False).graph_batch_sizes
    assert {1, 2, 4, 8, 16, 24} <= set(old)


def test_four_requests_of_three_tokens_run_as_six() -> None:
    """vLLM 0.24 captures 18 tokens for 16; 3, 6 and 24 it captures as they are."""
    three = SpecSetting.of(1, 2, algorithm="MTP")
    made = engine_named("vllm").plan(three, EngineSpec("vllm", "0.24.0"), 95 * GIB, False)
    padded, eager = padded_batch(made, [1, 2, 4, 8, 16])
    assert padded.tolist() == [1, 2, 6, 8, 16]
    assert not eager.any()


@pytest.mark.parametrize(
    ("version", "algorithm", "words"),
    [
        ("0.33.0", "MEDUSA", "medusa is gone"),
        ("0.24.0", "DSPARK", "not in vLLM before 0.28.0"),
        ("0.33.0", "UNO", "vLLM has no UNO"),
    ],
)
def test_vllm_refuses(version: str, algorithm: str, words: str) -> None:
    setting = SpecSetting.of(1, 3, algorithm=algorithm)  # type: ignore[arg-type]
    with pytest.raises(EngineRefusal, match=words):
        engine_named("vllm").plan(setting, EngineSpec("vllm", version), 80 * GIB, False)


@pytest.mark.parametrize("scheduler", ["auto", "overlap"])
def test_speculation_on_a_cpu_does_not_overlap(scheduler: Scheduler) -> None:
    """SGLang 0.5.19, ``speculative_hook.py``; plain decoding there does."""
    mapping = {
        "schema": "specsim.setup/1",
        "hardware": {"gpu": "cpu-generic"},
        "model": {"id": "llama-3.2-1b"},
        "engine": {"name": "sglang", "version": "0.5.19"},
    }
    system = assemble(setup_from_mapping(mapping))
    drafting = system.plan(replace(CHAIN, scheduler=scheduler))
    assert (drafting.timeline, drafting.allowed) == ("sequential", True)
    assert any("on CPU" in note for note in drafting.notes)
    assert system.plan(SpecSetting.none()).timeline == "run_ahead"
