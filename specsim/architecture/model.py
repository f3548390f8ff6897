"""The shape of a model, and what follows from it in parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from specsim.errors import InputError, UnknownNameError
from specsim.evidence import Evidence
from specsim.library import (
    Table,
    as_evidence,
    check_keys,
    find,
    positive,
    read_library,
    text,
)
from specsim.quantisation import load_quantisation

Attention = Literal["gqa", "mla"]


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """Parameters of one attention layer by how tensor parallelism treats them.

    Parameters
    ----------
    split
        Divided by the TP degree (by heads).
    kv
        K and V projections of grouped-query attention: divided by min(TP, kv_heads).
    replicated
        Whole on every rank: the down projections of MLA.
    """

    split: int
    kv: int
    replicated: int

    @property
    def total(self) -> int:
        """Parameters of the layer."""
        return self.split + self.kv + self.replicated


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """Shape of a decoder-only transformer with gated (three-matrix) FFNs.

    Parameters
    ----------
    id
        Library id, or where the shape is from.
    layers, hidden, vocab
        Decoder layers, model width, vocabulary size.
    attention
        ``gqa`` (grouped-query; MHA is kv_heads = heads) or ``mla`` (latent attention).
    heads, kv_heads, head_dim
        Query heads, KV heads (MLA: unused, set to heads), numbers per head.
    q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim
        MLA only; q_lora_rank 0 means that queries are projected in one go.
    ffn_inter
        Width of the FFN in the dense layers.
    experts, experts_per_token, shared_experts, moe_inter
        Routed experts per MoE layer, how many a token takes, experts that every token takes,
        and the width of one expert.
    dense_layers
        Layers with a dense FFN (all of them without experts).
    tied_embeddings
        Whether the LM head is the embedding matrix.
    native_quantisation
        Scheme in which the model is published (`specsim.quantisation`).
    mtp_layers
        Multi-token-prediction layers that come with it; not counted in any total here.
    sliding_window, sliding_layers
        Window in tokens, and how many layers have it.
    linear_layers, linear_params, linear_state_bytes
        Linear-attention layers: how many, parameters of one, and bytes of its state per request.
        They have no KV cache.
    query_gate
        Whether full attention has an output gate as large as its query projection.
    qkv_inputs
        Width of what QKV reads, in units of `hidden`: 1, or 2 for an EAGLE-3 drafter, which
        reads the embedding beside the hidden state.
    evidence, source
        What the shape rests on.

    Raises
    ------
    InputError
        If the numbers contradict each other.
    """

    id: str
    layers: int
    hidden: int
    vocab: int
    attention: Attention
    heads: int
    kv_heads: int
    head_dim: int
    dense_layers: int
    ffn_inter: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    moe_inter: int = 0
    tied_embeddings: bool = False
    native_quantisation: str = "bf16"
    mtp_layers: int = 0
    sliding_window: int = 0
    sliding_layers: int = 0
    linear_layers: int = 0
    linear_params: int = 0
    linear_state_bytes: int = 0
    query_gate: bool = False
    qkv_inputs: int = 1
    evidence: Evidence = "assumed"
    source: str = ""

    def __post_init__(self) -> None:
        if self.attention not in get_args(Attention):
            raise UnknownNameError(f"{self.id}: attention", self.attention, get_args(Attention))
        load_quantisation(self.native_quantisation)
        for key in _needed(self):
            positive(f"model {self.id}", key, getattr(self, key))
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
    def attention_params_per_layer(self) -> int:
        """Parameters of one full-attention layer, all projections."""
        return self.attention_params.total

    @property
    def dense_ffn_params_per_layer(self) -> int:
        """Parameters of the FFN of one dense layer: gate, up and down."""
        return 3 * self.hidden * self.ffn_inter

    @property
    def expert_params(self) -> int:
        """Parameters of one routed expert."""
        return 3 * self.hidden * self.moe_inter

    @property
    def shared_expert_params_per_layer(self) -> int:
        """Parameters of the shared experts of one MoE layer."""
        return self.shared_experts * self.expert_params

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
        """Parameters of the LM head, read whole in every step."""
        return self.hidden * self.vocab

    @property
    def embedding_params(self) -> int:
        """Parameters of the embedding, of which a step reads a row per token."""
        return self.hidden * self.vocab

    @property
    def dense_params(self) -> int:
        """Parameters that every token passes, the head left out."""
        full = self.layers - self.linear_layers
        return (
            full * self.attention_params_per_layer
            + self.linear_layers * self.linear_params
            + self.dense_layers * self.dense_ffn_params_per_layer
            + self.moe_layers * (self.shared_expert_params_per_layer + self.router_params)
            + self.norm_params
        )

    @property
    def total_params(self) -> int:
        """All parameters; a tied embedding counts once; vision tower and MTP do not count.

        >>> round(load_model("kimi-k2.5").total_params / 1e9, 1)
        1026.4
        """
        routed = self.moe_layers * self.experts * self.expert_params
        matrices = self.head_params + (0 if self.tied_embeddings else self.embedding_params)
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
        cached = self.layers - self.linear_layers
        return cached * self.kv_numbers_per_layer * float(kv_dtype_bytes)

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
_MLA = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_FLAGS = ("tied_embeddings", "query_gate")


def _needed(model: ModelArchitecture) -> list[str]:
    """Return the fields that must be positive for this kind of model."""
    needed = ["layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "qkv_inputs"]
    if model.attention == "mla":
        needed += _MLA
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


def load_model(name: str) -> ModelArchitecture:
    """Return a model of the library, by id or by its Hugging Face name in any case.

    Raises
    ------
    UnknownNameError
        Names the nearest id.

    Examples
    --------
    >>> load_model("meta-llama/Llama-3.1-8B-Instruct").id
    'llama-3.1-8b'
    """
    library = read_library("models")
    wanted = name.strip().lower().rsplit("/", 1)[-1]  # who uploaded it does not change its shape
    wanted = next((id for id in library if wanted in aliases(library[id])), wanted)
    found = find("model", wanted, library, 'give config = "path/to/config.json"')
    return model_from_table(library[found], found)


def aliases(table: Table) -> list[str]:
    """Other names of a library entry: lower case, without the organisation."""
    names = table.get("aliases", [])
    return [str(n).lower().rsplit("/", 1)[-1] for n in names] if isinstance(names, list) else []


def model_from_table(table: Table, id: str) -> ModelArchitecture:
    """Build a model from a table of the library's form.

    `same_as` names a library entry whose fields hold where this table is silent.
    """
    where = f"model {id}"
    table = _inherit(where, table)
    texts = ("attention", "native_quantisation", "evidence", "source", "aliases")
    required = ("layers", "hidden", "vocab", "heads")
    numbers = ("kv_heads", "head_dim", *_MLA, *_COUNTS)
    check_keys(where, table, (*required, *numbers, *_FLAGS, *texts), required)
    values: dict[str, Any] = {
        k: whole(where, k, table[k]) for k in (*required, *numbers) if k in table
    }
    values |= {k: _flag(where, k, table[k]) for k in _FLAGS if k in table}
    attention: Attention = "mla" if "kv_lora_rank" in values else "gqa"
    if text(where, table, "attention", attention) != attention:
        raise InputError(where, "attention contradicts the MLA ranks", "drop `attention`")
    values.setdefault("kv_heads", values["heads"])
    mla_dim = values.get("qk_nope_head_dim", 0) + values.get("qk_rope_head_dim", 0)
    values.setdefault("head_dim", mla_dim or values["hidden"] // max(1, values["heads"]))
    values.setdefault("dense_layers", 0 if values.get("experts") else values["layers"])
    return ModelArchitecture(
        id=id,
        attention=attention,
        native_quantisation=text(where, table, "native_quantisation", "bf16"),
        evidence=as_evidence(where, table),
        source=text(where, table, "source", ""),
        **values,
    )


def _inherit(where: str, table: Table) -> Table:
    """Resolve `same_as`, which may lead to an entry that has one itself."""
    base = table.get("same_as")
    if base is None:
        return table
    library = read_library("models")
    shape = library[find(f"{where}: same_as", str(base), library, "write the shape out")]
    return {
        **{k: v for k, v in _inherit(where, shape).items() if k != "aliases"},
        **{k: v for k, v in table.items() if k != "same_as"},
    }


def whole(where: str, key: str, value: object) -> int:
    """Return a field that must be a whole number of at least zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(
            f"{where}: {key} = {value!r}", "is not a whole number >= 0", "correct the field"
        )
    return value


def _flag(where: str, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} = {value!r}", "is not true or false", "write true")
    return value
