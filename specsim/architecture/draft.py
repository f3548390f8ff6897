"""The shape of a drafter: a small model of its own, or a layer that leans on the target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from specsim.architecture.model import ModelArchitecture, load_model, model_names
from specsim.errors import InputError, UnknownNameError
from specsim.evidence import Evidence
from specsim.library import (
    Table,
    as_evidence,
    check_keys,
    flag,
    look_up,
    one_of,
    read_library,
    text,
    whole,
)

DraftKind = Literal["eagle3", "eagle", "mtp", "standalone", "ngram"]

EAGLE3_FEATURES = 3
"""Layers of the target whose hidden states an EAGLE-3 drafter reads (arXiv 2503.01840, 3.1)."""

GENERIC_DRAFT_VOCAB = 32_000
"""Vocabulary that EAGLE-3 drafters are cut down to: all twelve SpecForge configurations
(sgl-project/SpecForge@a6b6b02, configs/)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftArchitecture:
    """Shape of a drafter."""

    id: str
    kind: DraftKind
    shape: ModelArchitecture | None  # its layers and head as a model; None for ngram
    fc_params: int = 0  # projects the target's hidden states, once per round (EAGLE-3's extend)
    input_params: int = 0  # projects (embedding, hidden state) in every forward (EAGLE, MTP)
    own_head: bool = False  # whether the LM head is its own rather than the target's
    follows_target: bool = False  # whether its weights are quantised like the target's (MTP)
    evidence: Evidence = "assumed"
    source: str = ""

    @property
    def hidden(self) -> int:
        """Width."""
        return self.shape.hidden if self.shape else 0


def draft_names() -> tuple[str, ...]:
    """Ids of the drafters in the library; any model id is a standalone drafter besides."""
    return tuple(sorted(read_library("drafts")))


def load_draft(
    name: str, target: ModelArchitecture, layers: int | None = None
) -> DraftArchitecture:
    """Return the drafter called `name`, sized for `target`.

    Parameters
    ----------
    name
        A library id or Hugging Face name; ``mtp``, ``eagle3`` or ``eagle`` (sized from the
        target); ``ngram``; a TOML file with the keys of a library entry; or a model of
        :func:`load_model`, which then drafts as a model of its own.
    target
        The model that verifies.
    layers
        Keep so many of the first layers of a model that drafts.

    Raises
    ------
    UnknownNameError
        Names the nearest id.
    InputError
        If the drafter does not fit the target, or cannot be cut to `layers`.
    """
    try:
        id, table = look_up("drafts", name, "name a model")
    except UnknownNameError:
        return _standalone(_cut(_drafting_model(name), layers))
    if layers is not None:
        raise InputError(
            f"draft {id}: layers = {layers}",
            "only a library model that drafts can be cut short",
            "leave layers out",
        )
    return draft_from_table(table, id, target)


def _drafting_model(name: str) -> ModelArchitecture:
    try:
        return load_model(name)
    except UnknownNameError as error:
        known = (*read_library("drafts"), *model_names())
        remedy = f"use one of: {', '.join(known)}; eagle3 is sized from the target"
        raise UnknownNameError("draft", name, known, remedy) from error


def _cut(model: ModelArchitecture, layers: int | None) -> ModelArchitecture:
    if layers is None or layers == model.layers:
        return model
    if model.experts or model.sliding_layers or model.linear_layers or layers > model.layers:
        raise InputError(
            f"draft {model.id}: layers = {layers}",
            f"needs a dense model with as many layers of one kind; it has {model.layers}",
            "name a model of that size",
        )
    return replace(
        model,
        layers=layers,
        dense_layers=layers,
        source=f"the first {layers} layers of {model.source}",
    )


def _standalone(model: ModelArchitecture) -> DraftArchitecture:
    return DraftArchitecture(
        id=model.id,
        kind="standalone",
        shape=model,
        own_head=True,
        evidence=model.evidence,
        source=model.source,
    )


