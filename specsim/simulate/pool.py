"""The KV pool of a server: what admission has reserved, and what is used, round by round."""

import numpy as np

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
        self._used: Floats = np.zeros(4096)  # by the batch, in each round
        self._first = 0  # round of the first of them

    def admits(self, reserve: float, text: float, slots: int, now: int) -> bool:
        """Whether one more fits beside `slots`: as reserved, and its text beside what is used."""
        limit = self.limit + (slots + 1) * self.shared
        if self.reserved + reserve > limit:
            return False
        used = float(self._used[now - self._first]) + self.prompts + (slots + 1) * self.held
        return used + text <= limit

    def room(self, slots: int) -> float:
        """Tokens that the batch may use while so many slots are taken."""
        return self.limit - self.prompts - slots * (self.held - self.shared)

    def overflows(self, now: int, slots: int) -> bool:
        """Whether the batch does not fit beside so many slots."""
        return bool(self._used[now - self._first] > self.room(slots))

    def fills(self, now: int, last: int, slots: int) -> int | None:
        """Return the round from which a batch that fits now and grows until `last` will not fit."""
        used, room = self.used(now, last), self.room(slots)
        if used[-1] <= room:
            return None
        fits = int(np.searchsorted(used, room, side="right"))
        return now + fits if fits else None

    def used(self, first: int, last: int) -> Floats:
        """Return what the batch uses in the rounds from `first` to before `last`."""
        return self._used[first - self._first : last - self._first]

    def add(self, first: int, tokens: Floats) -> None:
        """Add what a request uses in the rounds from `first` on."""
        at = first - self._first
        last = at + len(tokens)
        if last >= len(self._used):
            self._used = np.concatenate([self._used, np.zeros(last)])
        self._used[at:last] += tokens

    def take_away(self, first: int, tokens: Floats) -> None:
        """Undo :meth:`add`."""
        at = first - self._first
        self._used[at : at + len(tokens)] -= tokens

    def forget_before(self, now: int) -> None:
        """Drop the rounds that are over."""
        self._used = self._used[now - self._first :].copy()
        self._first = now
