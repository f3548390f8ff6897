"""The policies of engines: SGLang's adaptive tables, vLLM's ranges of batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specsim.errors import InputError
from specsim.simulate.policy import Follow, Policy, Tier, by_batch


def vllm_ranges(ranges: Sequence[tuple[int, int, int]]) -> Policy:
    """Return the policy of vLLM's ``num_speculative_tokens_per_batch_size``: (first, last, K).

    Gaps keep the K before them (0.33.0 ``v1/spec_decode/dynamic/utils.py``).

    Raises
    ------
    InputError
        If a range is empty, overlaps another, or the first does not begin at 1.
    """
    end, table = 0, {}
    for first, last, steps in sorted(ranges):
        if first > last or first <= end:
            raise InputError(
                f"range {first}..{last}", "is empty or overlaps", "give (first, last, K) in order"
            )
        end, table[first] = last, steps
    return by_batch(table, name="num_speculative_tokens_per_batch_size")


def sglang_default() -> Policy:
    """Return SGLang's own adaptive table (0.5.23 ``adaptive_spec_params.py:26-51``).

    Its servers begin with the middle one of all candidates unless told otherwise.
    """
    eager, calm = Follow(down=-0.25), Follow(down=0.0)
    tiers = (
        Tier(1, (1, 3, 5, 7), eager),
        Tier(8, (0, 1, 3), calm),
        Tier(32, (0, 1), calm),
        Tier(64, (0,), calm),
    )
    return Policy("SGLang's default table", tiers, initial_steps=3, padded=True)


def sglang_table(text: str | Mapping[str, Any]) -> Policy:
    """Return the policy of a ``--speculative-adaptive-config`` file's content.

    Keys that are whole numbers are batches; other keys are defaults of all of them. Batches below
    the first one take the first, as SGLang routes them.

    Raises
    ------
    InputError
        If there is no batch, a value is not as SGLang wants it, or it caps by `ceiling_coeff`,
        which is not modelled.
    """
    try:
        content = json.loads(text) if isinstance(text, str) else dict(text)
        defaults = {key: value for key, value in content.items() if not key.isdigit()}
        batches = sorted((key for key in content if key.isdigit()), key=int)
        tiers = [_tier(int(key), {**defaults, **content[key]}) for key in batches]
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            "adaptive table", f"cannot be read ({error})", 'write {"1": {"candidate_steps": [3]}}'
        ) from None
    if tiers:
        tiers[0] = replace(tiers[0], first_batch=1)
    union = sorted({steps for tier in tiers for steps in tier.steps})
    middle = union[len(union) // 2] if union else None
    return Policy("adaptive table", tuple(tiers), initial_steps=middle, padded=True)


def _tier(batch: int, entry: Mapping[str, Any]) -> Tier:
    if float(entry.get("ceiling_coeff", 0)) > 0:
        raise InputError(
            f"ceiling_coeff {entry['ceiling_coeff']}", "is not modelled", "leave it out, or 0"
        )
    follow = Follow(
        float(entry.get("ema_alpha", 0.2)),
        int(entry.get("warmup_batches", 10)),
        int(entry.get("update_interval", 5)),
        float(entry.get("up_hysteresis", 0.0)),
        float(entry.get("down_hysteresis", -0.25)),
    )
    return Tier(batch, tuple(int(steps) for steps in entry["candidate_steps"]), follow)
