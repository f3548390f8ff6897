"""A speculative-decoding setting as an engine is launched with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from specsim.errors import InputError, UnknownNameError
from specsim.tree import tree_capacity

# fmt: off
Algorithm = Literal[
    "none", "EAGLE", "EAGLE3", "MTP", "STANDALONE", "NGRAM", "SUFFIX",
    "DFLASH", "DSPARK", "P_EAGLE", "MEDUSA", "HYDRA", "UNO",
]
# fmt: on
Scheduler = Literal["auto", "sequential", "overlap"]

MOST_DRAFT_TOKENS, MOST_POOL = 512, 4096
"""No engine verifies a larger tree, or drafts more to choose from."""

ALIASES: dict[str, Algorithm] = {
    **dict.fromkeys(("NEXTN", "FROZEN_KV_MTP"), "MTP"),
    "DRAFT_MODEL": "STANDALONE",
    "NGRAM_GPU": "NGRAM",
    **dict.fromkeys(("PEAGLE", "PARALLEL_EAGLE"), "P_EAGLE"),
}

Family = Literal["none", "steps", "block", "heads", "lookup", "self"]
"""How tokens are drafted: ``steps``, a forward of the drafter per depth; ``block``, one forward
for all depths; ``heads``, heads of their own on the target's last hidden state, without a cache;
``lookup``, in the text so far; ``self``, mask tokens in the target's own forward."""

FAMILIES: dict[Family, tuple[Algorithm, ...]] = {
    "none": ("none",),
    "steps": ("EAGLE", "EAGLE3", "MTP", "STANDALONE"),
    "block": ("DFLASH", "DSPARK", "P_EAGLE"),
    "heads": ("MEDUSA", "HYDRA"),
    "lookup": ("NGRAM", "SUFFIX"),
    "self": ("UNO",),
}
FAMILY_OF: dict[Algorithm, Family] = {
    algorithm: family for family, members in FAMILIES.items() for algorithm in members
}
"""How each algorithm drafts."""


def parse_algorithm(name: str) -> Algorithm:
    """Return the algorithm that `name` (any case, aliases allowed) stands for.

    >>> parse_algorithm("nextn"), parse_algorithm("None")
    ('MTP', 'none')
    """
    known: tuple[Algorithm, ...] = get_args(Algorithm)
    meant = {algorithm.upper(): algorithm for algorithm in known} | ALIASES
    upper = name.strip().upper().replace("-", "_")
    if upper not in meant:
        raise UnknownNameError("algorithm", name, [*known, *ALIASES])
    return meant[upper]


NO_SPECULATION: dict[str, object] = {
    "algorithm": "none",
    "topk": 1,
    "num_steps": 0,
    "num_draft_tokens": 1,
}
"""How no speculation is written."""


def algorithm_name(name: str) -> str:
    """Return specsim's name of an algorithm, or the engine's where specsim has none.

    >>> algorithm_name("NEXTN"), algorithm_name("dflash")
    ('MTP', 'DFLASH')
    """
    try:
        return parse_algorithm(name)
    except UnknownNameError:
        return name.upper()


def chain_settings(num_speculative_tokens: int) -> dict[str, object]:
    """Return the settings of a chain; vLLM does not count the root, specsim does.

    >>> chain_settings(3)
    {'topk': 1, 'num_steps': 3, 'num_draft_tokens': 4}
    """
    k = num_speculative_tokens
    return {"topk": 1, "num_steps": k, "num_draft_tokens": k + 1}


