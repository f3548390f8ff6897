"""Library ids into a server: all-reduce by link and path, KV pool, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import kimi, llama, setup_of

from specsim.cost.allreduce import AllReduce
from specsim.cost.forward import target_time
from specsim.cost.model import cost_values
from specsim.errors import FormatError, InputError, SpecsimError, UnknownNameError
from specsim.hardware import load_link
from specsim.parameters import COST
from specsim.server import HardwareSpec, Setup, setup_from_mapping, setup_to_mapping
from specsim.server.system import (
    CUSTOM_PCIE_BYTES,
    System,
    allreduce_evidence,
    allreduce_of,
    assemble,
)
from specsim.setting import SpecSetting

# Sums and products of a few doubles.
ROUNDING = 1e-12

CHAIN = SpecSetting.of(1, 3)


def with_engine(setup: Setup, **changes: object) -> System:
    return assemble(replace(setup, engine=replace(setup.engine, **changes)))


def hardware(allreduce: object, link: str, gpus: int = 8) -> HardwareSpec:
    gpu = "rtx-pro-6000" if link.startswith("pcie") else "h100-sxm"
    return HardwareSpec(gpu, gpus, link, allreduce)


# --- assembly


def test_ids_become_hardware_and_shards() -> None:
    system = kimi()
    assert (system.gpu.id, system.cost.target.model.id) == ("rtx-pro-6000", "kimi-k2.5")
    assert (system.cost.target.tp, system.engine.tp) == (8, 8)
    assert system.cost.draft is not None


def test_a_server_without_a_drafter_has_none() -> None:
    assert assemble(setup_of("llama-3.1-8b", "h100-sxm")).cost.draft is None


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.24.0"), ("sglang", "0.5.9")])
def test_padding_rows_of_vllm_read_experts(engine: str, version: str) -> None:
    """What a prompt left behind the batch is routed; SGLang's rows count as one token."""
    cost = with_engine(kimi().setup, name=engine, version=version).cost
    exact, padded = (target_time(cost, 4.0, 3.0, 0.0, rows).experts_s for rows in (4.0, 6.0))
    assert bool(padded > 1.1 * exact) is (engine == "vllm")


def test_a_gpu_may_be_a_table() -> None:
    """An entry of one's own prices like the library's with the same numbers."""
    table = {"name": "mine", "mem_bytes": 80e9, "mem_bandwidth": 3e12, "flops_bf16": 9e14}
    mapping = setup_to_mapping(setup_of("llama-3.1-8b", "h100-sxm"))
    mapping["hardware"]["gpu"] = table
    system = assemble(setup_from_mapping(mapping, "test"))
    assert system.cost.bandwidth == 0.8 * 3e12  # the generic factor of an unmeasured GPU
    assert system.gpu.mem_bytes == 80e9


def test_parameters_reach_the_cost() -> None:
    parameters = cost_values(bandwidth=0.5)
    assert kimi().with_parameters(parameters).cost.parameters is parameters
    assert all(kimi().cost.parameters[name] == row.default for name, row in COST.items())


@pytest.mark.parametrize(
    ("model", "gpu", "link", "draft", "name"),
    [
        ("kimi-k9", "h100-sxm", "none", None, "kimi-k9"),
        ("llama-3.1-8b", "h1000", "none", None, "h1000"),
        ("llama-3.1-8b", "h100-sxm", "nvlink9", None, "nvlink9"),
        ("llama-3.1-8b", "h100-sxm", "none", "eagle9", "eagle9"),
    ],
)
def test_unknown_ids_name_what_is_known(
    model: str, gpu: str, link: str, draft: str | None, name: str
) -> None:
    with pytest.raises(UnknownNameError, match=f"{name}.*use one of|{name}.*did you mean"):
        assemble(setup_of(model, gpu, link=link, draft=draft))


def test_more_ranks_than_gpus_are_refused() -> None:
    with pytest.raises(InputError, match=r"tp 8: exceeds the 4 GPUs.*set gpu_count"):
        with_engine(setup_of("llama-3.1-70b", "h100-sxm", 4, "nvlink4"), tp=8)


