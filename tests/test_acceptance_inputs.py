"""Acceptance: sampling and renewal, input that is refused, laws by depth and by kind."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_acceptance import FALSE_ALARM, Key, acceptances, keys, length, table

from specsim.acceptance import (
    Acceptance,
    accept_prob_at,
)
from specsim.acceptance.prior import at_accept_length, default_acceptance
from specsim.engine import ENGINES
from specsim.errors import InputError
from specsim.setting import Algorithm, SpecSetting

# --- sampling and renewal


@pytest.mark.parametrize("key", [(3, 1, 4), (5, 3, 6), (2, 4, 16)])
@pytest.mark.parametrize("request_spread", [0.0, 0.8])
def test_sampler_draws_the_distribution(key: Key, request_spread: float) -> None:
    """Mean accept length of each request, and P(at least d drafts), at five standard errors."""
    result = table(Acceptance(request_spread=request_spread), key)
    requests = np.arange(len(result.survival))
    rounds = 20_000
    uniform = np.random.default_rng(7).random((len(requests), rounds))
    drawn = result.emitted(requests, uniform)
    assert drawn.min() >= 1
    assert drawn.max() <= key[0] + 1
    error = drawn.std(axis=1) / math.sqrt(rounds)
    assert np.all(np.abs(drawn.mean(axis=1) - result.per_request) <= FALSE_ALARM * error)
    for depth in range(1, key[0] + 1):
        share, expected = (drawn > depth).mean(axis=1), result.survival[:, depth]
        error = np.sqrt(expected * (1 - expected) / rounds)
        assert np.all(np.abs(share - expected) <= FALSE_ALARM * error)


@settings(max_examples=25)
@given(acceptance=acceptances, key=keys(), tokens=st.integers(200, 250))
def test_mean_rounds_is_renewal_theory(acceptance: Acceptance, key: Key, tokens: int) -> None:
    """Against the recursion m(t) = 1 + sum_j P(j) m(t - j) of each request.

    The stationary surplus is reached geometrically, at the rate of the largest root but 1 of
    z^(S+1) = sum_j P(j) z^(S+1-j): a drafter that nearly always accepts all keeps the period of a
    whole tree for longer than any answer, and is not asked for.
    """
    result = table(acceptance, key)
    steps = key[0]
    emits = result.survival - np.pad(result.survival[:, 1:], ((0, 0), (0, 1)))
    rate = max(np.sort(np.abs(np.roots([1, *-row])))[-2] for row in emits)
    assume(rate**tokens < 1e-9)
    rounds = np.zeros((len(emits), tokens + steps + 1))  # column t + steps; 0 for t <= 0
    for now in range(steps + 1, tokens + steps + 1):
        rounds[:, now] = 1 + (emits[:, ::-1] * rounds[:, now - steps - 1 : now]).sum(axis=1)
    assert result.mean_rounds(tokens) == pytest.approx(rounds[:, -1].mean(), rel=1e-6)


def test_no_tokens_take_no_rounds() -> None:
    assert table(Acceptance(), (3, 1, 4)).mean_rounds(0) == 0


# --- input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accept_prob": (1.2,)}, "accept probability 1.2"),
        ({"accept_prob": (0.5, math.nan)}, "accept probability nan"),
        ({"accept_prob": ()}, "accept_prob: is empty"),
        ({"decay": -0.1}, "decay -0.1"),
        ({"rank_scale": 2.5}, "rank_scale 2.5"),
        ({"confidence_shift": math.inf}, "confidence_shift inf"),
        ({"context_spread": -1.0}, "context_spread -1"),
        ({"request_spread": 4.0}, "request_spread 4"),
        ({"level": math.nan}, "level nan"),
        ({"evidence": "hearsay"}, "evidence 'hearsay'"),
    ],
)
def test_acceptance_refuses_what_is_no_probability(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Acceptance(**changes)


# --- by depth, by asked depth, and faked

# Accept lengths of chains of 1 .. 8 (inferencex golden_al_distribution, one run per depth).
BY_DEPTH = {
    "deepseek-v4-pro": (1.79, 2.27, 2.49, 2.54, 2.55, 2.55, 2.54, 2.58),
    "glm-5.2": (1.84, 2.50, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06),
    "kimi-k3 DSpark, block rejection": (1.85, 2.51, 3.00, 3.36, 3.62, 3.75, 3.84, 4.00),
    "qwen3.5": (1.93, 2.73, 3.39, 3.97, 4.41, 4.80, 5.04, 5.21),
}


@pytest.mark.parametrize("name", BY_DEPTH)
def test_deep_chains_follow_from_three_depths(name: str) -> None:
    """(TREND): drafters that fall fast and slowly, eight depths from three, within 10 %."""
    measured = BY_DEPTH[name]
    rows = np.diff((1.0, *measured[:3]))
    alpha = tuple(float(x) for x in rows / np.array([1.0, *rows[:-1]]))
    law = Acceptance(accept_prob=alpha)
    known = at_accept_length(law, SpecSetting.of(1, 3), measured[2])
    assert length(known, (8, 1, 9)) == pytest.approx(measured[7], rel=0.10)


def test_no_trend_below_three_depths() -> None:
    two = Acceptance(accept_prob=(0.8, 0.6), decay=0.9)
    assert accept_prob_at(two, 4).tolist() == pytest.approx([0.8, 0.6, 0.54, 0.486])


@given(st.lists(st.floats(0.05, 0.95), min_size=3, max_size=6), st.floats(0.8, 1.1))
def test_a_trend_stays_a_probability(alpha: list[float], decay: float) -> None:
    beyond = accept_prob_at(Acceptance(accept_prob=tuple(alpha), decay=decay), 32)
    assert beyond[: len(alpha)].tolist() == alpha
    assert ((beyond > 0) & (beyond <= 1)).all()


def test_more_asked_is_less_accepted_at_every_depth() -> None:
    """The first of a multi-head drafter: .836 of one, .757 of eight (vllm#48892) (ASKED)."""
    loss = (math.log(0.836 / 0.164) - math.log(0.757 / 0.243)) / math.log(8)
    drafter = Acceptance(
        accept_prob=(0.757, 0.794), asked_depth=8, asked_loss=loss, context_spread=0.0
    )
    drafter = replace(drafter, request_spread=0.0)
    assert length(drafter, (1, 1, 2)) == pytest.approx(1.836, abs=1e-3)
    assert table(drafter, (8, 1, 9)).pooled_survival[0] == pytest.approx(0.757, abs=1e-3)


@given(acceptances, st.integers(1, 8), st.sampled_from(["whole", "constant"]))
def test_faked_acceptance_keeps_the_mean(law: Acceptance, depth: int, shape: str) -> None:
    law = replace(law, request_spread=0.0)
    real, faked = (table(a, (depth, 1, depth + 1)) for a in (law, replace(law, shape=shape)))
    assert faked.accept_length == pytest.approx(real.accept_length, abs=1e-9)
    survival = faked.survival[0]
    if shape == "constant":
        assert (survival[1:] <= survival[:-1]).all()
        if 0.01 < survival[1] < 0.99:
            assert survival[1:] / survival[:-1] == pytest.approx(survival[1], abs=1e-6)
    else:  # a round emits one of two whole numbers
        assert ((faked.per_round[0] > 1e-12).sum()) <= 2


def test_whole_numbers_vary_least() -> None:
    law = Acceptance(request_spread=0.0)
    emitted = np.arange(1, 7)

    def variance(shape: str) -> float:
        per_round = table(replace(law, shape=shape), (5, 1, 6)).per_round[0]
        return float(per_round @ emitted**2 - (per_round @ emitted) ** 2)

    assert variance("whole") <= 0.25 < variance("constant")


# --- what is known of a kind


@pytest.mark.parametrize("algorithm", [a for a in get_args(Algorithm) if a != "none"])
def test_every_kind_has_a_prior(algorithm: Algorithm) -> None:
    prior = default_acceptance("vllm", algorithm, "chat", 0.5)
    assert (prior.dataset, prior.temperature) == ("chat", 0.5)
    assert 1.1 < length(prior, (3, 1, 4)) < 3.4


def test_priors_are_what_is_published() -> None:
    def at(algorithm: Algorithm, steps: int) -> float:
        return length(default_acceptance("vllm", algorithm), (steps, 1, steps + 1))

    assert at("MTP", 1) == pytest.approx(1.85, abs=0.02)  # DeepSeek-V3, one layer
    assert at("NGRAM", 10) == pytest.approx(1.75, rel=0.10)  # prompt lookup of Spec-Bench
    assert at("NGRAM", 3) < 1.7
    assert at("DFLASH", 7) == pytest.approx(3.21, rel=0.05)  # MiMo on two DGX Sparks
    assert at("EAGLE", 7) == pytest.approx(2.47, rel=0.06)


def test_a_faked_benchmark_scatters_as_its_engine_does() -> None:
    shapes = {name: default_acceptance(name, "MTP", "synthetic").shape for name in ENGINES}
    assert shapes.pop("llama.cpp") == "constant"
    assert set(shapes.values()) == {"whole"}
