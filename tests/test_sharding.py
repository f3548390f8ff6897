"""Bytes and FLOPs per GPU: published checks, and laws that hold for every split."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.architecture import ModelArchitecture, load_draft, load_model, model_names
from specsim.draft_sharding import shard_draft
from specsim.errors import InputError, UnknownNameError
from specsim.quantisation import kv_dtype_bytes, load_quantisation, schemes
from specsim.sharding import shard

KIMI = load_model("kimi-k2.5")


def test_founding_model_on_eight_gpus() -> None:
    # Kimi-K2.5 config, derived: INT4 experts 570.8 GB = 71.3 GB a rank, bf16 rest 23.4 GB;
    # an expert slice of 3.10 MB reproduces measured MoE times (aiconfigurator@095f58a) within 0.4 %
    part = shard(KIMI, "int4-experts", tp=8)
    experts = part.expert_bytes * part.experts * part.moe_layers
    assert part.expert_bytes / 1e6 == pytest.approx(3.10, abs=0.005)
    assert experts / 1e9 == pytest.approx(71.3, abs=0.1)
    assert part.weight_bytes_total / 1e9 == pytest.approx(594.2, abs=0.1)
    assert (part.weight_bytes_total - 8 * experts) / 1e9 == pytest.approx(23.4, abs=0.05)
    assert part.kv_bytes_per_token == 70272  # latent KV is whole on every rank
    assert (part.dense_dtype, part.expert_dtype) == ("bf16", "bf16")
    assert (part.experts, part.experts_per_token, part.moe_layers) == (384, 8, 60)
    assert shard(KIMI, "native", tp=8) == part


def test_known_checkpoint_size_scales_all_weights() -> None:
    # the founding report says 547 GB, 68.4 GB per GPU
    derived, said = shard(KIMI, tp=8), shard(KIMI, tp=8, weight_bytes=547e9)
    ratio = 547e9 / derived.weight_bytes_total
    assert said.weight_bytes_total == pytest.approx(547e9)
    for name in ("dense_bytes", "expert_bytes", "head_bytes", "weight_bytes_per_gpu"):
        assert getattr(said, name) == pytest.approx(ratio * getattr(derived, name))
    assert said.flops_per_token == derived.flops_per_token
    assert said.kv_bytes_per_token == derived.kv_bytes_per_token


@pytest.mark.parametrize("size", [547, 547e6, 0, -1, float("nan"), float("inf"), 5e12])
def test_implausible_checkpoint_sizes_are_refused(size: float) -> None:
    with pytest.raises(InputError, match="547 GB is 547e9"):
        shard(KIMI, tp=8, weight_bytes=size)


# Published checkpoint sizes, GB: gpt-oss-120b 65.2 and 20b 13.8 (Hugging Face), DeepSeek-V3
# about 671 + the bf16 head and embedding, Llama-3.1-8B 16.06.
@pytest.mark.parametrize(
    ("name", "scheme", "gigabytes"),
    [
        ("gpt-oss-120b", "native", 65.2),
        ("gpt-oss-20b", "native", 13.8),
        ("llama-3.1-8b", "bf16", 16.06),
        ("deepseek-v3", "fp8-block", 673),
    ],
)
def test_checkpoint_sizes(name: str, scheme: str, gigabytes: float) -> None:
    total = shard(load_model(name), scheme).weight_bytes_total
    assert total / 1e9 == pytest.approx(gigabytes, rel=0.01)  # biases, scales are not counted


# Bytes per weight of linear layers: group-128 and group-32 int4 with a 2-byte scale, NVFP4 with
# a byte per 16, MXFP4 with a byte per 32, llama.cpp blocks of 32 in 20 and 34 bytes.
@pytest.mark.parametrize(
    ("name", "dense", "experts", "head"),
    [
        ("bf16", 2, 2, 2),
        ("fp16", 2, 2, 2),
        ("fp8", 1, 1, 2),
        ("fp8-block", 1, 1, 2),
        ("int8", 1, 1, 2),
        ("int4", 0.515625, 0.515625, 2),
        ("awq", 0.515625, 0.515625, 2),
        ("gptq", 0.515625, 0.515625, 2),
        ("int4-experts", 2, 0.5625, 2),
        ("nvfp4", 0.5625, 0.5625, 2),
        ("nvfp4-experts", 2, 0.5625, 2),
        ("nvfp4-experts-fp8", 1, 0.5625, 2),
        ("fp8-ffn", 1, 1, 2),
        ("mlx-4bit", 0.5625, 0.5625, 0.5625),
        ("mxfp4-experts", 2, 0.53125, 2),
        ("f16", 2, 2, 2),
        ("q4_1", 0.625, 0.625, 0.8203125),
        ("q4_0", 0.5625, 0.5625, 0.8203125),
        ("f32", 4.0, 4.0, 4.0),
        ("q8_0", 1.0625, 1.0625, 1.0625),
    ],
)
def test_bytes_per_weight(name: str, dense: float, experts: float, head: float) -> None:
    scheme = load_quantisation(name.upper())
    assert (scheme.dense, scheme.experts, scheme.head) == (dense, experts, head)
    assert name == scheme.id


def test_number_types_of_the_products() -> None:
    fp8, nvfp4 = shard(KIMI, "fp8"), shard(KIMI, "nvfp4-experts")
    assert (fp8.dense_dtype, fp8.expert_dtype) == ("fp8", "fp8")
    assert (nvfp4.dense_dtype, nvfp4.expert_dtype) == ("bf16", "fp4")
    assert shard(load_model("llama-3.1-8b"), "awq").dense_dtype == "bf16"


def test_attention_may_be_left_as_it_is() -> None:
    """FP8 FFNs alone: as FP8 throughout, and two bytes for each of attention's weights."""
    model = load_model("llama-3.1-405b")
    attention = sum(group.total_params for group in model.attention_groups)
    whole, ffn = shard(model, "fp8", tp=8), shard(model, "fp8-ffn", tp=8)
    assert ffn.weight_bytes_total - whole.weight_bytes_total == pytest.approx(attention)
    assert ffn.dense_bytes - whole.dense_bytes == pytest.approx(attention / 8)
    assert shard(model, "fp8-ffn-fp8").dense_bytes == shard(model, "fp8").dense_bytes