def test_a_model_that_cannot_be_split_is_refused() -> None:
    with pytest.raises(InputError, match="tp 3"):
        assemble(setup_of("llama-3.1-8b", "h100-sxm", 3, "nvlink4"))


def test_a_setup_without_a_model_is_refused() -> None:
    mapping = setup_to_mapping(setup_of("llama-3.1-8b", "h100-sxm"))
    del mapping["model"]
    with pytest.raises(FormatError, match="model"):
        setup_from_mapping(mapping, "test")


# --- all-reduce


def test_one_gpu_needs_no_all_reduce() -> None:
    curve = allreduce_of(hardware("nccl", "none", 1), load_link("none"), 1)
    assert curve == AllReduce()
    assert allreduce_evidence(hardware("nccl", "none", 1), load_link("none"), 1) == "measured"


@pytest.mark.parametrize(
    ("path", "microseconds", "size"),
    [
        ("nccl", 27.0, 16_384),  # [@rtx6kpro-allreduce]: NCCL 2.29.2, eight RTX PRO 6000
        ("nccl", 131.5, 2**20),
    ],
)
def test_nccl_over_pcie_is_the_measured_curve(path: str, microseconds: float, size: int) -> None:
    """Library pieces were fitted to that table: 10 %, the fit's own worst row (17 % at 512 KiB)."""
    curve = allreduce_of(hardware(path, "pcie5-x16"), load_link("pcie5-x16"), 8)
    assert curve.time_s(size) * 1e6 == pytest.approx(microseconds, rel=0.1)


def test_custom_over_nvlink_is_the_engine_kernel() -> None:
    """H100, 8 GPUs, CUDA graph: 3.75 us at 16 KiB against 19 us of NCCL; library fit 10 %."""
    link = load_link("nvlink4")
    custom, nccl = (
        float(allreduce_of(hardware(path, "nvlink4"), link, 8).time_s(16_384)) * 1e6
        for path in ("custom", "nccl")
    )
    assert custom == pytest.approx(3.75, rel=0.1)
    assert nccl == pytest.approx(19.0, rel=0.1)


def test_custom_over_pcie_hands_over_to_nccl() -> None:
    """vLLM's patched kernel up to 56 KiB [@founding-case]: 7.5 us at 256 B and 16.5 us at 32 KiB.

    15 %: one page, one host, read off at two sizes.
    """
    link = load_link("pcie5-x16")
    custom, nccl = (allreduce_of(hardware(p, "pcie5-x16"), link, 8) for p in ("custom", "nccl"))
    assert custom.time_s([256, 32_768]) * 1e6 == pytest.approx([7.5, 16.5], rel=0.15)
    beyond = [CUSTOM_PCIE_BYTES, 2.0**20]
    assert custom.time_s(beyond).tolist() == nccl.time_s(beyond).tolist()


@given(size=st.floats(256, 2**24))
def test_fused_over_pcie_is_the_middle_of_what_it_may_be(size: float) -> None:
    """Nobody knows which path a fused kernel takes: a one-shot, a ring, or the better of them.

    The middle of both numbers is at most the geometric mean of both times (Cauchy), and above
    80 % of the faster one: they cross at 82 kB, where it is 19 % faster than either.
    """
    link = load_link("pcie5-x16")
    fused = float(allreduce_of(hardware("fused", "pcie5-x16"), link, 8).time_s(size))
    one_shot = 7e-6 + size / (link.bytes_per_s * 0.38 / 7)
    ring = 25e-6 + size / (link.bytes_per_s * 0.4 * 8 / 14)
    assert 0.8 * min(one_shot, ring) <= fused <= math.sqrt(one_shot * ring) * (1 + ROUNDING)
    assert allreduce_evidence(hardware("fused", "pcie5-x16"), link, 8) == "assumed"


def test_a_measured_table_overrides_the_library() -> None:
    """nccl-tests of one's own host; a straight line comes back as it is."""
    table = tuple((2**k, 40e-6 + 2**k / 5e9) for k in range(12, 24))
    measured = hardware(table, "pcie5-x16")
    curve = allreduce_of(measured, load_link("pcie5-x16"), 8)
    assert curve.time_s(100_000) == pytest.approx(60e-6, rel=1e-6)  # the fit's precision
    assert allreduce_evidence(measured, load_link("pcie5-x16"), 8) == "measured"


