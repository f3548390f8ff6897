"""The shape of a drafter: a model of its own, layers or heads that lean on the target, or none."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from specsim.architecture.loading import is_config, load_model, model_from_table, model_names
from specsim.architecture.model import MLA, ModelArchitecture
from specsim.errors import InputError, UnknownNameError
from specsim.library import Kind, Table, look_up, positive, read_library, read_table
from specsim.textfile import name_of
from specsim.uncertainty import ORDER

# fmt: off
DraftKind = Literal[
    "eagle3", "eagle", "mtp", "standalone", "ngram", "suffix",
    "dflash", "dspark", "p_eagle", "medusa", "hydra", "uno",
]
# fmt: on

EAGLE3_FEATURES = 3
"""Layers of the target whose hidden states an EAGLE-3 drafter reads (arXiv 2503.01840, 3.1)."""

WITHOUT_WEIGHTS = ("ngram", "suffix", "uno")
"""Look-ups, and a target that drafts for itself: its LoRA adapter is small and not counted."""

BLOCK_KINDS = ("dflash", "dspark", "p_eagle")
"""Kinds that draft all depths in one forward, on keys and values made of the target's features."""

HEAD_MATRICES = {"medusa": 1, "hydra": 2}
"""Square matrices before the LM head of each depth: a residual block (arXiv 2401.10774, 2.1); one
that reads the embedding of the token before as well (arXiv 2402.05109, 3)."""

OWN_HEAD = ("eagle3", "p_eagle")
"""Kinds with an LM head of their own, over a vocabulary that may be cut down."""

GENERIC_DRAFT_VOCAB = 32_000
"""Vocabulary that EAGLE-3 drafters are cut down to: all twelve SpecForge configurations
(sgl-project/SpecForge@a6b6b02, configs/)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftArchitecture:
    """Shape of a drafter."""

    id: str
    kind: DraftKind
    shape: ModelArchitecture | None  # its layers and head as a model; None without layers
    fc_params: int = 0  # projects the target's hidden states, once per round (EAGLE-3's extend)
    input_params: int = 0  # projects (embedding, hidden state) in every forward (EAGLE, MTP)
    own_head: bool = False  # whether the LM head is its own rather than the target's
    depth_params: int = 0  # read once per depth: a head of it, a DSpark drafter's Markov head
    copies: int = 1  # MTP layers or heads in memory, of which a forward reads one
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
        target); ``ngram``; a TOML file with the keys of a library entry; the drafter's own
        config.json or its folder; or a model of :func:`load_model`, which then drafts as a model
        of its own.
    target
        The model that verifies.
    layers
        Keep so many of the first layers of a model that drafts.

    Raises
    ------
    UnknownNameError
        Names the nearest id.
    FormatError
        If a config.json or table does not describe a drafter.
    InputError
        If the drafter does not fit the target, or cannot be cut to `layers`.
    """
    from_config = _of_config(name, target) if is_config(name) and layers is None else None
    if from_config is not None:
        return from_config
    try:
        id, table = look_up("drafts", name, "name a model")
    except UnknownNameError:
        model = _cut(_drafting_model(name), layers)
        return DraftArchitecture(id=model.id, kind="standalone", shape=model, own_head=True)
    if layers is not None:
        why = "only a library model that drafts can be cut short"
        raise InputError(f"draft {id}: layers = {layers}", why, "leave layers out")
    return draft_from_table(table, id, target)


def with_vocab(draft: DraftArchitecture, vocab: int | None) -> DraftArchitecture:
    """Return a drafter that scores the `vocab` most frequent words alone (FR-Spec).

    Its head is then those rows of the target's, copied (arXiv 2502.14856, 3.2; SGLang's
    ``--speculative-token-map``). Words that are left out are never drafted. Raises
    :class:`InputError` if it has a head of its own, which stays as it is, or none.
    """
    if vocab is None:
        return draft
    whole = draft.shape.vocab if draft.shape and not draft.own_head else 0
    if vocab > whole:
        has = f"is cut from the {whole} words of the target's head" if whole else "is its own"
        reason = f"does not apply to {draft.id}: what it scores {has}"
        raise InputError(f"[draft] vocab {vocab}", reason, "leave it out")
    assert draft.shape is not None
    return replace(draft, shape=replace(draft.shape, vocab=vocab), own_head=True)


def _drafting_model(name: str) -> ModelArchitecture:
    try:
        return load_model(name)
    except UnknownNameError as error:
        if is_config(name):
            raise
        known = (*read_library("drafts"), *model_names())
        remedy = f"use one of: {', '.join(known)}; eagle3 is sized from the target"
        raise UnknownNameError("draft", name, known, remedy) from error