def test_unknown_and_pointless_schemes() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'int4-experts'"):
        shard(KIMI, "int4-expert")
    with pytest.raises(InputError, match="has none"):
        shard(load_model("llama-3.1-8b"), "int4-experts")
    assert kv_dtype_bytes("bf16") == 2
    with pytest.raises(UnknownNameError, match="fp8"):
        kv_dtype_bytes("fp9")


def test_grouped_query_kv_stops_splitting_at_the_kv_heads() -> None:
    qwen = load_model("qwen3-30b-a3b")  # four KV heads
    per_token = [shard(qwen, tp=tp).kv_bytes_per_token for tp in (1, 2, 4, 8)]
    assert per_token == [98304, 49152, 24576, 24576]
    assert shard(qwen, tp=4, kv_dtype="fp8").kv_bytes_per_token == 12288


def test_data_parallel_attention() -> None:
    deepseek = load_model("deepseek-v3")
    split, whole = shard(deepseek, tp=8), shard(deepseek, tp=8, dp=8)
    assert whole.attention_tp == 1
    # attention is whole on every GPU, and each sees an eighth of the tokens
    attention = deepseek.layers * deepseek.attention_groups[0].params.total
    ffn = 3 * 3 * deepseek.hidden * deepseek.ffn_inter + 58 * deepseek.expert_params
    router = 58 * deepseek.router_params
    small = router + deepseek.norm_params
    assert whole.dense_bytes == pytest.approx(attention + ffn / 8 + 2 * small)
    assert whole.kv_bytes_per_token == split.kv_bytes_per_token / 8
    assert whole.expert_bytes == split.expert_bytes
    assert whole.attention_work(1)[1] == split.attention_work(1)[1]
    assert whole.flops_per_token == pytest.approx(2 * (attention + ffn + small) / 8)


