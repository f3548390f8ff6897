"""How engines fake acceptance for benchmarks: other scatter, the same mean.

``whole``: the two whole numbers beside the mean, the least variance there is (SGLang's
SGLANG_SIMULATE_ACC_LEN, 0.5.23 ``spec_utils.py:516-530``; vLLM's synthetic rejection).
``constant``: every draft with one probability, given the one before (llama.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Floats


def faked(survival: Floats, shape: str) -> Floats:
    """Return survival of that shape with the same sum over depths (sizes, requests, S)."""
    depth = np.arange(survival.shape[2])
    mean = survival.sum(axis=2, keepdims=True)
    if shape == "whole":
        whole: Floats = np.clip(mean - depth, 0.0, 1.0)
        return whole
    low, high = np.zeros_like(mean), np.ones_like(mean)
    for _ in range(60):
        middle = (low + high) / 2
        less = (middle ** (depth + 1)).sum(axis=2, keepdims=True) < mean
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    constant: Floats = low ** (depth + 1)
    return constant
