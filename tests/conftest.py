"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A deadline would make a busy machine a failing test; speed is for the benchmarks to judge.
# CI answers the same for the same commit; new examples are for runs at a desk, and SPECSIM_FUZZ.
settings.register_profile("specsim", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("specsim")
