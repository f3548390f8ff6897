"""Model shapes from a Hugging Face config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specsim.errors import FormatError, InputError
from specsim.library import positive
from specsim.quantisation import load_quantisation
from specsim.textfile import check_tree, read_text

_REFUSED = {
    # what we cannot price, by model_type
    "has an FFN without a gate": "gpt2 gpt_neox gptj opt falcon phi starcoder2 bloom nemotron",
    "is not a decoder-only transformer": "bert t5 mamba mamba2 rwkv whisper",
    "mixes layers of kinds that specsim does not know": (
        "jamba zamba2 bamba nemotron_h falcon_h1 granitemoehybrid kimi_linear lfm2 llama4"
        " llama4_text"
    ),
}

_NAMES = {
    # our field: the keys that configs use for it, the first is named when none is there
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "vocab": ("vocab_size",),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn_inter": ("intermediate_size",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts"),
    "experts_per_token": ("num_experts_per_tok", "experts_per_token", "moe_topk"),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "moe_inter": ("moe_intermediate_size", "intermediate_size"),
    "mtp_layers": ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"),
}
_MAY_BE_ZERO = ("q_lora_rank", "experts", "shared_experts", "mtp_layers")


def table_of_config(
    path: str | Path, quantisation: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Read the shape of a model from its config.json: name and table as the library has them.

    Knows Llama, Mistral, Mixtral, Qwen2/3 and their MoE, Qwen3-Next, DeepSeek-V2/V3, Kimi-K2/K2.5
    (nested ``text_config``), gpt-oss, GLM-4 MoE, MiniMax-M2 and Gemma; any other decoder whose
    config uses the same keys and whose FFN is gated.

    Parameters
    ----------
    path
        The file, or the folder that holds it, after which a model without a name is called.
    quantisation
        Scheme of the weights, where the config's `quantization_config` is not to be read.

    Raises
    ------
    InputError
        If the file cannot be read or a number in it makes no sense.
    FormatError
        If it is not JSON, lacks a key, or describes something else than a gated decoder.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    config = _Config(str(file), read_config(path))
    config.refuse_other_kinds()
    table: dict[str, Any] = {key: config.number(key) for key in ("layers", "hidden", "vocab")}
    table |= config.attention()
    table |= config.experts()
    table |= config.windows(table["layers"])
    table["mtp_layers"] = config.number("mtp_layers", 0)
    table["tied_embeddings"] = config.tied()
    stated = quantisation not in (None, "native")
    table["native_quantisation"] = quantisation if stated else config.quantisation()
    table |= {"evidence": "published", "source": file.name}
    name = config.text("_name_or_path").rsplit("/", 1)[-1] or file.resolve().parent.name
    return name, table


def read_config(path: str | Path) -> Mapping[str, Any]:
    """Return the content of a config.json, or of the one in a folder.

    Raises
    ------
    InputError, FormatError
        If it cannot be read, or is no JSON object.
    """
    file = Path(path, "config.json") if Path(path).is_dir() else Path(path)

    def refuse(constant: str) -> float:
        raise FormatError(file, f"holds {constant}", "write a finite number")

    try:
        document = json.loads(read_text(file, "a config.json"), parse_constant=refuse)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(file, f"is not JSON ({error})", "give a config.json") from error
    check_tree(document, file)
    if not isinstance(document, Mapping):
        raise FormatError(file, "is not a JSON object", "give a model's config.json")
    return document


class _Config:
    """A config.json with its language part on top (``text_config``, if there is one)."""

    def __init__(self, where: str, outer: Mapping[str, Any]) -> None:
        nested = (outer.get(key) for key in ("text_config", "llm_config"))
        inner: Mapping[str, Any] = next((n for n in nested if isinstance(n, Mapping)), {})
        self.where = where
        self.outer = outer
        self.content: Mapping[str, Any] = {**outer, **inner}
        self.kind = str(self.content.get("model_type", ""))

    def refuse_other_kinds(self) -> None:
        found = [why for why, kinds in _REFUSED.items() if self.kind in kinds.split()]
        if self.content.get("is_encoder_decoder") is True:
            found.append("is an encoder and a decoder")
        if found:
            raise FormatError(
                self.where, f"model_type {self.kind!r} {found[0]}", "take a similar library model"
            )

    def whole(self, key: str, or_zero: bool = False) -> int:
        """Return the positive whole number under `key` itself."""
        value = self.content[key]
        if or_zero and value == 0 and not isinstance(value, bool):
            return 0
        number = positive(f"{self.where}: {key}", value)
        if not number.is_integer():
            raise InputError(f"{self.where}: {key} = {value}", "is not whole", "correct it")
        return int(number)

    def count(self, key: str, default: int) -> int:
        """Return the whole number under `key` itself; `default` where it is absent or null."""
        return default if self.content.get(key) is None else self.whole(key, or_zero=True)

    def number(self, field: str, default: int | None = None) -> int:
        """Return a field; `default` where the config is silent or says null."""
        keys = _NAMES[field]
        for key in keys:
            if self.content.get(key) is not None:
                return self.whole(key, or_zero=field in _MAY_BE_ZERO)
        if default is not None:
            return default
        raise FormatError(
            self.where,
            f"has no key {keys[0]!r}" + (f" (nor {', '.join(keys[1:])})" if keys[1:] else ""),
            f"add {keys[0]!r} to the config, or use a library model",
        )

    def text(self, key: str) -> str:
        return str(self.content.get(key) or "")

    def attention(self) -> dict[str, Any]:
        heads = self.number("heads")
        if self.content.get("kv_lora_rank") is not None:
            ranks = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
            found = {key: self.number(key) for key in ranks}
            return {"heads": heads, "q_lora_rank": self.number("q_lora_rank", 0), **found}
        hidden = self.number("hidden")
        if self.content.get("head_dim") is None and hidden % heads:
            raise FormatError(
                self.where,
                f"has no key 'head_dim', and {heads} heads do not divide hidden_size {hidden}",
                "add 'head_dim' to the config",
            )
        return {
            "heads": heads,
            "kv_heads": self.number("kv_heads", heads),
            "head_dim": self.number("head_dim", hidden // heads),
            "query_gate": self.content.get("attn_output_gate") is True,
        }

    def experts(self) -> dict[str, Any]:
        experts = self.number("experts", 0)
        if not experts:
            return {"ffn_inter": self.number("ffn_inter")}
        layers, moe_inter = self.number("layers"), self.number("moe_inter")
        dense = layers - sum(self._is_moe(layer) for layer in range(layers))
        shared = self.number("shared_experts", 0)
        shared_inter = self.count("shared_expert_intermediate_size", 0)
        if shared_inter:
            shared, rest = divmod(shared_inter, moe_inter)
            if rest:
                raise InputError(
                    f"{self.where}: shared_expert_intermediate_size = {shared_inter}",
                    f"is no multiple of moe_intermediate_size {moe_inter}",
                    "correct the config",
                )
        return {
            "experts": experts,
            "experts_per_token": self.number("experts_per_token"),
            "shared_experts": shared,
            "moe_inter": moe_inter,
            "dense_layers": dense,
            "ffn_inter": self.number("ffn_inter") if dense else 0,
        }

    def _is_moe(self, layer: int) -> bool:
        """Return whether a layer has experts: each family has its own way of saying so."""
        content = self.content
        dense = content.get("mlp_only_layers")
        if isinstance(dense, list) and layer in dense:
            return False
        listed = content.get("moe_layer_freq")
        if isinstance(listed, list):
            return bool(listed[layer]) if layer < len(listed) else False
        first = self.count("first_k_dense_replace", 0)
        every = self.count("moe_layer_freq", 1) or 1
        step = self.count("decoder_sparse_step", 1) or 1  # Qwen MoE counts layers from one
        return layer >= first and layer % every == 0 and (layer + 1) % step == 0

    def windows(self, layers: int) -> dict[str, int]:
        """Return windowed and linear layers."""
        content = self.content
        types = content.get("layer_types")
        types = types if isinstance(types, list) else self._types_by_period(layers)
        linear = types.count("linear_attention")
        found = {}
        if linear:
            found = {"linear_layers": linear, **self._linear_attention()}
        window = content.get("sliding_window")
        used = content.get("use_sliding_window", True) is not False
        sliding = types.count("sliding_attention") if used and window else 0
        if sliding:
            found |= {"sliding_window": self.count("sliding_window", 0), "sliding_layers": sliding}
        return found

    def _types_by_period(self, layers: int) -> list[str]:
        """Return the kind of each layer where the config does not list it."""
        if every := self.count("full_attention_interval", 0):
            return ["linear_attention" if (i + 1) % every else "full" for i in range(layers)]
        if not self.content.get("sliding_window"):
            return []
        alternate = 2 if self.kind in ("gpt_oss", "gemma2") else 0
        if every := self.count("sliding_window_pattern", alternate):
            return ["sliding_attention" if (i + 1) % every else "full" for i in range(layers)]
        start = self.count("max_window_layers", 0) if self.kind.startswith("qwen") else 0
        start = min(start, layers)
        return ["full"] * start + ["sliding_attention"] * (layers - start)

    def _linear_attention(self) -> dict[str, int]:
        """Return size and state of a gated-DeltaNet layer (Qwen3-Next)."""
        keys = [
            f"linear_{what}"
            for what in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
        ]
        for key in keys:
            if key not in self.content:
                raise FormatError(self.where, f"has no key {key!r}", "add it to the config")
        k_heads, v_heads, k_dim, v_dim = map(self.whole, keys)
        hidden, value = self.number("hidden"), v_heads * v_dim
        into = hidden * (2 * k_heads * k_dim + 2 * value + 2 * v_heads)
        state = 4 * v_heads * k_dim * v_dim  # fp32
        return {"linear_params": into + value * hidden, "linear_state_bytes": state}

    def tied(self) -> bool:
        said = self.content.get("tie_word_embeddings")
        return self.kind.startswith("gemma") if said is None else bool(said)

    def quantisation(self) -> str:
        """Return the scheme that `quantization_config` describes, bf16 without one."""
        about = self.content.get("quantization_config") or self.outer.get("quantization_config")
        if not isinstance(about, Mapping):
            return "bf16"
        found = _scheme(about)
        if not found:
            raise FormatError(
                f"{self.where}: quantization_config",
                f"is of an unknown kind ({about.get('quant_method')!r})",
                'name the nearest scheme: [model] quantisation = "..."',
            )
        return load_quantisation(found).id


def _scheme(about: Mapping[str, Any]) -> str:
    """Return our name for a `quantization_config`, empty if there is none."""
    method = str(about.get("quant_method", "")).lower()
    bits = about.get("bits", about.get("w_bit"))
    if method == "fp8":
        return "fp8-block" if about.get("weight_block_size") else "fp8"
    if method in ("awq", "gptq"):
        return {"4": method, "8": "int8"}.get(str(bits), "")
    if method == "mxfp4":
        return "mxfp4-experts"
    skipped = str(about.get("ignore") or about.get("exclude_modules") or "")
    suffix = "-experts" if "self_attn" in skipped else ""
    if method.startswith("modelopt"):
        algorithm = str(about.get("quant_algo", "")).upper()
        return {"FP8": "fp8", "NVFP4": f"nvfp4{suffix}"}.get(algorithm, "")
    if method == "compressed-tensors":
        groups = about.get("config_groups")
        group: object = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            return ""
        kind = (str(weights.get("type")), str(weights.get("num_bits")))
        block = weights.get("strategy") == "block"
        return {
            ("int", "4"): f"int4{suffix}",
            ("int", "8"): "int8",
            ("float", "8"): "fp8-block" if block else "fp8",
            ("float", "4"): f"nvfp4{suffix}",
        }.get(kind, "")
    return ""