def draft_from_table(table: Table, id: str, target: ModelArchitecture) -> DraftArchitecture:
    """Build a drafter from a table of the library's form; where it is silent, as the target."""
    where = f"draft {id}"
    sizes = ("hidden", "heads", "kv_heads", "head_dim", "ffn_inter", "draft_vocab")
    keys = ("kind", "mla", "target_vocab", "evidence", "source", "aliases", *sizes)
    check_keys(where, table, keys, ("kind",))
    kind = one_of(f"{where}: kind", table["kind"], get_args(DraftKind))
    if kind == "ngram":
        return DraftArchitecture(id=id, kind=kind, shape=None, evidence="published")
    own = {k: whole(where, k, table[k]) for k in sizes if k in table}
    fits = (own.get("hidden", target.hidden), table.get("target_vocab", target.vocab))
    if fits != (target.hidden, target.vocab):
        raise InputError(
            where,
            f"is for a target of width {fits[0]} and vocabulary {fits[1]}; "
            f"{target.id} has {target.hidden} and {target.vocab}",
            'name the drafter of this target, or "eagle3" for a generic one',
        )
    if kind == "mtp":
        return _mtp(id, target)
    shape = replace(
        _eagle_layer(id, target, kind, own, flag(where, table, "mla")),
        evidence=as_evidence(where, table),
        source=text(where, table, "source", ""),
    )
    square = target.hidden * target.hidden
    return DraftArchitecture(
        id=id,
        kind=kind,
        shape=shape,
        fc_params=EAGLE3_FEATURES * square if kind == "eagle3" else 0,
        input_params=2 * square if kind == "eagle" else 0,
        own_head=kind == "eagle3",
        evidence=shape.evidence,
        source=shape.source,
    )


_ONE_LAYER: dict[str, Any] = {
    "layers": 1,
    "mtp_layers": 0,
    "sliding_window": 0,
    "sliding_layers": 0,
    "linear_layers": 0,
}
_NO_EXPERTS: dict[str, Any] = {
    "dense_layers": 1,
    "experts": 0,
    "experts_per_token": 0,
    "shared_experts": 0,
    "moe_inter": 0,
}
_NO_MLA: dict[str, Any] = {
    "attention": "gqa",
    "q_lora_rank": 0,
    "kv_lora_rank": 0,
    "qk_nope_head_dim": 0,
    "qk_rope_head_dim": 0,
    "v_head_dim": 0,
}


def _mtp(id: str, target: ModelArchitecture) -> DraftArchitecture:
    """Return one full-attention layer like the target's, experts and all, under its head.

    DeepSeek-V3 (arXiv 2412.19437, section 2.2): a 2*hidden -> hidden projection in front.
    """
    if not target.mtp_layers:
        raise InputError(
            f"draft {id}",
            f"{target.id} comes without a multi-token-prediction layer",
            'use "eagle3", or a model whose config has num_nextn_predict_layers',
        )
    source = f"one layer of {target.id}: {target.source}"
    layer = replace(
        target, id=id, dense_layers=0 if target.experts else 1, source=source, **_ONE_LAYER
    )
    return DraftArchitecture(
        id=id,
        kind="mtp",
        shape=layer,
        input_params=2 * target.hidden * target.hidden,
        follows_target=True,
        evidence=target.evidence,
        source=source,
    )


def _eagle_layer(
    id: str, target: ModelArchitecture, kind: DraftKind, own: dict[str, int], mla: bool
) -> ModelArchitecture:
    """Return a dense layer shaped like the target's, but for what the table says.

    Where the target gives no dense FFN (all its layers are MoE) it is six times as wide as the
    model, and where the target's attention is latent it has heads of 128 numbers, eight of them
    for KV. Both are what SpecForge's configurations do (gpt-oss, Qwen3 MoE; DeepSeek-V3).
    """
    if mla and target.attention != "mla":
        raise InputError(
            f"draft {id}", f"has latent attention, the target {target.id} has not", 'use "eagle3"'
        )
    sizes: dict[str, Any] = {
        "ffn_inter": target.ffn_inter if target.dense_layers else 6 * target.hidden
    }
    if target.attention == "mla" and not mla:
        sizes |= {"heads": max(1, target.hidden // 128), "head_dim": 128}
        sizes["kv_heads"] = 8 if sizes["heads"] % 8 == 0 else sizes["heads"]
    vocab = GENERIC_DRAFT_VOCAB if kind == "eagle3" else target.vocab
    sizes |= {"vocab": own.get("draft_vocab", min(vocab, target.vocab))}
    sizes |= {k: v for k, v in own.items() if k != "draft_vocab"}
    return replace(
        target,
        id=id,
        tied_embeddings=False,
        query_gate=False,
        native_quantisation="bf16",
        qkv_inputs=2 if kind == "eagle3" else 1,
        **_ONE_LAYER,
        **_NO_EXPERTS,
        **({} if mla else _NO_MLA),
        **sizes,
    )
