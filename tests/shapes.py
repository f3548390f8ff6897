"""What tests of model shapes count for themselves."""

from __future__ import annotations

from specsim.architecture import ModelArchitecture


def kv_bytes_of_context(
    model: ModelArchitecture, context_len: float, kv_dtype_bytes: float = 2.0
) -> float:
    """KV bytes that attention reads for one request: windowed layers stop at their window."""
    return sum(
        group.layers * group.numbers * kv_dtype_bytes * float(group.entries(context_len))
        + group.index_bytes_per_token * context_len
        for group in model.attention_groups
    )