def test_expert_parallelism_keeps_the_average() -> None:
    split, dealt = shard(KIMI, tp=8), shard(KIMI, tp=8, ep=8)
    assert dealt.expert_bytes == split.expert_bytes
    assert dealt.weight_bytes_per_gpu == split.weight_bytes_per_gpu


def test_attention_flops_per_pair() -> None:
    # scores and weighted sum: 4 * heads * head_dim; absorbed MLA: 2 * heads * (576 + 512)
    assert shard(load_model("llama-3.1-8b")).attention_work(1)[1] == 32 * 4 * 32 * 128
    assert shard(KIMI, tp=8).attention_work(1)[1] == 61 * 2 * 64 * 1088 / 8


def test_what_attention_reads() -> None:
    oss, hybrid = load_model("gpt-oss-120b"), load_model("qwen3.5-397b-a17b")
    assert shard(oss, tp=4).attention_work(10_000)[0] == 18 * 2048 * (10_000 + 128) / 4
    assert shard(KIMI, tp=8).attention_work(1000)[0] == 1000 * 70272
    state = 45 * 4 * 2**20  # 45 linear layers, 4 MiB each, read and written
    assert shard(hybrid, "awq").attention_work(0)[0] == 2 * state
    assert shard(hybrid, "awq").state_bytes_per_request == state


def test_kernels_of_picks_pad_heads_and_short_contexts() -> None:
    """Layer times of GLM-5 on an H200 with vLLM 0.24 (PICKS): heads and contexts cost alike."""
    glm = load_model("glm-5.1")
    products = {
        (kv, tp, context): shard(glm, tp=tp, kv_dtype=kv).attention_work(context)[1]
        for kv in ("bf16", "fp8")
        for tp in (1, 8)
        for context in (16, 2048)
    }
    index = (
        2 * 32 * 128 * glm.layers * (2048 - 16)
    )  # the indexer's own, which rise with the context
    assert products["fp8", 1, 2048] - products["fp8", 1, 16] == pytest.approx(index)
    assert products["fp8", 8, 2048] == products["fp8", 1, 2048]  # 8 heads as dear as 64
    assert products["bf16", 8, 2048] == products["fp8", 8, 2048]
    picked = products["bf16", 8, 16] - 2 * 32 * 128 * glm.layers * 16
    assert picked == pytest.approx(glm.layers * 2 * 64 * 1088 * 16)  # it is told how many there are


