"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# A deadline would make a busy machine a failing test; speed is for the benchmarks to judge.
settings.register_profile("specsim", deadline=None)
settings.load_profile("specsim")
