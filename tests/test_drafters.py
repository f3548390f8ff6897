"""Families of drafters: settings, plans, shapes, prices, and a drafter that drafts nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.acceptance import accept_table
from specsim.acceptance.prior import default_acceptance
from specsim.architecture import DraftKind, load_draft, load_model
from specsim.calibrate.fit import fit_profile
from specsim.cost.forward import BLOCK_ROW_S, depth_s, draft_forward_s
from specsim.cost.rounds import round_time
from specsim.draft_sharding import shard_draft
from specsim.engine import EngineSpec
from specsim.errors import FormatError, InputError, SpecsimError
from specsim.observations import Observations, observations_from_rows
from specsim.profile import Profile, profile_from_toml, profile_to_toml
from specsim.server import DraftSpec, HardwareSpec, ModelSpec, Setup
from specsim.server.system import System, assemble
from specsim.setting import FAMILIES, FAMILY_OF, Algorithm, SpecSetting, parse_algorithm

ROOT = Path(__file__).parents[1]
LLAMA = load_model("llama-3.1-8b")


def server(draft: str, gpus: int = 1, **about: object) -> System:
    return assemble(
        Setup(
            HardwareSpec("h100-sxm", gpus, "nvlink4" if gpus > 1 else "none"),
            ModelSpec("llama-3.1-8b"),
            EngineSpec("vllm", "0.33.0", tp=gpus),
            DraftSpec(draft, **about),  # type: ignore[arg-type]
        )
    )


# --- names


def test_every_algorithm_has_one_family_and_every_kind_an_algorithm() -> None:
    members = [name for names in FAMILIES.values() for name in names]
    assert sorted(members) == sorted(get_args(Algorithm))
    for kind in get_args(DraftKind):
        assert parse_algorithm(kind) in FAMILY_OF


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("p-eagle", "P_EAGLE"), ("PEagle", "P_EAGLE"), ("dflash", "DFLASH"), ("ngram_gpu", "NGRAM")],
)
def test_names_that_engines_use(name: str, algorithm: str) -> None:
    assert parse_algorithm(name) == algorithm


@given(st.integers(2, 64), st.sampled_from(FAMILIES["block"]))
def test_the_depth_of_a_block_follows_from_its_tokens(tokens: int, algorithm: Algorithm) -> None:
    """SGLang calls the steps of a block drafter 1, whatever its block."""
    for steps in (None, 1, tokens - 1):
        setting = SpecSetting.of(1, steps, tokens, algorithm)
        assert setting.key == (tokens - 1, 1, tokens)


def test_a_block_is_a_chain() -> None:
    with pytest.raises(InputError, match="one forward drafts one chain"):
        SpecSetting.of(2, 3, algorithm="DSPARK")


# --- plans


@pytest.mark.parametrize(
    ("algorithm", "forwards", "rows", "follows"),
    [
        ("EAGLE3", 4, 1, True),
        ("DFLASH", 1, 5, True),
        ("P_EAGLE", 1, 5, True),
        ("MEDUSA", 5, 1, False),
        ("NGRAM", 0, 1, False),
        ("SUFFIX", 0, 1, False),
        ("UNO", 0, 1, False),
    ],
)
def test_how_a_family_drafts(algorithm: Algorithm, forwards: int, rows: int, follows: bool) -> None:
    plan = server("ngram").plan(SpecSetting.of(1, 5, algorithm=algorithm), what_if=True)
    assert (plan.draft_forwards, plan.draft_rows) == (forwards, rows)
    assert (plan.draft_extend != "none") == follows
    assert plan.verified_per_request == (11 if algorithm == "UNO" else 6)


# --- shapes


def test_a_block_drafter_has_its_layers_and_the_targets_head() -> None:
    draft = load_draft("dflash", LLAMA)
    assert draft.shape is not None
    assert draft.shape.layers == 5
    assert not draft.own_head
    assert draft.fc_params == 5 * LLAMA.hidden**2
    part = shard_draft(draft, LLAMA)
    layers = 5 * (LLAMA.attention_groups[0].params.total + 3 * LLAMA.hidden * LLAMA.ffn_inter)
    assert part.weight_bytes_per_gpu == pytest.approx(2 * (layers + draft.fc_params), rel=1e-3)
    assert part.kv_bytes_per_token == 5 / LLAMA.layers * LLAMA.kv_bytes_per_token()


def test_medusa_is_five_heads_of_which_a_depth_reads_one() -> None:
    part = shard_draft(load_draft("medusa", LLAMA), LLAMA)
    one = 2 * (LLAMA.hidden**2 + LLAMA.head_params)
    assert (part.depth_bytes, part.weight_bytes_per_gpu) == (one, 5 * one)
    assert part.kv_bytes_per_token == 0


def test_a_multi_layer_mtp_is_in_memory_with_all_its_layers() -> None:
    model = replace(LLAMA, mtp_layers=3)
    one = shard_draft(load_draft("mtp", replace(LLAMA, mtp_layers=1)), LLAMA)
    three = shard_draft(load_draft("mtp", model), model)
    assert three.weight_bytes_per_gpu == pytest.approx(3 * one.weight_bytes_per_gpu)
    assert three.kv_bytes_per_token == 3 * one.kv_bytes_per_token
    assert three.step_bytes == one.step_bytes


EAGLE3_CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
}


def config(folder: Path, **changes: object) -> str:
    path = folder / "drafter" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({k: v for k, v in {**EAGLE3_CONFIG, **changes}.items() if v}))
    return str(path)


def test_a_drafters_config_is_read(tmp_path: Path) -> None:
    """The published shape of SpecForge's drafter is the generic one of the library."""
    draft, generic = load_draft(config(tmp_path), LLAMA), load_draft("eagle3", LLAMA)
    assert (draft.id, draft.kind, draft.own_head) == ("drafter", "eagle3", True)
    assert shard_draft(draft, LLAMA).step_bytes == shard_draft(generic, LLAMA).step_bytes
    assert (
        shard_draft(draft, LLAMA).weight_bytes_per_gpu
        == shard_draft(generic, LLAMA).weight_bytes_per_gpu
    )


