"""Drafters of published shapes: parameters, widths, what they are sized from."""

from __future__ import annotations

import pytest
from test_architecture import step_params

from specsim.architecture import (
    draft_names,
    load_draft,
    load_model,
)
from specsim.errors import InputError, UnknownNameError

# Parameters per draft step (head in, fc out) and of fc, in 1e6, and KV bytes per token, from the
# drafters' own configs: AQ-MedAI/Kimi-K25-eagle3 and sgl-project/SpecForge@a6b6b02 configs/.
DRAFTS = [
    ("kimi-k2.5", "kimi-k2.5-eagle3", 1037.0, 154.1, 32768),
    ("kimi-k2-instruct", "AQ-MedAI/Kimi-K2-Instruct-eagle3", 1037.0, 154.1, 32768),
    ("deepseek-v3", "deepseek-v3-eagle3", 1294.0, 154.1, 4096),
    ("llama-3.1-8b", "eagle3", 374.0, 50.3, 4096),
    ("llama-3.3-70b", "eagle3", 1202.0, 201.3, 4096),
    ("qwen3-8b", "eagle3", 349.0, 50.3, 4096),
    ("qwen3-32b", "eagle3", 704.0, 78.6, 4096),
    ("qwen3-235b-a22b", "eagle3", 542.0, 50.3, 2048),
    ("qwen3-30b-a3b", "eagle3", 170.0, 12.6, 2048),
    ("gpt-oss-120b", "eagle3", 283.0, 24.9, 2048),
    ("gpt-oss-20b", "eagle3", 283.0, 24.9, 2048),
]


@pytest.mark.parametrize(("target", "name", "step", "fc", "kv"), DRAFTS)
def test_eagle3_drafters(target: str, name: str, step: float, fc: float, kv: int) -> None:
    draft = load_draft(name, load_model(target))
    assert draft.kind == "eagle3"
    assert step_params(draft) / 1e6 == pytest.approx(step, abs=0.51)  # printed whole
    assert draft.fc_params / 1e6 == pytest.approx(fc, rel=0.005)
    assert draft.shape is not None
    assert draft.shape.kv_bytes_per_token(2) == kv
    assert (draft.shape.layers, draft.shape.vocab, draft.own_head) == (1, 32000, True)


def test_the_founding_drafter() -> None:
    draft = load_draft("kimi-k2.5-eagle3", load_model("kimi-k2.6"))
    shape = draft.shape
    assert shape is not None
    assert (draft.hidden, shape.ffn_inter) == (7168, 18432)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (64, 64, 128)
    assert shape.attention == "gqa"
    assert draft.shape.evidence == "published"
    latent = load_draft("lightseekorg/kimi-k2.5-eagle3-mla", load_model("kimi-k2.5"))
    assert latent.shape is not None
    assert latent.shape.attention == "mla"
    assert latent.shape.evidence == "assumed"
    assert latent.shape is not None
    assert latent.shape.kv_bytes_per_token(2) == 576 * 2


def test_mtp_is_a_layer_of_the_target() -> None:
    target = load_model("deepseek-r1")
    draft = load_draft("mtp", target)
    layer = (
        target.attention_groups[0].params.total
        + target.router_params
        + 9 * target.expert_params  # one shared, eight routed
        + 3 * target.hidden  # norms
    )
    assert step_params(draft) == layer + 2 * 7168**2 + target.head_params
    assert draft.shape.vocab == 129280
    assert draft.follows_target
    assert not draft.own_head
    assert load_draft("nextn", target) == draft
    with pytest.raises(InputError, match="without a multi-token-prediction layer"):
        load_draft("mtp", load_model("kimi-k2.5"))


def test_eagle_reads_its_projection_in_every_step() -> None:
    draft = load_draft("eagle", load_model("llama-3-8b"))
    assert draft.fc_params == 0
    assert draft.input_params == 2 * 4096**2
    assert draft.shape.vocab == 128256
    assert not draft.own_head


def test_standalone_and_ngram() -> None:
    target = load_model("llama-3.1-8b")
    small = load_draft("meta-llama/Llama-3.2-1B-Instruct", target)
    assert (small.kind, small.shape.layers, small.id) == ("standalone", 16, "llama-3.2-1b")
    assert step_params(small) == load_model("llama-3.2-1b").active_params
    ngram = load_draft("ngram", target)
    assert (ngram.kind, ngram.hidden, ngram.shape) == ("ngram", 0, None)


def test_drafters_that_do_not_fit_or_exist() -> None:
    with pytest.raises(InputError, match="width 7168"):
        load_draft("kimi-k2.5-eagle3", load_model("llama-3.1-8b"))
    with pytest.raises(InputError, match="vocabulary 163840"):
        load_draft("kimi-k2.5-eagle3", load_model("deepseek-v3"))
    with pytest.raises(UnknownNameError, match="did you mean 'eagle3'"):
        load_draft("eagle33", load_model("llama-3.1-8b"))
    assert {"kimi-k2.5-eagle3", "kimi-k2.5-eagle3-mla", "mtp", "eagle3"} <= set(draft_names())