@pytest.mark.parametrize(
    ("name", "tp", "dp", "ep", "message"),
    [
        ("smollm2-135m", 2, 1, 1, "9 heads"),
        ("llama-3.1-8b", 0, 1, 1, "at least 1"),
        ("llama-3.1-8b", 4, 8, 1, "does not divide tp"),
        ("llama-3.1-8b", 4, 1, 4, "0 experts"),
        ("kimi-k2.5", 8, 1, 3, "does not divide tp"),
        ("minimax-m2.5", 3, 1, 1, "8 KV heads"),
    ],
)
def test_splits_that_do_not_work(name: str, tp: int, dp: int, ep: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shard(load_model(name), "bf16", tp, dp, ep)


# --- drafters -----------------------------------------------------------------------------------


def test_founding_drafter() -> None:
    # AQ-MedAI/Kimi-K25-eagle3 config, derived: 2.07 GB a step and 154 M in fc; 4 KB of KV per
    # token and rank at TP8
    draft = load_draft("kimi-k2.5-eagle3", KIMI)
    one = shard_draft(draft, KIMI, "int4-experts", tp=1)
    assert (one.step_bytes + one.part.head_bytes) / 1e9 == pytest.approx(2.074, abs=0.001)
    assert one.fc_bytes / 2e6 == pytest.approx(154.1, abs=0.1)
    eight = shard_draft(draft, KIMI, "int4-experts", tp=8)
    assert eight.kv_bytes_per_token == 4096
    assert eight.fc_bytes == one.fc_bytes  # whole on every rank
    assert eight.part.head_bytes == one.part.head_bytes / 8
    norms = 3 * 7168 * 2
    assert eight.step_bytes - norms == pytest.approx((one.step_bytes - norms) / 8)
    assert (draft.shape.layers, draft.shape.vocab, eight.kind) == (1, 32000, "eagle3")
    assert eight.weight_bytes_per_gpu == eight.step_bytes + eight.fc_bytes + eight.part.head_bytes
    # its weights are its own: a compressed target does not compress them
    assert shard_draft(draft, KIMI, "nvfp4", tp=8).step_bytes == eight.step_bytes
    half = shard_draft(draft, KIMI, "nvfp4", tp=8, draft_quantisation="fp8")
    assert half.fc_bytes == eight.fc_bytes / 2


def test_mtp_follows_the_target() -> None:
    target = load_model("deepseek-r1")
    draft = load_draft("mtp", target)
    own, whole = shard_draft(draft, target, "native", tp=8), shard(target, tp=8)
    part = own.part
    assert part.expert_bytes == whole.expert_bytes
    assert part.head_bytes == whole.head_bytes
    assert (part.moe_layers, part.experts, part.experts_per_token) == (1, 256, 8)
    assert part.kv_bytes_per_token == whole.kv_bytes_per_token / 61
    assert part.quantisation == "fp8-block"
    # the layer alone, about 11.5 GB over all GPUs, is new memory; head and embedding are shared
    assert 8 * own.weight_bytes_per_gpu / 1e9 == pytest.approx(11.5 + 7 * 0.13, rel=0.02)
    assert shard_draft(draft, target, "bf16", tp=8).part.expert_bytes == 2 * part.expert_bytes


def test_standalone_is_a_model_and_ngram_costs_nothing() -> None:
    target = load_model("llama-3.1-8b")
    part = shard_draft(load_draft("llama-3.2-1b", target), target, tp=2)
    alone = shard(load_model("llama-3.2-1b"), tp=2)
    assert (part.step_bytes, part.part.head_bytes) == (alone.dense_bytes, alone.head_bytes)
    assert part.weight_bytes_per_gpu == pytest.approx(alone.weight_bytes_per_gpu)
    assert part.part.model.layers == 16
    untied = shard_draft(load_draft("qwen3-8b", load_model("qwen3-32b")), load_model("qwen3-32b"))
    own = shard(load_model("qwen3-8b")).weight_bytes_per_gpu
    assert untied.weight_bytes_per_gpu == pytest.approx(own)
    ngram = shard_draft(load_draft("ngram", target), target, tp=2)
    assert ngram.step_bytes == ngram.weight_bytes_per_gpu == ngram.flops_per_token == 0


def cache_heads(model: ModelArchitecture) -> set[int]:
    """Parts that the caches fall into; latent and compressed ones are whole on every GPU."""
    return {g.cache_heads for g in model.attention_groups if model.attention == "gqa"}


# --- laws ---------------------------------------------------------------------------------------

MODELS = [load_model(name) for name in model_names()]
EVERYWHERE = [
    name for name, scheme in schemes().items() if "-experts" not in name or scheme.dense < 2
]


@given(model=st.sampled_from(MODELS), scheme=st.sampled_from(EVERYWHERE))
def test_one_gpu_holds_the_checkpoint(model: ModelArchitecture, scheme: str) -> None:
    part = shard(model, scheme)
    assert part.weight_bytes_per_gpu == pytest.approx(part.weight_bytes_total)
    assert part.kv_bytes_per_token == model.kv_bytes_per_token()


@given(model=st.sampled_from(MODELS), tp=st.sampled_from([1, 2, 3, 4, 8, 16]))
def test_flops_are_twice_the_parameters(model: ModelArchitecture, tp: int) -> None:
    if model.heads % tp or any(heads % tp for heads in cache_heads(model)):
        return
    part = shard(model, "bf16", tp=tp)
    copies = (tp - 1) * _whole_on_every_gpu(model)
    flops = part.flops_per_token + part.expert_flops_per_token + part.head_flops_per_token
    assert tp * flops == pytest.approx(2 * (model.active_params + copies))


@given(model=st.sampled_from(MODELS), tp=st.sampled_from([2, 3, 4, 8, 16]))
def test_parts_add_up_to_the_whole_and_its_copies(model: ModelArchitecture, tp: int) -> None:
    if model.heads % tp or any(heads % tp for heads in cache_heads(model)):
        return
    whole, part = shard(model, "bf16"), shard(model, "bf16", tp=tp)
    copies = 2 * (tp - 1) * _whole_on_every_gpu(model)
    assert tp * part.dense_bytes == pytest.approx(whole.dense_bytes + copies)
    assert tp * part.expert_bytes == pytest.approx(whole.expert_bytes)
    assert tp * part.head_bytes == pytest.approx(whole.head_bytes)
    assert tp * part.weight_bytes_per_gpu == pytest.approx(whole.weight_bytes_per_gpu + copies)
    assert part.weight_bytes_total == whole.weight_bytes_total


def _whole_on_every_gpu(model: ModelArchitecture) -> int:
    groups = model.attention_groups
    down = sum(group.layers * group.params.replicated + group.index_params for group in groups)
    return down + model.moe_layers * model.router_params + model.norm_params


@given(model=st.sampled_from(MODELS), scheme=st.sampled_from(EVERYWHERE))
def test_more_gpus_never_mean_more_on_each(model: ModelArchitecture, scheme: str) -> None:
    parts = [
        shard(model, scheme, tp=tp)
        for tp in (1, 2, 4, 8, 16, 32)
        if model.heads % tp == 0 and all(h % tp == 0 or tp % h == 0 for h in cache_heads(model))
    ]
    for name in ("dense_bytes", "weight_bytes_per_gpu", "kv_bytes_per_token", "flops_per_token"):
        values = [getattr(part, name) for part in parts]
        assert values == sorted(values, reverse=True)
    for few, many in itertools.pairwise(parts):
        assert few.attention_work(1000)[0] >= many.attention_work(1000)[0]


@given(
    model=st.sampled_from(MODELS),
    context=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
)
def test_longer_contexts_read_more(model: ModelArchitecture, context: float, more: float) -> None:
    part = shard(model, "bf16")
    assert part.attention_work(context + more)[0] >= part.attention_work(context)[0]
    # compressed layers read what is not compressed yet besides
    window = 2 * sum(g.layers * g.numbers * g.window for g in model.attention_groups if g.ratio)
    plain = window + context * part.kv_bytes_per_token + 2 * part.state_bytes_per_request
    assert part.attention_work(context)[0] <= plain * (1 + 1e-9)


def test_ranks_of_decode_context_parallelism_hold_parts_of_the_context() -> None:
    """Eight ranks hold eight copies of an MLA cache; four of them to a context keep two."""
    kimi = load_model("kimi-k2.5")
    whole, parts = (shard(kimi, "int4-experts", tp=8, dcp=d) for d in (1, 4))
    assert parts.kv_bytes_per_token == whole.kv_bytes_per_token / 4
    assert parts.attention_work(1000)[0] == pytest.approx(whole.attention_work(1000)[0] / 4)
    assert parts.attention_work(1)[1] == whole.attention_work(1)[1]  # more heads, less each
    assert parts.dense_bytes == whole.dense_bytes
    assert parts.exchanged_bytes_per_token == 2 * 576 * 64 / 8 * 4  # queries of four ranks' heads
    with pytest.raises(InputError, match=r"dcp 3: does not divide .* 1 heads on 8 ranks: 8"):
        shard(kimi, "int4-experts", tp=8, dcp=3)
    with pytest.raises(InputError, match="8 heads on 8 ranks: 1"):
        shard(load_model("llama-3.1-8b"), tp=8, dcp=2)
