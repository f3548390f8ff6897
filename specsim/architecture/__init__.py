"""Shapes of models and drafters: parameters per layer, KV per token; no bytes of weights yet."""

from __future__ import annotations

from specsim.architecture.draft import DraftArchitecture, DraftKind, draft_names, load_draft
from specsim.architecture.model import (
    AttentionParams,
    ModelArchitecture,
    load_model,
    model_from_table,
    model_names,
)

__all__ = [
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
