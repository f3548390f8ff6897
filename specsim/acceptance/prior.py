"""What a drafter gets accepted by its kind, or by an accept length that is stated."""

from collections.abc import Mapping
from dataclasses import replace

from specsim.acceptance import Acceptance, accept_table
from specsim.engine import engine_named
from specsim.errors import InputError
from specsim.library import Kind, read_library, read_table
from specsim.setting import SpecSetting

MOST_LEVEL = 15.0
"""Log-odds within which a level is sought."""

SYNTHETIC = "synthetic"
"""The dataset of a benchmark in which the engine fakes acceptance."""

SHIFT = 0.9
"""Confidence shift of EAGLE-3 drafters [@confidence-shift]."""

_KEYS: Mapping[str, Kind] = {
    "accept_prob": list,
    **dict.fromkeys(("decay", "request_spread", "draft_share"), float),
    "source": str,
}


def default_acceptance(
    engine: str, algorithm: str, dataset: str = "", temperature: float = 0.0
) -> Acceptance:
    """Return the acceptance of a kind of drafter (``library/acceptance.toml``).

    Parameters
    ----------
    engine
        Its name: some fill the tree of a lookup whatever it finds, and each fakes acceptance by a
        law of its own.
    algorithm
        How it drafts.
    dataset, temperature
        What it will be used on; of ``synthetic`` all requests are alike.

    Examples
    --------
    >>> default_acceptance("vllm", "MTP").accept_prob[0]
    0.85
    """
    known = engine_named(engine)
    name = algorithm.lower()
    about = read_table(
        f"acceptance {name}", read_library("acceptance")[name], _KEYS, ("accept_prob",)
    )
    about["accept_prob"] = tuple(about["accept_prob"])
    if known.lookup_fills_tree:
        about.pop("draft_share", None)
    about["source"] = f"prior for {algorithm}"
    law = Acceptance(dataset, temperature, confidence_shift=SHIFT, **about)
    if dataset != SYNTHETIC:
        return law
    return replace(law, request_spread=0.0, shape=known.synthetic_shape)


def at_accept_length(
    acceptance: Acceptance, setting: SpecSetting, accept_length: float
) -> Acceptance:
    """Move the level until `setting` has the given accept length (bisection).

    >>> chain = SpecSetting.of(1, 3)
    >>> moved = at_accept_length(Acceptance(), chain, 2.4)
    >>> round(accept_table(moved, chain).accept_length, 6)
    2.4

    Raises
    ------
    InputError
        If no level gives it: it must lie strictly between 1 and min(S, n - 1) + 1.
    """
    most = min(setting.num_steps, setting.num_draft_tokens - 1) + 1
    if not 1.0 < accept_length < most:
        raise InputError(
            f"accept length {accept_length:g}",
            f"cannot be had: {setting.label} emits between 1 and {most} tokens per round",
            "give the mean tokens per round, bonus included",
        )

    def reached(level: float) -> float:
        return accept_table(replace(acceptance, level=level), setting).accept_length

    low, high = -MOST_LEVEL, MOST_LEVEL
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) < accept_length else (low, middle)
    level = (low + high) / 2
    if abs(reached(level) - accept_length) > 1e-3:
        raise InputError(
            f"accept length {accept_length:g}",
            f"cannot be had by {setting.label} (nearest {reached(level):.2f})",
            "give another setting or length",
        )
    return replace(acceptance, level=level, source="accept length as stated")