def _cut(model: ModelArchitecture, layers: int | None) -> ModelArchitecture:
    if layers is None or layers == model.layers:
        return model
    if model.experts or model.sliding_layers or model.linear_layers or layers > model.layers:
        why = f"needs a dense model with as many layers of one kind; it has {model.layers}"
        raise InputError(f"draft {model.id}: layers = {layers}", why, "name a model of that size")
    return replace(
        model,
        layers=layers,
        dense_layers=layers,
        source=f"the first {layers} layers of {model.source}",
    )


_SIZES = ("hidden", "heads", "kv_heads", "head_dim", "ffn_inter", "draft_vocab")
_COUNTS = ("layers", "features", "copies", "markov_rank")
_KEYS: Mapping[str, Kind] = {
    **dict.fromkeys((*_SIZES, *_COUNTS, "target_vocab"), int),
    "kind": get_args(DraftKind),
    "mla": bool,
    "like_target": bool,
    "evidence": ORDER,
    "source": str,
    "aliases": list,
}


def draft_from_table(table: Table, id: str, target: ModelArchitecture) -> DraftArchitecture:
    """Build a drafter from a table of the library's form; where it is silent, as the target."""
    where = f"draft {id}"
    values = read_table(where, table, _KEYS, ("kind",))
    kind: DraftKind = values["kind"]
    for key in (*_SIZES, *_COUNTS):
        positive(f"{where}: {key}", values.get(key, 1))
    if kind in WITHOUT_WEIGHTS:
        return DraftArchitecture(id=id, kind=kind, shape=None)
    _check_target(where, values, target)
    if kind in HEAD_MATRICES:
        inner = HEAD_MATRICES[kind] * target.hidden**2
        return DraftArchitecture(
            id=id,
            kind=kind,
            shape=None,
            depth_params=inner + target.head_params,
            copies=values.get("copies", 1),
        )
    if kind == "mtp":
        return _mtp(id, target)
    if values.get("like_target"):
        shape = _target_layers(id, target, values.get("layers", 1))
    else:
        shape = _eagle_layer(id, target, values)
    return _on_features(id, kind, shape, target, values)


def _check_target(where: str, said: Mapping[str, Any], target: ModelArchitecture) -> None:
    fits = (said.get("hidden", target.hidden), said.get("target_vocab", target.vocab))
    if fits != (target.hidden, target.vocab):
        raise InputError(
            where,
            f"is for a target of width {fits[0]} and vocabulary {fits[1]}; "
            f"{target.id} has {target.hidden} and {target.vocab}",
            'name the drafter of this target, or "eagle3" for a generic one',
        )


def _on_features(
    id: str,
    kind: DraftKind,
    shape: ModelArchitecture,
    target: ModelArchitecture,
    said: Mapping[str, Any],
) -> DraftArchitecture:
    """Return a drafter that reads hidden states of the target, with layers of that shape.

    EAGLE reads the last one beside the embedding in every forward; the others project those of
    several layers (`features`) once per verified token. In an EAGLE-3 drafter of several layers
    only the first reads the embedding too.
    """
    square = target.hidden * shape.hidden
    features = said.get("features", EAGLE3_FEATURES)
    beside = 0
    if kind in OWN_HEAD and shape.layers == 1:
        shape = replace(shape, qkv_inputs=2)
    elif kind in OWN_HEAD:
        inputs = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        beside = inputs * shape.hidden
    return DraftArchitecture(
        id=id,
        kind=kind,
        shape=shape,
        fc_params=0 if kind == "eagle" else features * square,
        input_params=2 * square if kind == "eagle" else beside,
        own_head=kind in OWN_HEAD,
        follows_target=bool(said.get("like_target")),
        depth_params=said.get("markov_rank", 0) * target.vocab,
    )


_SAID_KINDS = ("p_eagle", "dspark", "dflash", "eagle3", "eagle", "medusa", "hydra")
"""What a config says of a drafter's kind; the first that is found."""


def _of_config(name: str, target: ModelArchitecture) -> DraftArchitecture | None:
    """Return the drafter that a config.json describes; None if it is of a plain model.

    Its kind is in `architectures`, `model_type` or the name of a key (``dflash_config``,
    ``markov_rank``, ``medusa_num_heads``); its layers are read as a model's are.
    """
    from specsim.architecture.hf_config import read_config, table_of_config  # few need it

    config = read_config(name)
    path = Path(name_of(name))
    id = path.parent.name if path.suffix == ".json" else path.name
    named = f"{config.get('architectures')} {config.get('model_type')}".lower()
    if "mtp" in named:
        return _mtp(id, target)
    kind = _kind_in(" ".join((named, *config)))
    if kind is None and _is_a_head(config, target):
        kind = _kind_in(id)
        if kind is None:
            why = "is one layer as wide as the target: a head of EAGLE's, of which kind is not said"
            remedy = 'add "architectures": ["LlamaForCausalLMEagle3"], or Eagle, to it'
            raise InputError(f"draft {id}", why, remedy)
    if kind is None:
        return None
    inner = next((v for k, v in config.items() if k.endswith(f"{kind}_config")), None)
    said = {**config, **(inner if isinstance(inner, Mapping) else {})}
    listed = said.get("target_layer_ids") or said.get("eagle_aux_hidden_state_layer_ids")
    found = {
        "features": len(listed) if isinstance(listed, list) else None,
        "markov_rank": said.get("markov_rank"),
        "copies": said.get(f"{kind}_num_heads"),
    }
    stated: dict[str, Any] = {key: value for key, value in found.items() if value}
    if kind in HEAD_MATRICES:
        return draft_from_table({"kind": kind, **stated}, id, target)
    shape = model_from_table(table_of_config(name)[1], id)
    width = said.get("target_hidden_size") or target.hidden
    _check_target(f"draft {id}", {"target_vocab": shape.vocab, "hidden": width}, target)
    if kind in OWN_HEAD:
        shape = replace(shape, vocab=int(said.get("draft_vocab_size") or shape.vocab))
    return _on_features(id, kind, shape, target, stated)


