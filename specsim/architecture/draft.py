"""The shape of a drafter: a small model of its own, or a layer that leans on the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from specsim.architecture.loading import load_model, model_names
from specsim.architecture.model import MLA, ModelArchitecture
from specsim.errors import InputError, UnknownNameError
from specsim.library import Kind, Table, look_up, read_library, read_table
from specsim.uncertainty import ORDER

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
        model = _cut(_drafting_model(name), layers)
        return DraftArchitecture(id=model.id, kind="standalone", shape=model, own_head=True)
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


_SIZES = ("hidden", "heads", "kv_heads", "head_dim", "ffn_inter", "draft_vocab")
_KEYS: Mapping[str, Kind] = {
    **dict.fromkeys((*_SIZES, "target_vocab"), int),
    "kind": get_args(DraftKind),
    "mla": bool,
    "evidence": ORDER,
    "source": str,
    "aliases": list,
}


def draft_from_table(table: Table, id: str, target: ModelArchitecture) -> DraftArchitecture:
    """Build a drafter from a table of the library's form; where it is silent, as the target."""
    where = f"draft {id}"
    values = read_table(where, table, _KEYS, ("kind",))
    kind: DraftKind = values["kind"]
    if kind == "ngram":
        return DraftArchitecture(id=id, kind=kind, shape=None)
    fits = (values.get("hidden", target.hidden), values.get("target_vocab", target.vocab))
    if fits != (target.hidden, target.vocab):
        raise InputError(
            where,
            f"is for a target of width {fits[0]} and vocabulary {fits[1]}; "
            f"{target.id} has {target.hidden} and {target.vocab}",
            'name the drafter of this target, or "eagle3" for a generic one',
        )
    if kind == "mtp":
        return _mtp(id, target)
    square = target.hidden * target.hidden
    return DraftArchitecture(
        id=id,
        kind=kind,
        shape=_eagle_layer(id, target, values),
        fc_params=EAGLE3_FEATURES * square if kind == "eagle3" else 0,
        input_params=2 * square if kind == "eagle" else 0,
        own_head=kind == "eagle3",
    )


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
    layer = replace(
        target,
        id=id,
        layers=1,
        dense_layers=0 if target.experts else 1,
        mtp_layers=0,
        sliding_layers=0,
        linear_layers=0,
        ffn_only_layers=0,
        mixer_only_layers=0,
        sparse_layers=0,
        index_shared_layers=0,
        compressed=((1, 0),) if target.compressed else (),
        source=f"one layer of {target.id}: {target.source}",
    )
    return DraftArchitecture(
        id=id,
        kind="mtp",
        shape=layer,
        input_params=2 * target.hidden * target.hidden,
        follows_target=True,
    )


def _eagle_layer(id: str, target: ModelArchitecture, said: dict[str, Any]) -> ModelArchitecture:
    """Return a dense layer shaped like the target's, but for what the table says.

    Where the target gives no dense FFN (all its layers are MoE) it is six times as wide as the
    model, and where the target's attention is latent it has heads of 128 numbers, eight of them
    for KV. Both are what SpecForge's configurations do (gpt-oss, Qwen3 MoE; DeepSeek-V3).
    """
    mla, eagle3 = said.get("mla", False), said["kind"] == "eagle3"
    if mla and target.attention != "mla":
        raise InputError(
            f"draft {id}", f"has latent attention, the target {target.id} has not", 'use "eagle3"'
        )
    kept = ("hidden", "vocab", "heads", "kv_heads", "head_dim", "ffn_inter")
    sizes: dict[str, Any] = {key: getattr(target, key) for key in kept}
    if not target.dense_layers:
        sizes["ffn_inter"] = 6 * target.hidden
    if target.attention == "mla" and not mla:
        sizes |= {"heads": max(1, target.hidden // 128), "head_dim": 128}
        sizes["kv_heads"] = 8 if sizes["heads"] % 8 == 0 else sizes["heads"]
    if eagle3:
        sizes["vocab"] = min(GENERIC_DRAFT_VOCAB, target.vocab)
    sizes |= {key: said[key] for key in _SIZES if key in said}
    sizes["vocab"] = sizes.pop("draft_vocab", sizes["vocab"])
    ranks = {key: getattr(target, key) for key in ("q_lora_rank", *MLA)} if mla else {}
    return ModelArchitecture(
        id=id,
        layers=1,
        dense_layers=1,
        attention="mla" if mla else "gqa",
        qkv_inputs=2 if eagle3 else 1,
        evidence=said.get("evidence", "assumed"),
        source=said.get("source", ""),
        **sizes,
        **ranks,
    )
