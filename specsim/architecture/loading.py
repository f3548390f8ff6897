"""Models by name: the library's, a TOML table of one's own, or a config.json."""

from __future__ import annotations

from pathlib import Path

from specsim.architecture.hf_config import model_from_hf_config
from specsim.architecture.model import ModelArchitecture, model_from_table
from specsim.library import look_up, read_library


def model_names() -> tuple[str, ...]:
    """Ids of the models in the library."""
    return tuple(sorted(read_library("models")))


def load_model(name: str) -> ModelArchitecture:
    """Return a model.

    Parameters
    ----------
    name
        A library id or Hugging Face name in any case, the path of a TOML file with the keys of a
        library entry, or that of a config.json or its folder.

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
        return model_from_hf_config(name)
    id, table = look_up("models", name, "give the path of its config.json, or of a TOML table")
    return model_from_table(table, id)