def test_kinds_of_configs(tmp_path: Path) -> None:
    block = {"draft_vocab_size": None, "num_hidden_layers": 5}
    flash = load_draft(
        config(
            tmp_path,
            architectures=["DFlashDraftModel"],
            dflash_config={"target_layer_ids": [1, 8, 15, 22, 29]},
            **block,
        ),
        LLAMA,
    )
    assert flash == replace(
        load_draft("dflash", LLAMA),
        id="drafter",
        shape=flash.shape,
    )
    spark = load_draft(
        config(tmp_path, architectures=["DSparkModel"], markov_rank=128, **block), LLAMA
    )
    assert (spark.kind, spark.depth_params) == ("dspark", 128 * LLAMA.vocab)
    plain = load_draft(config(tmp_path, architectures=["LlamaForCausalLM"], **block), LLAMA)
    assert plain.kind == "standalone"
    heads = load_draft(config(tmp_path, architectures=["MedusaModel"], medusa_num_heads=3), LLAMA)
    assert (heads.kind, heads.copies) == ("medusa", 3)
    with pytest.raises(InputError, match="vocabulary 32000"):
        load_draft(config(tmp_path, vocab_size=32000), LLAMA)
    with pytest.raises(FormatError, match="num_attention_heads"):
        load_draft(config(tmp_path, num_attention_heads=None), LLAMA)


@pytest.mark.parametrize(
    ("about", "kind"),
    [
        # as the library speculators writes it: the layer in a table of its own
        (
            {
                "architectures": ["Eagle3Speculator"],
                "model_type": None,
                "num_hidden_layers": None,
                "transformer_layer_config": {**EAGLE3_CONFIG, "architectures": None},
                "speculators_config": {"algorithm": "eagle3"},
            },
            "eagle3",
        ),
        ({"architectures": ["DFlashDraftModel"], "num_target_layers": 32}, "dflash"),
        # nothing but the name of its folder says so
        ({"architectures": ["LlamaForCausalLM"], "_folder": "EAGLE-8B"}, "eagle"),
        ({"architectures": ["LlamaForCausalLM"], "_folder": "L3.1-8B-P-EAGLE"}, "p_eagle"),
    ],
)
def test_ways_of_saying_what_a_drafter_is(
    tmp_path: Path, about: dict[str, object], kind: str
) -> None:
    path = Path(config(tmp_path, **about))
    folder = path.parent.rename(tmp_path / str(about.get("_folder", "drafter")))
    assert load_draft(str(folder / path.name), LLAMA).kind == kind


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "of which kind is not said"),
        ({"target_hidden_size": 2048}, "width 2048"),
        ({"model_type": "mlp_speculator", "architectures": None, "num_hidden_layers": 2}, "mlp_sp"),
        ({"architectures": ["DeepSeekMTPModel"]}, "without a multi-token-prediction layer"),
    ],
)
def test_configs_that_are_no_drafter_of_the_target(
    tmp_path: Path, about: dict[str, object], words: str
) -> None:
    with pytest.raises(SpecsimError, match=words):
        load_draft(config(tmp_path, **about), LLAMA)


