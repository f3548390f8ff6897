"""Model shapes from a Hugging Face config.json.

What the families call their numbers is data (library/families.toml [@hf-configs]); here is what is
done with it. Every key that is looked at is remembered, so that one which is left over and may
change what a step costs is named rather than passed over.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specsim.architecture.hf_layers import layer_kinds, linear_layer, moe_layers
from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.library import positive, read_library
from specsim.quantisation import scheme_of_config
from specsim.textfile import check_tree, name_of, read_text, shown

LARGEST_SIZE = 2**30
_MAY_BE_ZERO = ("q_lora_rank", "experts", "experts_per_token", "shared_experts", "mtp_layers")
_LANGUAGE = (
    *("text_config", "llm_config", "language_config", "thinker_config"),
    "transformer_layer_config",  # of a drafter, as the library speculators writes it
)
_QUANTISATION = ("quantization_config", "quantization", "compression_config")


def table_of_config(
    path: str | Path, quantisation: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Read the shape of a model from its config.json: name and table as the library has them.

    Knows the decoder families of library/families.toml, alone or as the ``text_config`` of a
    multimodal model.

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
    FormatError, UnknownNameError
        If it is not JSON, lacks a key, is of another family, or has a key that may change the cost
        and is not understood.
    """
    file = Path(name_of(path))
    file = file / "config.json" if file.is_dir() else file
    config = Config(str(file), read_config(path))
    stated = quantisation not in (None, "native")
    scheme, kv_dtype = (quantisation, "") if stated else config.quantisation()
    table = config.shape()
    config.refuse_what_is_left()
    table |= {"native_quantisation": scheme, "evidence": "published", "source": file.name}
    table |= {"kv_dtype": kv_dtype} if kv_dtype else {}
    name = str(config.content.get("_name_or_path") or "").rstrip("/").rsplit("/", 1)[-1]
    return name or file.resolve().parent.name, table


def read_config(path: str | Path) -> Mapping[str, Any]:
    """Return the content of a config.json, or of the one in a folder."""
    name = name_of(path)
    file = Path(name, "config.json") if Path(name).is_dir() else path
    try:
        document = json.loads(read_text(file, "a config.json"))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(file, f"is not JSON ({error})", "give a config.json") from error
    check_tree(document, file, math.inf)  # some hold 1e308, for no limit
    if not isinstance(document, Mapping):
        raise FormatError(file, "is not a JSON object", "give a model's config.json")
    return document


