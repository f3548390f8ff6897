"""What a number rests on: measured, fitted, published or assumed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Evidence = Literal["measured", "fitted", "published", "assumed"]
"""From the strongest to the weakest."""

ORDER: tuple[Evidence, ...] = get_args(Evidence)


def weakest(evidence: Iterable[Evidence]) -> Evidence:
    """Return the weakest of several pieces of evidence (``measured`` for none).

    >>> weakest(["measured", "assumed", "fitted"])
    'assumed'
    """
    return ORDER[max((ORDER.index(e) for e in evidence), default=0)]