def test_a_drafter_on_one_gpu_of_several() -> None:
    """All of it on each, no all-reduce: [draft] tp = 1."""
    alone, shared = server("eagle3", 4, tp=1).cost, server("eagle3", 4).cost
    assert alone.draft is not None
    assert shared.draft is not None
    assert alone.draft.step_bytes > 3 * shared.draft.step_bytes
    expected = draft_forward_s(server("eagle3").cost, 8, 0.0, 8)
    assert draft_forward_s(alone, 8, 0.0, 8) == pytest.approx(float(expected))
    with pytest.raises(InputError, match="neither 1 nor the 4"):
        server("eagle3", 4, tp=2)


def test_expert_parallelism_leaves_a_dense_drafter_alone() -> None:
    kimi = load_model("kimi-k2.5")
    draft = load_draft("eagle3", kimi)
    assert shard_draft(draft, kimi, tp=8, ep=8).step_bytes == (
        shard_draft(draft, kimi, tp=8).step_bytes
    )


def test_what_does_not_fit_is_said_before_a_launch() -> None:
    """70B in bf16 fits two cards of 80 GB barely; a drafter of 8B does not go with it."""
    setup = Setup(
        HardwareSpec("h100-sxm", 2, "nvlink4"),
        ModelSpec("llama-3.1-70b", quantisation="fp8"),
        EngineSpec("vllm", "0.33.0", tp=2, mem_fraction_static=0.5),
        DraftSpec("llama-3.1-8b"),
    )
    system = assemble(setup)
    system.kv_pool_tokens(system.plan(SpecSetting.none()))
    with pytest.raises(InputError, match="do not fit"):
        system.kv_pool_tokens(system.plan(SpecSetting.of(1, 3, algorithm="STANDALONE")))


# --- prices


@given(st.integers(1, 256), st.integers(1, 16))
def test_a_block_is_one_forward_whatever_its_depth(batch: int, depth: int) -> None:
    """Weights are read once for all depths; a row of logits is sampled for each (DEPTHS)."""
    cost = server("dflash").cost
    time = round_time(cost, batch, depth + 1, 0.0, topk=depth, draft_forwards=1)
    rows = float(batch * depth)
    forward = draft_forward_s(cost, rows, 0.0, rows)
    assert time.draft_s == pytest.approx(float(forward) + BLOCK_ROW_S * rows)


def test_features_of_a_block_drafter_cost_their_projection_only() -> None:
    cost = server("dflash").cost
    assert draft_forward_s(cost, 8, 1e6, 8, extend=True) < 0.5 * draft_forward_s(cost, 8, 0.0, 8)


def test_each_head_is_read_once_per_depth() -> None:
    cost = server("medusa").cost
    assert cost.draft is not None
    one, five = (float(depth_s(cost, np.array(1.0), np.array(s))) for s in (1.0, 5.0))
    assert five == pytest.approx(5 * one)
    assert one > cost.draft.depth_bytes / float(cost.bandwidth)
    assert float(round_time(cost, 1, 6, 0.0, draft_forwards=5).draft_s) == pytest.approx(five)


# --- a drafter that drafts nothing


def test_zero_steps_are_a_setting() -> None:
    idle = SpecSetting.of(1, 0, algorithm="MTP")
    assert (idle.key, idle.speculates, idle.drafts) == ((0, 1, 1), True, False)
    assert idle.title == idle.brief == "no drafts (MTP loaded)"
    with pytest.raises(InputError, match="nothing is drafted in 0 steps"):
        SpecSetting("MTP", 2, 0, 4)
    with pytest.raises(InputError, match="at least 0"):
        SpecSetting.of(1, -1)


