"""What SGLang's launch arguments say of a server, whether from a command or from a log."""

from collections.abc import Mapping

from specsim.setting import algorithm_name, chain_settings

BLOCK_DRAFTERS = ("DFLASH", "DSPARK")
"""They say num_steps 1 and verify a block: a chain of all drafted tokens (0.5.23
``speculative_hook.py``: DFLASH verifies its block, DSPARK gamma + 1 tokens)."""


def settings_of(said: Mapping[str, object]) -> dict[str, object]:
    """Return settings from arguments, which are named as ``flags.csv`` names them.

    >>> settings_of({"tp": 8, "dp_size": 4, "enable_dp_attention": True})["dp"]
    4
    """
    found = {key: value for key, value in said.items() if value not in ("auto", "null", "none")}
    _drafting(found, said)
    _parallel(found)
    backend = found.pop("decode_attention_backend", None)
    if backend is not None:
        found["attention_backend"] = backend
    return found


def _drafting(found: dict[str, object], said: Mapping[str, object]) -> None:
    """Put in the algorithm and its numbers as specsim counts them."""
    if "algorithm" in said:
        found["algorithm"] = algorithm_name(str(said["algorithm"]))
    breadth, depth = found.pop("ngram_breadth", None), found.pop("ngram_depth", None)
    gamma, block = found.pop("gamma", None), found.pop("block_size", None)
    tokens = found.get("num_draft_tokens")
    if isinstance(gamma, int):
        tokens = gamma + 1
    elif isinstance(block, int):
        tokens = block
    if not isinstance(tokens, int) or tokens < 2:
        return
    if found.get("algorithm") in BLOCK_DRAFTERS:
        found.update(chain_settings(tokens - 1))
    elif found.get("algorithm") == "NGRAM":
        deepest = min(depth, tokens - 1) if isinstance(depth, int) else tokens - 1
        found.setdefault("num_steps", deepest)
        if isinstance(breadth, int):
            found.setdefault("topk", breadth)


def _parallel(found: dict[str, object]) -> None:
    """Tell data-parallel attention from replicas, and fill the degree of expert parallelism.

    From 0.5.22 ``--dp-size N --enable-dp-attention`` is resolved to ``attn_dp_size`` N and
    ``dp_size`` 1 (``parallel_hook.py``).
    """
    attention, ranks = found.pop("attn_dp", 1), found.pop("dp_size", 1)
    if isinstance(attention, int) and attention > 1:
        found["dp"] = attention
    elif found.get("enable_dp_attention"):
        found["dp"] = ranks
    elif isinstance(ranks, int) and ranks > 1:
        found["replicas"] = ranks
    by_tokens = found.get("a2a_backend") is not None or found.pop("enable_ep_moe", False)
    if by_tokens and found.get("ep") in (None, 1) and "tp" in found:
        found["ep"] = found["tp"]  # SGLang sets it so for all-to-all experts