@dataclass(frozen=True, slots=True)
class SpecSetting:
    """One setting; a number that is out of range is an InputError.

    >>> SpecSetting("EAGLE3", 2, 2, 7).label
    'topk=2 steps=2 tokens=7'
    >>> SpecSetting.none().label
    'none'
    """

    algorithm: Algorithm
    topk: int  # branches per draft step; 1 is a chain
    num_steps: int  # draft depth S
    num_draft_tokens: int  # n, verified per request and round: with the root, as SGLang counts
    # sequential (SGLang v1), overlap (v2; vLLM async scheduling), or what the version does itself
    scheduler: Scheduler = "auto"

    def __post_init__(self) -> None:
        if self.algorithm == "none":
            if (self.topk, self.num_steps, self.num_draft_tokens) != (1, 0, 1):
                raise InputError(
                    f"algorithm none with ({self.topk}, {self.num_steps}, {self.num_draft_tokens})",
                    "no speculation is written topk 1, steps 0, draft tokens 1",
                    "drop the numbers or name an algorithm",
                )
            return
        if self.topk < 1:
            raise InputError(f"topk {self.topk}", "must be at least 1", "use 1 for a chain")
        if self.num_steps < 0:
            raise InputError(
                f"steps {self.num_steps}",
                "must be at least 0",
                "use 0 for a loaded drafter that drafts nothing, --algorithm none for no drafter",
            )
        if not self.drafts:
            if (self.topk, self.num_draft_tokens) != (1, 1):
                raise InputError(
                    f"steps 0 with topk {self.topk} and {self.num_draft_tokens} tokens",
                    "nothing is drafted in 0 steps",
                    "write topk 1, steps 0, draft tokens 1, or more steps",
                )
            return
        if self.topk > 1 and self.family == "block":
            raise InputError(
                f"topk {self.topk} of {self.algorithm}",
                "one forward drafts one chain",
                "use topk 1",
            )
        capacity = tree_capacity(self.topk, self.num_steps)
        if not 2 <= self.num_draft_tokens <= capacity:
            raise InputError(
                f"draft tokens {self.num_draft_tokens}",
                f"must lie between 2 and {capacity}, the capacity of topk {self.topk}, "
                f"steps {self.num_steps} (root included)",
                f"use at most {capacity}, or a larger topk or more steps",
            )
        shape, pool = f"topk {self.topk}, steps {self.num_steps}", self.num_steps * self.topk**2
        if self.num_draft_tokens > MOST_DRAFT_TOKENS:
            raise InputError(
                f"draft tokens {self.num_draft_tokens} (of all that {shape} offer)",
                f"are more than {MOST_DRAFT_TOKENS}",
                "give fewer with --draft-tokens",
            )
        if pool > MOST_POOL:
            reason = f"draft {pool} candidates per round, more than {MOST_POOL}"
            raise InputError(shape, reason, "use a smaller topk or fewer steps")

    @classmethod
    def none(cls, scheduler: Scheduler = "auto") -> SpecSetting:
        """Plain decoding."""
        return cls("none", 1, 0, 1, scheduler)

    @classmethod
    def of(
        cls,
        topk: int | None = None,
        num_steps: int | None = None,
        num_draft_tokens: int | None = None,
        algorithm: Algorithm = "EAGLE3",
        scheduler: Scheduler = "auto",
    ) -> SpecSetting:
        """Fill what was not said: topk 1, as many tokens as the tree can offer.

        SGLang calls the steps of a block drafter 1 whatever its block [@sglang-wheels]: with the
        tokens given, the depth follows from them.

        >>> SpecSetting.of(topk=2, num_steps=2).num_draft_tokens
        7
        >>> SpecSetting.of(1, 1, 8, "DFLASH").num_steps
        7
        """
        if algorithm == "none":
            return cls.none(scheduler)
        topk = 1 if topk is None else topk
        if (
            FAMILY_OF[algorithm] == "block"
            and num_steps in (None, 1)
            and (num_draft_tokens or 0) > 1
        ):
            num_steps = (num_draft_tokens or 0) - 1
        if num_steps is None:
            raise InputError("steps", "is not given", "add --steps N (the draft depth)")
        if topk < 1 or num_steps < 0:
            return cls(algorithm, topk, num_steps, 2, scheduler)
        n = tree_capacity(topk, num_steps) if num_draft_tokens is None else num_draft_tokens
        return cls(algorithm, topk, num_steps, n, scheduler)

    @property
    def speculates(self) -> bool:
        """Whether a drafter is loaded; it may draft nothing (0 steps)."""
        return self.algorithm != "none"

    @property
    def drafts(self) -> bool:
        """Whether anything is drafted."""
        return self.speculates and self.num_steps > 0

    @property
    def family(self) -> Family:
        """How its tokens are drafted."""
        return FAMILY_OF[self.algorithm]

    @property
    def has_weights(self) -> bool:
        """Whether its drafter takes memory."""
        return self.family in ("steps", "block", "heads")

    @property
    def follows_text(self) -> bool:
        """Whether a drafter with a KV cache of its own has to compute what was accepted."""
        return self.family in ("steps", "block")

    @property
    def most_accepted(self) -> int:
        """Tokens of a round at most: every draft down to the last step, and the bonus.

        >>> SpecSetting.of(2, 2).most_accepted, SpecSetting.none().most_accepted
        (3, 1)
        """
        return 1 + min(self.num_steps, self.num_draft_tokens - 1)

    @property
    def key(self) -> tuple[int, int, int]:
        """(num_steps, topk, num_draft_tokens), the order of SGLang's benchmarks."""
        return (self.num_steps, self.topk, self.num_draft_tokens)

    @property
    def label(self) -> str:
        """Every number for tables, or ``none``."""
        return self._numbers() if self.speculates else "none"

    @property
    def title(self) -> str:
        """Every number for people.

        >>> SpecSetting.of(1, 0).title
        'no drafts (EAGLE3 loaded)'
        """
        if self.speculates and not self.drafts:
            return f"no drafts ({self.algorithm} loaded)"
        return self._numbers() if self.speculates else "no speculation"

    @property
    def brief(self) -> str:
        """For people, without the tokens of a full tree.

        >>> SpecSetting.of(2, 2).brief, SpecSetting.of(2, 2, 5).brief
        ('topk=2 steps=2', 'topk=2 steps=2 tokens=5')
        """
        if not self.drafts:
            return self.title
        full = self.num_draft_tokens == tree_capacity(self.topk, self.num_steps)
        return self._numbers(tokens=not full)

    @property
    def name(self) -> str:
        """For people, with the scheduler, without the tokens of a chain.

        >>> SpecSetting.of(1, 3, scheduler="overlap").name
        'topk=1 steps=3, overlap'
        """
        if not self.speculates:
            return self.title
        return f"{self._numbers(tokens=self.topk > 1)}, {self.scheduler}"

    def _numbers(self, tokens: bool = True) -> str:
        text = f"topk={self.topk} steps={self.num_steps}"
        return f"{text} tokens={self.num_draft_tokens}" if tokens else text

    def with_scheduler(self, scheduler: Scheduler) -> SpecSetting:
        """Return the same setting under another scheduler."""
        return replace(self, scheduler=scheduler)