def test_zero_steps_keep_memory_and_pay_overhead_and_extend() -> None:
    system = server("eagle3")
    none, idle, chain = (
        system.plan(SpecSetting.none()),
        system.plan(SpecSetting.of(1, 0)),
        system.plan(SpecSetting.of(1, 3)),
    )
    assert system.kv_pool_tokens(idle) == system.kv_pool_tokens(chain) < system.kv_pool_tokens(none)
    assert idle.max_running_requests == chain.max_running_requests
    assert (idle.draft_forwards, idle.extend_tokens_per_request(1.0)) == (0, 1.0)


# --- acceptance belongs to a drafter


LOADS = ((1, 140.0), (8, 900.0), (32, 2400.0))


def rows(*further: dict[str, object]) -> Observations:
    cells = [
        {"kind": "closed_loop", "algorithm": "none", "concurrency": c, "output_tps": tps}
        for c, tps in LOADS
    ]
    return observations_from_rows([*cells, *further])


def eagle(**about: object) -> dict[str, object]:
    row = {"kind": "closed_loop", "algorithm": "EAGLE3", "num_steps": 3, "concurrency": 1}
    return {**row, "output_tps": 230.0, "accept_length": 2.6} | about


LOOKUP = {
    "kind": "closed_loop",
    "algorithm": "NGRAM",
    "num_steps": 3,
    "concurrency": 1,
    "output_tps": 150.0,
    "accept_length": 1.3,
}


def fitted(*further: dict[str, object]) -> Profile:
    setup = server("eagle3").setup
    return fit_profile(setup, rows(*further).rows).profile


def length(profile: Profile, setting: SpecSetting) -> float:
    (table,) = profile.accept_tables([setting])
    return table.accept_length


EAGLE3, NGRAM = SpecSetting.of(1, 3), SpecSetting.of(1, 3, algorithm="NGRAM")


def test_a_lookups_row_does_not_move_the_drafters_acceptance() -> None:
    alone, both = fitted(eagle()), fitted(eagle(), LOOKUP)
    assert length(both, EAGLE3) == pytest.approx(length(alone, EAGLE3), rel=0.01)
    assert length(both, NGRAM) == pytest.approx(1.3, rel=0.03)
    assert [a.algorithm for a in both.acceptances] == ["", "NGRAM"]
    assert profile_from_toml(profile_to_toml(both), "again").acceptances == both.acceptances


def test_another_kind_of_drafter_has_the_prior_of_its_kind() -> None:
    profile = fitted(eagle(accept_length=3.4))
    prior = accept_table(default_acceptance("vllm", "NGRAM"), NGRAM).accept_length
    assert length(profile, NGRAM) == prior
    one_family = SpecSetting.of(1, 3, algorithm="EAGLE")
    assert length(profile, one_family) == length(profile, EAGLE3)


def test_accept_lengths_alone_calibrate_acceptance() -> None:
    """No throughput at all: the accept length moves, times stay at their priors."""
    row = {k: v for k, v in eagle(accept_length=2.1).items() if k != "output_tps"}
    setup = server("eagle3").setup
    profile = fit_profile(setup, observations_from_rows([row]).rows).profile
    assert length(profile, EAGLE3) == pytest.approx(2.1, rel=0.03)
    assert not any(p.fitted for p in profile.parameters if "accept" not in p.name)


def test_two_asked_depths_give_the_loss_of_asking() -> None:
    """vllm#48892: a first token of .836 where one is asked for, .757 where eight are."""
    deep = (0.757, 0.601, 0.498, 0.411, 0.354, 0.298, 0.261, 0.223)
    eight = {f"survival_{d}": s for d, s in enumerate(deep, 1)}
    profile = fitted(
        eagle(num_steps=1, accept_length=1.84, survival_1=0.836),
        eagle(num_steps=8, accept_length=4.4, **eight),
    )
    assert length(profile, SpecSetting.of(1, 1)) == pytest.approx(1.84, rel=0.02)
    assert length(profile, SpecSetting.of(1, 8)) == pytest.approx(4.4, rel=0.02)
    (found,) = profile.acceptances
    assert (found.asked_depth, found.asked_loss) == (8, pytest.approx(0.237, abs=0.01))
