"""What one GPU of a server holds, reads and computes: bytes and FLOPs after parallelism.

Conventions, the same for every field here:

- `tp` counts all GPUs that hold one copy of the model. `dp` is data-parallel attention within them
  (SGLang's meaning; vLLM's tp x dp is our tp): attention is split over tp/dp GPUs, everything
  else over tp. `ep` is how many groups the experts are dealt out to.
- Numbers "per token" are per token of the whole server's batch, averaged over its GPUs: with
  dp = 8 a GPU sees an eighth of the tokens, and that eighth is already in the number.
"""

from __future__ import annotations

from specsim.sharding.draft import ShardedDraft, shard_draft
from specsim.sharding.model import ShardedModel, shard

__all__ = ["ShardedDraft", "ShardedModel", "shard", "shard_draft"]
