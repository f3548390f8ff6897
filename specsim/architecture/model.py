"""The shape of a model, and what follows from it in parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specsim.errors import InputError
from specsim.library import Kind, Table, look_up, positive, read_library, read_table
from specsim.quantisation import load_quantisation
from specsim.uncertainty import ORDER, Evidence

Attention = Literal["gqa", "mla"]


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """Parameters of one attention layer by how tensor parallelism treats them."""

    split: int  # divided by the TP degree (by heads)
    kv: int  # K and V projections of grouped-query attention: divided by min(TP, kv_heads)
    replicated: int  # whole on every rank: the down projections of MLA

    @property
    def total(self) -> int:
        """Parameters of the layer."""
        return self.split + self.kv + self.replicated


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """Shape of a decoder-only transformer with gated (three-matrix) FFNs.

    Raises
    ------
    InputError
        If the numbers contradict each other.
    """

    id: str  # library id, or where the shape is from
    layers: int
    hidden: int
    vocab: int
    attention: Attention  # "gqa" (grouped-query; MHA is kv_heads = heads) or "mla" (latent)
    heads: int
    kv_heads: int  # MLA: unused, set to heads
    head_dim: int
    dense_layers: int  # layers with a dense FFN (all of them without experts)
    ffn_inter: int = 0  # width of the FFN in the dense layers
    q_lora_rank: int = 0  # MLA, as the four below; 0: queries are projected in one go
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    experts: int = 0  # routed, per MoE layer
    experts_per_token: int = 0
    shared_experts: int = 0  # that every token takes
    moe_inter: int = 0  # width of one expert
    tied_embeddings: bool = False  # whether the LM head is the embedding matrix
    native_quantisation: str = "bf16"  # scheme in which it is published
    mtp_layers: int = 0  # multi-token prediction, not counted in any total here
    sliding_window: int = 0  # tokens
    sliding_layers: int = 0  # layers that have that window
    linear_layers: int = 0  # linear attention: no KV cache
    linear_params: int = 0  # of one such layer
    linear_state_bytes: int = 0  # its state per request
    query_gate: bool = False  # whether full attention has a gate as large as its query projection
    # Width of what QKV reads, in units of `hidden`: an EAGLE-3 drafter reads the embedding beside
    # the hidden state.
    qkv_inputs: int = 1
    evidence: Evidence = "assumed"
    source: str = ""

    def __post_init__(self) -> None:
        load_quantisation(self.native_quantisation)
        for key in _needed(self):
            positive(f"model {self.id}: {key}", getattr(self, key))
        for key in _COUNTS:
            if getattr(self, key) < 0:
                self._refuse(key, "is negative", "use 0 for none")
        if self.heads % self.kv_heads:
            self._refuse("kv_heads", f"do not divide the {self.heads} heads", "check both")
        if self.experts_per_token > self.experts:
            self._refuse("experts_per_token", f"exceed {self.experts} experts", "check both")
        if self.dense_layers > self.layers or (not self.experts and self.moe_layers):
            self._refuse("dense_layers", f"do not fit {self.layers} layers", "check both")
        if self.sliding_layers + self.linear_layers > self.layers:
            self._refuse("sliding_layers", f"exceed the {self.layers} layers", "check both")

    def _refuse(self, key: str, reason: str, remedy: str) -> None:
        raise InputError(f"model {self.id}: {key} = {getattr(self, key)}", reason, remedy)

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers

    @property
    def attention_params(self) -> AttentionParams:
        """Parameters of one full-attention layer.

        GQA: q and o are hidden x heads x head_dim, k and v hidden x kv_heads x head_dim.
        MLA (DeepSeek-V2, arXiv 2405.04434, section 2.1): down projections of q and kv, then up
        projections by heads.
        """
        width = self.qkv_inputs * self.hidden
        if self.attention == "gqa":
            inner = self.heads * self.head_dim
            query = inner * width * (2 if self.query_gate else 1)
            return AttentionParams(
                query + inner * self.hidden, 2 * self.kv_heads * self.head_dim * width, 0
            )
        query_inner = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        up_kv = self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim)
        out = self.heads * self.v_head_dim * self.hidden
        down = width * (self.q_lora_rank + self.kv_lora_rank + self.qk_rope_head_dim)
        return AttentionParams(query_inner * (self.q_lora_rank or width) + up_kv + out, 0, down)

    @property
    def expert_params(self) -> int:
        """Parameters of one routed expert."""
        return 3 * self.hidden * self.moe_inter

    @property
    def ffn_params(self) -> int:
        """Parameters of the dense FFNs (gate, up and down) and the shared experts, all layers."""
        shared = self.shared_experts * self.expert_params
        return self.dense_layers * 3 * self.hidden * self.ffn_inter + self.moe_layers * shared

    @property
    def router_params(self) -> int:
        """Parameters of one MoE layer's router."""
        return self.hidden * self.experts

    @property
    def norm_params(self) -> int:
        """Parameters of all norms: two per layer and a last one."""
        return (2 * self.layers + 1) * self.hidden

    @property
    def head_params(self) -> int:
        """Parameters of the LM head, read whole in every step; the embedding has as many."""
        return self.hidden * self.vocab

    @property
    def dense_params(self) -> int:
        """Parameters that every token passes, the head left out."""
        full = self.layers - self.linear_layers
        return (
            full * self.attention_params.total
            + self.linear_layers * self.linear_params
            + self.ffn_params
            + self.moe_layers * self.router_params
            + self.norm_params
        )

    @property
    def total_params(self) -> int:
        """All parameters; a tied embedding counts once; vision tower and MTP do not count.

        >>> round(load_model("kimi-k2.5").total_params / 1e9, 1)
        1026.4
        """
        routed = self.moe_layers * self.experts * self.expert_params
        matrices = self.head_params * (1 if self.tied_embeddings else 2)
        return self.dense_params + routed + matrices

    @property
    def active_params(self) -> int:
        """Parameters that one token is multiplied with, head included.

        >>> round(load_model("kimi-k2.5").active_params / 1e9, 1)
        31.7
        """
        routed = self.moe_layers * self.experts_per_token * self.expert_params
        return self.dense_params + routed + self.head_params

    @property
    def kv_numbers_per_layer(self) -> int:
        """Numbers that one token leaves in one layer's KV cache.

        GQA: K and V of every KV head. MLA: the latent and the rotary key, once for all heads.
        """
        if self.attention == "mla":
            return self.kv_lora_rank + self.qk_rope_head_dim
        return 2 * self.kv_heads * self.head_dim

    def kv_bytes_per_token(self, kv_dtype_bytes: float = 2.0) -> float:
        """KV bytes of one token over all layers, one copy; windows are not applied.

        >>> load_model("kimi-k2.5").kv_bytes_per_token()
        70272.0
        """
        return self.kv_bytes_of_context(1.0, kv_dtype_bytes)

    def kv_bytes_of_context(self, context_len: float, kv_dtype_bytes: float = 2.0) -> float:
        """KV bytes that attention reads for one request: windowed layers stop at their window."""
        full = self.layers - self.linear_layers - self.sliding_layers
        windowed = self.sliding_layers * min(context_len, self.sliding_window)
        return (full * context_len + windowed) * self.kv_numbers_per_layer * kv_dtype_bytes


