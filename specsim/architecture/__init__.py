"""Shapes of models and drafters: parameters per layer, KV per token; no bytes of weights yet."""

from specsim.architecture.draft import BLOCK_KINDS as BLOCK_KINDS
from specsim.architecture.draft import DraftArchitecture as DraftArchitecture
from specsim.architecture.draft import DraftKind as DraftKind
from specsim.architecture.draft import draft_names as draft_names
from specsim.architecture.draft import load_draft as load_draft
from specsim.architecture.loading import load_model as load_model
from specsim.architecture.loading import model_from_table as model_from_table
from specsim.architecture.loading import model_names as model_names
from specsim.architecture.model import AttentionGroup as AttentionGroup
from specsim.architecture.model import AttentionParams as AttentionParams
from specsim.architecture.model import ModelArchitecture as ModelArchitecture