@pytest.mark.parametrize("path", ["nccl", "custom", "fused", "symmetric"])
@pytest.mark.parametrize("link", ["pcie3-x16", "pcie5-x16", "nvlink3", "nvlink5"])
@pytest.mark.parametrize("gpus", [2, 4, 6, 8])
def test_every_path_has_a_price(path: str, link: str, gpus: int) -> None:
    """Six GPUs and PCIe 3 were never measured: an assumed curve, and evidence that says so."""
    curve = allreduce_of(hardware(path, link, gpus), load_link(link), gpus)
    sizes = [0, 1024, 2.0**20, 2.0**26]
    times = curve.time_s(sizes)
    assert all(0 < t < 1 for t in times)
    if gpus == 6 or link == "pcie3-x16":
        evidence = allreduce_evidence(hardware(path, link, gpus), load_link(link), gpus)
        assert evidence == "assumed"


# --- KV pool


def pool(system: System, setting: SpecSetting) -> float:
    return system.kv_pool_tokens(system.plan(setting))


def test_a_logged_pool_is_taken_as_it_stands() -> None:
    assert pool(kimi(), SpecSetting.none()) == pytest.approx(200_000, rel=ROUNDING)


def test_a_drafter_takes_its_weights_and_cache_from_a_logged_pool() -> None:
    """Logged without speculation; memory is conserved when a drafter is added."""
    target, draft = kimi().cost.target, kimi().cost.draft
    assert draft is not None
    both = target.kv_bytes_per_token + draft.kv_bytes_per_token
    memory = 200_000 * target.kv_bytes_per_token - draft.weight_bytes_per_gpu
    assert pool(kimi(), CHAIN) == pytest.approx(memory / both, rel=ROUNDING)


def test_a_pool_logged_while_speculating_grows_without_the_drafter() -> None:
    setup = replace(kimi().setup, current=CHAIN)
    system = assemble(setup)
    assert pool(system, CHAIN) == pytest.approx(200_000, rel=ROUNDING)
    assert pool(system, SpecSetting.none()) > 200_000


def test_a_derived_pool_of_kimi() -> None:
    """Start-up logs say about 190k tokens in bf16; "145k-260k" as derived."""
    setup = replace(kimi().setup, engine=replace(kimi().setup.engine, kv_tokens=None))
    system = with_engine(setup, mem_fraction_static=0.88)
    assert 145_000 < pool(system, SpecSetting.none()) < 260_000
    assert pool(system, CHAIN) < pool(system, SpecSetting.none())


def test_data_parallel_ranks_pool_their_caches() -> None:
    """The log prints one rank's tokens; the pool is that of all eight, logged or derived.

    Derived, each rank also holds all of the attention weights, so it is under eight times one.
    """
    setup = kimi().setup
    logged = with_engine(setup, dp=8)
    assert pool(logged, SpecSetting.none()) == pytest.approx(8 * 200_000, rel=ROUNDING)
    derived = {"kv_tokens": None, "mem_fraction_static": 0.97}
    one, eight = (pool(with_engine(setup, dp=dp, **derived), SpecSetting.none()) for dp in (1, 8))
    assert 2 * one < eight < 8 * one


def test_the_pool_multiplier_scales() -> None:
    system = kimi().with_parameters(cost_values(kv_pool=0.5))
    assert pool(system, SpecSetting.none()) == pytest.approx(100_000, rel=ROUNDING)


def test_weights_that_do_not_fit_are_refused() -> None:
    system = assemble(setup_of("llama-3.1-70b", "h100-sxm"))
    with pytest.raises(SpecsimError, match="do not fit"):
        pool(system, SpecSetting.none())