_COUNTS = (
    *("ffn_inter", "experts", "experts_per_token", "shared_experts", "moe_inter", "dense_layers"),
    *("mtp_layers", "sliding_window", "sliding_layers"),
    *("linear_layers", "linear_params", "linear_state_bytes", "q_lora_rank"),
)
MLA = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_REQUIRED = ("layers", "hidden", "vocab", "heads")
_KEYS: Mapping[str, Kind] = {
    **dict.fromkeys((*_REQUIRED, "kv_heads", "head_dim", *MLA, *_COUNTS), int),
    **dict.fromkeys(("tied_embeddings", "query_gate"), bool),
    **dict.fromkeys(("attention", "native_quantisation", "source"), str),
    "evidence": ORDER,
    "aliases": list,
}


def _needed(model: ModelArchitecture) -> list[str]:
    """Return the fields that must be positive for this kind of model."""
    needed = ["layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "qkv_inputs"]
    if model.attention == "mla":
        needed += MLA
    if model.dense_layers:
        needed.append("ffn_inter")
    if model.experts:
        needed += ["experts_per_token", "moe_inter"]
    if model.sliding_layers:
        needed.append("sliding_window")
    if model.linear_layers:
        needed.append("linear_params")
    return needed


def model_names() -> tuple[str, ...]:
    """Ids of the models in the library."""
    return tuple(sorted(read_library("models")))


def load_model(name: str, quantisation: str | None = None) -> ModelArchitecture:
    """Return a model.

    Parameters
    ----------
    name
        A library id or Hugging Face name in any case, the path of a TOML file with the keys of a
        library entry, or that of a config.json or its folder.
    quantisation
        Scheme of the weights, where a config's `quantization_config` is not to be read.

    Raises
    ------
    UnknownNameError
        Names the nearest id.
    FormatError, InputError
        If the file cannot be read, or does not describe a model that can be priced.

    Examples
    --------
    >>> load_model("meta-llama/Llama-3.1-8B-Instruct").id
    'llama-3.1-8b'
    """
    if name.endswith(".json") or ("/" in name and Path(name, "config.json").is_file()):
        from specsim.architecture.hf_config import table_of_config  # the library needs none

        id, config = table_of_config(name, quantisation)
        return model_from_table(config, id)
    remedy = "give the path of its config.json, or of a TOML table"
    id, table = look_up("models", name, remedy)
    return model_from_table(table, id)


def model_from_table(table: Table, id: str) -> ModelArchitecture:
    """Build a model from a table of the library's form.

    `same_as` names a library entry whose fields hold where this table is silent.
    """
    where = f"model {id}"
    values = read_table(where, _inherit(table), _KEYS, _REQUIRED)
    values.pop("aliases", None)
    attention = "mla" if "kv_lora_rank" in values else "gqa"
    if values.setdefault("attention", attention) != attention:
        raise InputError(where, "attention contradicts the MLA ranks", "drop `attention`")
    values.setdefault("kv_heads", values["heads"])
    mla_dim = values.get("qk_nope_head_dim", 0) + values.get("qk_rope_head_dim", 0)
    values.setdefault("head_dim", mla_dim or values["hidden"] // max(1, values["heads"]))
    values.setdefault("dense_layers", 0 if values.get("experts") else values["layers"])
    return ModelArchitecture(id=id, **values)


def _inherit(table: Table) -> Table:
    """Resolve `same_as`, which may lead to an entry that has one itself."""
    base = table.get("same_as")
    if base is None:
        return table
    _, shape = look_up("models", str(base), "write the shape out")
    return {**_inherit(shape), **{k: v for k, v in table.items() if k != "same_as"}}
