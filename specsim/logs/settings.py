"""How settings are written: names of algorithms, chains, and no speculation."""

from __future__ import annotations

from specsim.errors import UnknownNameError
from specsim.setting import parse_algorithm

NO_SPECULATION: dict[str, object] = {
    "algorithm": "none",
    "topk": 1,
    "num_steps": 0,
    "num_draft_tokens": 1,
}
"""How no speculation is written."""


def algorithm_name(name: str) -> str:
    """Return specsim's name of an algorithm, or the engine's where specsim has none.

    >>> algorithm_name("NEXTN"), algorithm_name("dflash")
    ('MTP', 'DFLASH')
    """
    try:
        return parse_algorithm(name)
    except UnknownNameError:
        return name.upper()


def chain_settings(num_speculative_tokens: int) -> dict[str, object]:
    """Return the settings of a chain; vLLM does not count the root, specsim does.

    >>> chain_settings(3)
    {'topk': 1, 'num_steps': 3, 'num_draft_tokens': 4}
    """
    k = num_speculative_tokens
    return {"topk": 1, "num_steps": k, "num_draft_tokens": k + 1}