def test_admission_reserves_for_a_request() -> None:
    """v1: alloc max(S k, n) slots beyond the committed tokens; v2 twice that ."""
    system = kimi()
    v1 = system.plan(SpecSetting.of(2, 2, 7, scheduler="sequential"))
    v2 = system.plan(SpecSetting.of(1, 3, scheduler="overlap"))
    none = system.plan(SpecSetting.none())
    base = 1000 + 0.7 * 500
    reserve = [system.kv_tokens_per_request(p, 1000, 500) - base for p in (v1, v2)]
    assert reserve == pytest.approx([max(2 * 2, 7), 2 * 4], rel=ROUNDING)
    assert system.kv_tokens_per_request(none, 1000, 500) - base <= 1


# --- plan


def test_plan_takes_another_version_and_cap() -> None:
    tree = SpecSetting.of(2, 2)
    assert kimi().plan(tree).setting.scheduler == "sequential"
    later = kimi().plan(tree, engine_version="0.5.13", max_running_requests=5)
    assert (later.version, later.setting.scheduler) == ("0.5.13", "overlap")
    assert later.max_running_requests == 5


def test_a_refused_plan_is_modelled_as_a_what_if() -> None:
    tree = SpecSetting.of(2, 2, scheduler="overlap")
    with pytest.raises(SpecsimError, match="topk = 1"):
        kimi().plan(tree)
    plan = kimi().plan(tree, what_if=True)
    assert plan.what_if
    assert plan.setting.scheduler == "overlap"


def test_llama_on_one_gpu_prices_everything() -> None:
    """The least server: no link, no MoE; nothing is infinite or undefined."""
    assert math.isfinite(pool(llama(), CHAIN))
    assert not llama().cost.allreduce.pieces


def test_rows_read_what_an_indexer_picked_for_each() -> None:
    """Sparse attention shares few reads between the rows of a request, whatever its backend."""
    sparse = assemble(setup_of("glm-5.1", "h200-sxm", tp=8))
    dense = assemble(setup_of("deepseek-v3", "h200-sxm", tp=8))
    assert [s.facts.picks_entries for s in (sparse, dense)] == [True, False]
    reads = [COST["kv_reads"].on(s.facts) for s in (sparse, dense)]
    assert None not in reads
    assert [r[0] > 0.5 for r in reads if r] == [True, False]


def test_a_generic_drafter_that_does_not_split_lies_whole_on_every_gpu() -> None:
    """56 heads for Kimi K2's width: nobody has chosen them, so tp 16 is no reason to refuse."""
    mapping = {
        "schema": "specsim.setup/1",
        "hardware": {"gpu": "h200-sxm", "gpu_count": 16},
        "model": {"id": "kimi-k2.5"},
        "draft": {"id": "eagle3"},
        "engine": {"name": "sglang", "version": "0.5.19", "tp": 16},
    }
    draft = assemble(setup_from_mapping(mapping)).cost.draft
    assert draft is not None
    assert draft.part is not None
    assert draft.part.tp == 1


@pytest.mark.parametrize(
    ("engine", "version", "refused"),
    [
        ("vllm", "0.24.0", "same vocabulary size"),
        ("sglang", "0.5.19", "share the same vocabulary"),
        ("sglang", "0.5.9", None),
        ("llama.cpp", "b9000", None),  # it translates
    ],
)
def test_a_draft_model_of_another_vocabulary(
    engine: str, version: str, refused: str | None
) -> None:
    """Qwen3's of 151936 words before Llama's of 128256; of its own family it may be."""
    mapping = {
        "schema": "specsim.setup/1",
        "hardware": {"gpu": "h100-sxm"},
        "model": {"id": "llama-3.1-8b"},
        "draft": {"id": "qwen3-0.6b"},
        "engine": {"name": engine, "version": version},
    }
    chain, other = (
        SpecSetting.of(1, 3, algorithm="STANDALONE"),
        assemble(setup_from_mapping(mapping)),
    )
    if refused is None:
        assert other.plan(chain).allowed
    else:
        with pytest.raises(InputError, match=refused):
            other.plan(chain)
        assert other.plan(chain, what_if=True).setting.key == chain.key
    same = setup_from_mapping(mapping | {"draft": {"id": "llama-3.2-1b"}})
    assert assemble(same).plan(chain).allowed
