"""Shapes of models and drafters: parameters per layer, KV per token; no bytes of weights yet."""

from __future__ import annotations

from specsim.architecture.attention import AttentionGroup, AttentionParams
from specsim.architecture.draft import (
    BLOCK_KINDS,
    DraftArchitecture,
    DraftKind,
    draft_names,
    load_draft,
)
from specsim.architecture.loading import load_model, model_from_table, model_names
from specsim.architecture.model import ModelArchitecture

__all__ = [
    "BLOCK_KINDS",
    "AttentionGroup",
    "AttentionParams",
    "DraftArchitecture",
    "DraftKind",
    "ModelArchitecture",
    "draft_names",
    "load_draft",
    "load_model",
    "model_from_table",
    "model_names",
]