def _kind_in(words: str) -> Any:
    """Return the first kind of drafter that is in words; None where none is."""
    plain = words.lower().replace("peagle", "p_eagle").replace("p-eagle", "p_eagle")
    return next((kind for kind in _SAID_KINDS if kind in plain), None)


def _is_a_head(config: Mapping[str, Any], target: ModelArchitecture) -> bool:
    """Whether a plain config is of one layer on the target's width: no model is so small."""
    layers = config.get("num_hidden_layers")
    return (layers, config.get("hidden_size")) == (1, target.hidden) and target.layers > 1


def _mtp(id: str, target: ModelArchitecture) -> DraftArchitecture:
    """Return one full-attention layer like the target's, experts and all, under its head.

    DeepSeek-V3 (arXiv 2412.19437, section 2.2): a 2*hidden -> hidden projection in front.
    """
    if not target.mtp_layers:
        why = f"{target.id} comes without a multi-token-prediction layer"
        remedy = 'use "eagle3", or a model whose config has num_nextn_predict_layers'
        raise InputError(f"draft {id}", why, remedy)
    return DraftArchitecture(
        id=id,
        kind="mtp",
        shape=_target_layers(id, target, 1),
        input_params=2 * target.hidden * target.hidden,
        follows_target=True,
        copies=target.mtp_layers,
    )


def _target_layers(id: str, target: ModelArchitecture, layers: int) -> ModelArchitecture:
    """Return full-attention layers like the target's, experts and all."""
    changed: dict[str, Any] = dict.fromkeys(_OTHER_LAYERS, 0)
    return replace(
        target,
        id=id,
        layers=layers,
        dense_layers=0 if target.experts else layers,
        compressed=((layers, 0),) if target.compressed else (),
        source=f"{layers} layer(s) of {target.id}: {target.source}",
        **changed,
    )


_OTHER_LAYERS = (
    *("mtp_layers", "sliding_layers", "linear_layers", "ffn_only_layers", "mixer_only_layers"),
    *("sparse_layers", "index_shared_layers"),
)


def _eagle_layer(id: str, target: ModelArchitecture, said: dict[str, Any]) -> ModelArchitecture:
    """Return dense layers shaped like the target's, but for what the table says.

    Where the target gives no dense FFN (all its layers are MoE) it is six times as wide as the
    model, and where the target's attention is latent it has heads of 128 numbers, eight of them
    for KV. Both are what SpecForge's configurations do (gpt-oss, Qwen3 MoE; DeepSeek-V3).
    """
    mla, layers = said.get("mla", False), said.get("layers", 1)
    if mla and target.attention != "mla":
        why = f"has latent attention, the target {target.id} has not"
        raise InputError(f"draft {id}", why, 'use "eagle3"')
    kept = ("hidden", "vocab", "heads", "kv_heads", "head_dim", "ffn_inter")
    sizes: dict[str, Any] = {key: getattr(target, key) for key in kept}
    if not target.dense_layers:
        sizes["ffn_inter"] = 6 * target.hidden
    if target.attention == "mla" and not mla:
        sizes |= {"heads": max(1, target.hidden // 128), "head_dim": 128}
        sizes["kv_heads"] = 8 if sizes["heads"] % 8 == 0 else sizes["heads"]
    if said["kind"] in OWN_HEAD:
        sizes["vocab"] = min(GENERIC_DRAFT_VOCAB, target.vocab)
    sizes |= {key: said[key] for key in _SIZES if key in said}
    sizes["vocab"] = sizes.pop("draft_vocab", sizes["vocab"])
    ranks = {key: getattr(target, key) for key in ("q_lora_rank", *MLA)} if mla else {}
    return ModelArchitecture(
        id=id,
        layers=layers,
        dense_layers=layers,
        attention="mla" if mla else "gqa",
        evidence=said.get("evidence", "assumed"),
        source=said.get("source", ""),
        **sizes,
        **ranks,
    )