class Config:
    """A config.json: its language part, the rules of its family, and the keys that were read."""

    def __init__(self, where: str, outer: Mapping[str, Any]) -> None:
        rules: Any = read_library("families")
        inner = _language_part(outer)
        own = outer if inner is None else inner
        self.where, self.rules = where, rules
        self.own = _flat(own, rules["nested"])
        self.content: Mapping[str, Any] = {**outer, **self.own}
        self.seen: set[str] = {*_LANGUAGE, *_QUANTISATION, "expert_dtype"}
        self.kind = str(own.get("model_type") or outer.get("model_type") or "")
        self.family = self._family()

    def _family(self) -> dict[str, Any]:
        """Return the row of this model_type, with what it takes from another one."""
        kind = self.kind.removesuffix("_text").removesuffix("_vl_text")
        for reason, kinds in self.rules["refused"].items():
            if kind in kinds.split():
                self.refuse("model_type", f"{reason}", "take a similar library model")
        if self.content.get("is_encoder_decoder") is True:
            self.refuse("model_type", "is an encoder and a decoder", "take a library model")
        if not kind:
            self.missing("model_type")
        families = self.rules["family"]
        found = [row for row in families.values() if kind in row["types"].split()]
        if not found:
            known = [name for row in families.values() for name in row["types"].split()]
            remedy = "if its layers are those of a known family, write that one's model_type"
            raise UnknownNameError(f"{self.where}: model_type", self.kind, known, remedy)
        row: dict[str, Any] = found[-1]  # the more special one stands behind
        while (base := row.get("like")) is not None:
            row = {**families[base], **{k: v for k, v in row.items() if k != "like"}}
        return row

    def refuse(self, key: str, reason: str, remedy: str) -> None:
        """Refuse the value under a key."""
        value = shown(self.content.get(key))
        raise FormatError(f"{self.where}: {key} {value}", reason, remedy)

    def missing(self, *keys: str) -> None:
        """Refuse a config that has none of these keys."""
        others = f" (nor {', '.join(keys[1:])})" if keys[1:] else ""
        remedy = f"add {keys[0]!r} to the config, or use a library model"
        raise FormatError(self.where, f"has no key {keys[0]!r}{others}", remedy)

    def get(self, key: str) -> Any:
        """Return what stands under a key, None where nothing does; the key counts as read."""
        self.seen.add(key)
        return self.content.get(key)

    def listed(self, key: str) -> list[Any]:
        """Return the list under a key, empty where there is none."""
        value = self.get(key)
        return value if isinstance(value, list) else []

    def keys(self, field: str) -> tuple[str, ...]:
        """Return the keys that may hold a field, all of which count as read."""
        own = self.family.get("keys", {}).get(field)
        keys = own.split("|") if own else self.rules["fields"][field]
        self.seen.update(keys)
        return tuple(keys)

    def whole(self, key: str, or_zero: bool = False) -> int:
        """Return the positive whole number under `key` itself; of a list of equal ones, one."""
        value = self.get(key)
        if isinstance(value, list) and len(value) > 1 and value.count(value[0]) == len(value):
            value = value[0]
        if or_zero and value == 0 and not isinstance(value, bool):
            return 0
        number = positive(f"{self.where}: {key}", value)
        if not number.is_integer() or number > LARGEST_SIZE:
            reason = "is no whole number that a model could have"
            raise InputError(f"{self.where}: {key} = {shown(value)}", reason, "correct it")
        return int(number)

    def count(self, key: str, default: int = 0) -> int:
        """Return the whole number under `key` itself; `default` where it is absent or null."""
        return default if self.get(key) is None else self.whole(key, or_zero=True)

    def number(self, field: str, default: int | None = None) -> int:
        """Return a field; `default` where the config is silent or says null."""
        keys = self.keys(field)
        for key in keys:
            if self.content.get(key) is not None:
                return self.whole(key, or_zero=field in _MAY_BE_ZERO or default == 0)
        if default is None:
            self.missing(*keys)
        return default or 0

    def says(self, field: str) -> bool:
        """Whether a key of the field is there, be it null."""
        return any(key in self.content for key in self.keys(field))

    def shape(self) -> dict[str, Any]:
        """Return the table that the library would have for this model, but for its weights."""
        self._check("needs")
        kinds = layer_kinds(self)
        table: dict[str, Any] = {key: self.number(key) for key in ("hidden", "vocab")}
        table |= {"layers": len(kinds), **self.family.get("fixed", {})}
        table |= self.attention(kinds) | self.experts(kinds)
        if "linear" in kinds:
            table |= linear_layer(self)
        table["mtp_layers"] = self.number("mtp_layers", 0)
        said = self.get("tie_word_embeddings")
        table["tied_embeddings"] = bool(self.family.get("tied") if said is None else said)
        if self.family.get("gateless"):
            table["ffn_matrices"] = 2
        alone = kinds.count("dense") + kinds.count("experts")
        return table | {
            "linear_layers": kinds.count("linear"),
            "ffn_only_layers": alone,
            "mixer_only_layers": len(kinds) - alone if alone else 0,
        }

    def _check(self, needs: str) -> None:
        """Refuse a config without a key that its family cannot do without."""
        for key in self.family.get(needs, ()):
            names = key.split("|")
            said = [name for name in names if name in self.content]
            if len(names) > 1:  # they say the same, so one of them must say something
                said = [name for name in said if self.content[name] is not None]
            if not said:
                self.missing(*names)

    def attention(self, kinds: list[str]) -> dict[str, Any]:
        """Return attention of all kinds of layers."""
        found: dict[str, Any] = {"heads": self.number("heads")}
        if self.get("kv_lora_rank") is not None:
            ranks = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
            found |= {key: self.number(key) for key in ranks}
            found["q_lora_rank"] = self.number("q_lora_rank", 0)
            found["query_gate"] = self.get("mla_use_output_gate") is True
            self.seen.update((*self.keys("kv_heads"), *self.keys("head_dim")))
        else:
            found |= self._grouped_query()
        if "sliding" in kinds:
            found |= self._sliding(kinds)
        return found | self._sparse(kinds)

    def _grouped_query(self) -> dict[str, Any]:
        heads, hidden = self.number("heads"), self.number("hidden")
        found = {"kv_heads": self._kv_heads(heads), "v_head_dim": self.number("v_head_dim", 0)}
        keys = self.keys("head_dim")
        if all(self.content.get(key) is None for key in keys) and (
            self.family.get("stated_head_dim") or hidden % heads
        ):
            self.missing(*keys)
        found["head_dim"] = self.number("head_dim", hidden // heads)
        if self.get("attn_output_gate") is True:
            found["query_gate"] = True
        if self.get("attention_k_eq_v") is True:
            found["shared_kv"] = True
        if self.says("o_lora_rank"):
            ranks = ("o_lora_rank", "o_groups", "q_lora_rank")
            found |= {key: self.number(key) for key in ranks}
            self.seen.update(("qk_rope_head_dim", "qk_nope_head_dim"))
        return found

    def _kv_heads(self, heads: int) -> int:
        """Return the KV heads: null means as many as heads, a missing key is not guessed at."""
        if self.get("multi_query") is True and self.get("new_decoder_architecture") is not True:
            self.keys("kv_heads")
            return 1
        own = self.family.get("keys", {}).get("kv_heads")  # null: those of the other layers
        if own and self.get(own) is None:
            return self.number("sliding_kv_heads")
        if not self.says("kv_heads") and not self.family.get("mha"):
            self.missing(*self.keys("kv_heads"))
        return self.number("kv_heads", heads)

    def _sliding(self, kinds: list[str]) -> dict[str, Any]:
        chunk = self.count("attention_chunk_size")
        window = self.number("sliding_window", 0) or chunk
        found = {"sliding_layers": kinds.count("sliding"), "sliding_window": window}
        if not window:
            self.missing(*self.keys("sliding_window"), "attention_chunk_size")
        for field in ("heads", "kv_heads", "head_dim", "v_head_dim"):
            found[f"sliding_{field}"] = self.number(f"sliding_{field}", 0)
        return found

    def _sparse(self, kinds: list[str]) -> dict[str, Any]:
        """Return what an indexer picks, and entries that hold several tokens."""
        topk = self.number("index_topk", 0)
        block = self.count("index_block_size", 1) or 1
        if not topk or self.get("use_sparse_attention") is False:
            if "sparse" in kinds:
                self.missing(*self.keys("index_topk"))
            self.seen.update((*self.keys("index_heads"), *self.keys("index_head_dim")))
            return {}
        found: dict[str, Any] = {key: self.number(key) for key in ("index_heads", "index_head_dim")}
        found["index_topk"] = topk * block
        if ratios := self.listed("compress_ratios"):
            if len(ratios) < len(kinds):
                self.refuse("compress_ratios", f"is not of {len(kinds)} layers", "correct it")
            used = ratios[: len(kinds)]
            found["compressed"] = [[used.count(n), n] for n in sorted({*used})]
            found["sliding_window"] = self.number("sliding_window")
        if "sparse" in kinds:
            found["sparse_layers"] = kinds.count("sparse")
        types, every = self.listed("indexer_types"), self.count("index_topk_freq", 1)
        if every > 1 and not types:
            self.missing("indexer_types")
        self.seen.add("index_skip_topk_offset")
        return found | {"index_shared_layers": types[: len(kinds)].count("shared")}

    def experts(self, kinds: list[str]) -> dict[str, Any]:
        """Return dense FFNs and experts."""
        halves = {"dense", "experts"} & {*kinds}
        moe = self.family.get("moe") and (not halves or "experts" in kinds)
        if not moe:
            dense = kinds.count("dense") if halves else len(kinds)
            return {"ffn_inter": self._dense_width(), "dense_layers": dense}
        if not self.says("experts"):
            self.missing(*self.keys("experts"))
        if self.get("enable_moe_block") is False or not self.number("experts", 0):
            for field in ("experts_per_token", "moe_inter", "shared_inter"):
                self.keys(field)
            return {"ffn_inter": self._dense_width(), "dense_layers": len(kinds)}
        self._check("experts_need")
        found = {key: self.number(key) for key in ("experts", "experts_per_token", "moe_inter")}
        fixed = self.family.get("fixed", {}).get("shared_experts", 0)
        found["shared_experts"] = self.number("shared_experts", 0) or fixed
        found["shared_inter"] = self.number("shared_inter", 0) * max(1, found["shared_experts"])
        found["expert_hidden"] = self.number("expert_hidden", 0)
        dense = kinds.count("dense") if halves else len(kinds) - moe_layers(self, len(kinds))
        self.keys("ffn_inter")
        width = self._dense_width() if dense else 0
        return found | {"dense_layers": dense, "ffn_inter": width}

    def _dense_width(self) -> int:
        keys = self.keys("ffn_inter")
        times = self.family.get("ffn_times_hidden")
        if times and all(self.content.get(key) is None for key in keys):
            return int(times) * self.number("hidden")
        return self.number("ffn_inter")

    def quantisation(self) -> tuple[str, str]:
        """Return the scheme of the weights and the type of the KV cache that the config states."""
        said = (self.content.get(key) for key in _QUANTISATION)
        about = next((a for a in said if isinstance(a, Mapping) and a), None) or _beside(self.where)
        if about is None:
            return "bf16", ""
        about = {"expert_dtype": self.get("expert_dtype"), **about}
        routed = "experts_per_token" in self.shape() and self.number("experts", 0) > 0
        scheme, kv_dtype = scheme_of_config(about, self.number("layers", 0), routed)
        sparse = about.get("sparsity_config")
        pattern = str(sparse.get("sparsity_structure")) if isinstance(sparse, Mapping) else ""
        if re.fullmatch(r"[1-9]:[1-9]", pattern):
            why = f"has {pattern} sparse weights, which are not modelled"
            remedy = "delete sparsity_config for an estimate of the dense weights"
            raise FormatError(f"{self.where}: quantization_config", why, remedy)
        if not scheme:
            keys = ("quant_method", "quant_algo", "bits")
            kind = " ".join(str(about[key]) for key in keys if about.get(key))
            why = f"is of an unknown kind ({shown(kind)})"
            remedy = 'name the nearest scheme: [model] quantisation = "..."'
            raise FormatError(f"{self.where}: quantization_config", why, remedy)
        return scheme, kv_dtype

    def refuse_what_is_left(self) -> None:
        """Refuse a key that may change the cost and that nothing above has looked at."""
        harmless = re.compile("|".join(self.rules["harmless"]["names"]))
        costly = re.compile(self.rules["harmless"]["costly"])
        for key, value in self.own.items():
            if key in self.seen or not value or harmless.fullmatch(key):
                continue
            counts = isinstance(value, int | list | Mapping) and not isinstance(value, bool)
            if counts or costly.fullmatch(key):
                remedy = "delete it if it changes no cost, else describe the model in a TOML table"
                self.refuse(key, f"is a key that specsim does not know in {self.kind!r}", remedy)


def _language_part(outer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the config of the language model inside a multimodal one."""
    for key in _LANGUAGE:
        inner = outer.get(key)
        if isinstance(inner, Mapping) and inner:
            return _language_part(inner) or inner
    return None


def _beside(config: str) -> Mapping[str, Any] | None:
    """Return ModelOpt's file of the same folder, which older checkpoints have instead."""
    file = Path(config).with_name("hf_quant_config.json")
    return read_config(file) if file.is_file() else None


def _flat(config: Mapping[str, Any], nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the tables that it nests laid flat; unknown keys keep their path."""
    flat = {key: value for key, value in config.items() if key not in nested}
    for table, names in nested.items():
        inside = config.get(table)
        if isinstance(inside, Mapping):
            flat |= {table: {}}  # it is there, should anything ask
            flat |= {names.get(key, f"{table}.{key}"): value for key, value in inside.items()}
    return flat
