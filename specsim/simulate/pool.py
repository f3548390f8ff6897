"""The KV pool of a server: what admission has reserved, and what is used, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specsim.arrays import Floats

SLACK = 1e-6
"""Tokens by which a sum of reservations may exceed the pool: rounding."""


class KvPool:
    """Tokens of one server's KV cache; a slot that is taken holds some beside its text."""

    def __init__(self, tokens: float, held_per_slot: float, shared: float = 0.0) -> None:
        self.limit, self.held = tokens + SLACK, held_per_slot
        self.shared = shared  # tokens of every text that are in the pool once, beside `tokens`
        self.reserved = 0.0
        self.prompts = 0  # of prompts in prefill
        self.used: Floats = np.zeros(4096)  # by the batch, in each round to come

    def admits(self, reserve: float, text: float, slots: int, now: int) -> bool:
        """Whether one more fits beside `slots`: as reserved, and its text beside what is used."""
        limit = self.limit + (slots + 1) * self.shared
        if self.reserved + reserve > limit:
            return False
        used = float(self.used[now]) + self.prompts + (slots + 1) * self.held
        return used + text <= limit

    def room(self, slots: int) -> float:
        """Tokens that the batch may use while so many slots are taken."""
        return self.limit - self.prompts - slots * (self.held - self.shared)

    def add(self, first: int, tokens: Floats, sign: int = 1) -> None:
        """Add (or take away) what a request uses in the rounds from `first` on."""
        last = first + len(tokens)
        if last >= len(self.used):
            self.used = np.concatenate([self.used, np.zeros(last)])
        self.used[first:last] += tokens if sign > 0 else -tokens
