"""A server that runs: what it says of itself, its counters over time, and loads put on it.

Everything but :mod:`specsim.live.measure` only reads.
"""
