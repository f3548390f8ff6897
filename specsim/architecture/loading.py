"""Models by name: library entries, TOML tables and config.json files."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specsim.architecture.model import ModelArchitecture
from specsim.errors import InputError, UnknownNameError
from specsim.library import Kind, Table, checked, kinds_of, look_up, read_library, read_table
from specsim.textfile import name_of

_TAG, OLLAMA = re.compile(r"[\w.-]+:[\w.-]+"), "q4_k_m"
"""A model as Ollama names it, and its weights where the tag names no other (ollama.com/library)."""

_REQUIRED = ("layers", "hidden", "vocab", "heads")


@cache
def _keys() -> dict[str, Kind]:
    own = {k: v for k, v in kinds_of(ModelArchitecture).items() if k not in ("id", "qkv_inputs")}
    return {**own, "aliases": list, "quantised": dict}


def model_names() -> tuple[str, ...]:
    """Ids of the models in the library."""
    return tuple(sorted(read_library("models")))


def load_model(name: str, quantisation: str | None = None) -> ModelArchitecture:
    """Return a model.

    Parameters
    ----------
    name
        A library id, a Hugging Face name or a tag of Ollama's as people write them, also of a
        quantised repository; the path of a TOML file with the keys of a library entry, that of a
        config.json or its folder; or a repository in the local Hugging Face cache (or on the hub,
        with the extra ``hub``).
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
    if is_config(name):
        from specsim.architecture.hf_config import table_of_config  # the library needs none

        id, config = table_of_config(name, quantisation)
        return model_from_table(config, id)
    if kept := re.search(r"models--([\w.-]+?)--([\w.-]+)/snapshots/", name):
        name = f"{kept[1]}/{kept[2]}"  # of a cache on another machine
    remedy = "give the path of its config.json, or of a TOML table"
    try:
        id, table = look_up("models", name, remedy)
        model = model_from_table(table, id)
        tagged = _TAG.fullmatch(name) and model.native_quantisation == "bf16"
        return replace(model, native_quantisation=OLLAMA) if tagged else model
    except UnknownNameError:
        if (cached := _from_hub(name)) is not None:
            model = load_model(str(cached), quantisation)
            return replace(model, id=name.rsplit("/", 1)[-1])
        plain, scheme = without_quantisation(name)
        if not scheme:
            raise
        id, table = look_up("models", plain, remedy)
    said = table.get("quantised")  # of repositories whose scheme their name does not say
    known: Mapping[str, str] = said if isinstance(said, Mapping) else {}
    of_kind = {own for own in known.values() if own.startswith(f"{scheme}-")}
    own = known.get(name.rsplit("/", 1)[-1]) or (of_kind.pop() if len(of_kind) == 1 else scheme)
    stated: dict[str, object] = {"native_quantisation": own}
    if name.lower().startswith("nvidia/"):  # ModelOpt's checkpoints state an fp8 cache
        stated["kv_dtype"] = "fp8"
    return model_from_table({**table, **stated}, id)


def is_config(name: str) -> bool:
    """Whether a name is the path of a config.json, or of the folder that holds one."""
    known = name_of(name)
    return known.endswith(".json") or ("/" in known and Path(known, "config.json").is_file())


def _from_hub(name: str) -> Path | None:
    """Return the config.json of a repository: the newest in the local Hugging Face cache.

    Where there is none it is fetched, if the extra ``hub`` is installed and allowed to.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or name.startswith("."):
        return None
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    found = hub.glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json")
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    if newest is not None or find_spec("huggingface_hub") is None:
        return newest
    try:
        return Path(import_module("huggingface_hub").hf_hub_download(name, "config.json"))
    except (OSError, ValueError):  # its errors for no network, no such repository, offline mode
        return None


def without_quantisation(name: str) -> tuple[str, str]:
    """Return a model's name without the end that says how it is quantised, and the scheme.

    The name is of a repository or of a GGUF file; of several files llama.cpp takes Q4_K_M.

    >>> without_quantisation("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    ('RedHatAI/Llama-3.3-70B-Instruct', 'fp8')
    >>> without_quantisation("/models/Qwen3-32B.Q6_K-00001-of-00002.gguf")
    ('Qwen3-32B', 'q6_k')
    """
    suffixes: Any = read_library("families")["suffixes"]
    ends = "|".join(re.escape(end) for end in sorted(suffixes, key=len, reverse=True))
    if file := re.fullmatch(r"(?:.*[/\\])?(.+?)(?:-\d{5}-of-\d{5})?\.gguf", name.strip()):
        name = file[1]
    elif files := re.fullmatch(r"(.+)[-_]gguf(?::(.+))?", name.strip(), re.IGNORECASE):
        name = f"{files[1]}-{files[2] or 'Q4_K_M'}"
    found = re.fullmatch(rf"(.*?)[-_. ]({ends})", name.strip(), re.IGNORECASE)
    return (found[1], str(suffixes[found[2].lower()])) if found else (name, "")


def model_from_table(table: Table, id: str) -> ModelArchitecture:
    """Build a model from a table of the library's form; `same_as` is an entry for what it lacks."""
    where = f"model {id}"
    values = read_table(where, _inherit(table), _keys(), _REQUIRED)
    for key in ("aliases", "quantised"):
        values.pop(key, None)
    attention = "mla" if "kv_lora_rank" in values else "gqa"
    if values.setdefault("attention", attention) != attention:
        raise InputError(where, "attention contradicts the MLA ranks", "drop `attention`")
    values.setdefault("kv_heads", values["heads"])
    mla_dim = values.get("qk_nope_head_dim", 0) + values.get("qk_rope_head_dim", 0)
    values.setdefault("head_dim", mla_dim or values["hidden"] // max(1, values["heads"]))
    values.setdefault("dense_layers", 0 if values.get("experts") else values["layers"])
    values["compressed"] = tuple(_pair(where, pair) for pair in values.get("compressed", ()))
    return ModelArchitecture(id=id, **values)


def _pair(where: str, pair: object) -> tuple[int, int]:
    numbers = [checked(f"{where}: compressed", n, int) for n in checked(where, pair, list)]
    if len(numbers) != 2 or min(numbers) < 0:
        raise InputError(f"{where}: compressed", "is not of (layers, tokens)", "write [[20, 4]]")
    return numbers[0], numbers[1]


def _inherit(table: Table) -> Table:
    """Resolve `same_as`, which may lead to an entry that has one itself."""
    base = table.get("same_as")
    if base is None:
        return table
    _, shape = look_up("models", str(base), "write the shape out")
    return {**_inherit(shape), **{k: v for k, v in table.items() if k != "same_as"}}
