"""Eleven public threads: each question answered from the facts that its thread gives.

Where a thread states the server, the server is fitted to the numbers named in its test and the
others are predicted; where it does not, its own times answer in closed form. What the model does
not reproduce is in `MISSES`, with the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from specsim.acceptance import Acceptance, accept_table
from specsim.calibrate.fit import fit_profile
from specsim.calibrate.validate import validate
from specsim.case import Case
from specsim.decide.breakeven import breakeven_accept_length
from specsim.decide.recommend import recommend
from specsim.engine import EngineSpec, engine_named
from specsim.observations import Observation
from specsim.predict import predict
from specsim.profile import Profile
from specsim.question import Question
from specsim.server import Setup, setup_from_mapping
from specsim.setting import Algorithm, SpecSetting
from specsim.simulate import simulate
from specsim.workload import Load

CASES = {
    "qwen3-30b-a3b-eagle3-2xh100": "https://github.com/sgl-project/SpecForge/issues/339",
    "llama31-8b-h100-k-sweep": "https://github.com/vllm-project/vllm/pull/16937",
    "llama3-8b-eagle-k2-vs-k4": "https://github.com/vllm-project/vllm/pull/16035",
    "qwen35-08b-mtp1-slower": "https://github.com/vllm-project/vllm/issues/39680",
    "mimo-dgx-spark-dflash-k": "https://github.com/vllm-project/vllm/issues/47277",
    "sglang-spec-default-cap48": "https://github.com/sgl-project/sglang/pull/34290",
    "deepseek-r1-h20-spec-loses-at-100": "https://github.com/sgl-project/sglang/issues/4759",
    "sglang-specv2-r1-fa3": "https://github.com/sgl-project/sglang/pull/12128",
    "deepseek-r1-mtp-c1-trtllm-mla": "https://github.com/sgl-project/sglang/pull/10281",
    "breakeven-llama31-8b-1b": "https://github.com/MakazhanAlpamys/Soup/issues/843",
    "vllm-mtp1-vs-mtp8-c64": "https://github.com/vllm-project/vllm/pull/48892",
}

CLOSED_FORM = {
    "qwen35-08b-mtp1-slower": "the GPU is not stated",
    "mimo-dgx-spark-dflash-k": "a block drafter over RoCE, which the library does not have",
    "breakeven-llama31-8b-1b": "the thread asks for the closed form",
    "vllm-mtp1-vs-mtp8-c64": "neither model nor GPU is stated",
}
"""Answered from the thread's own times, for the reason given."""

MISSES = {
    "qwen3-30b-a3b-eagle3-2xh100": "the thread's (3, 3, 4) at 207.6 tok/s is 18 % above the model, "
    "and above (3, 3, 8) and (3, 1, 4) of the same thread by as much",
    "llama31-8b-h100-k-sweep": "from none and k=2 alone, k=4 is predicted 6 % too fast and the "
    "order turns: a draft step costs more than derived, which one depth does not tell; given k=7 "
    "too, the order is right",
    "deepseek-r1-h20-spec-loses-at-100": "321 tok/s is less than half of what a capped server "
    "would give; the no-speculation command differs (no CUDA graphs), lengths are not stated",
}
"""What is not reproduced, and why; the tests below check what is."""


def setup_of(
    model: str,
    gpu: str,
    draft: str,
    engine: str,
    version: str,
    *,
    tp: int = 1,
    link: str = "none",
    lengths: tuple[int, int] = (100, 500),
    **more: object,
) -> Setup:
    return setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {"gpu": gpu, "gpu_count": tp, "link": link, "allreduce": "custom"},
            "model": {"id": model},
            "draft": {"id": draft},
            "engine": {"name": engine, "version": version, "tp": tp} | more,
            "workload": {"input_len": lengths[0], "output_len": lengths[1], "dataset": "d"},
        }
    )


def cell(
    setting: SpecSetting,
    concurrency: int,
    output_tps: float | None,
    accept_length: float | None = None,
    num_requests: int | None = None,
) -> Observation:
    return Observation(
        kind="closed_loop",
        setting=setting,
        concurrency=concurrency,
        output_tps=output_tps,
        accept_length=accept_length,
        accept_length_scope="run" if accept_length is not None else None,
        num_requests=num_requests,
        dataset="d",
        temperature=0.0,
    )


def spec(steps: int, topk: int, tokens: int, algorithm: Algorithm = "EAGLE3") -> SpecSetting:
    return SpecSetting(algorithm, topk, steps, tokens)


NONE = SpecSetting.none()


def predicted(profile: Profile, rows: Sequence[Observation]) -> list[float]:
    return [row.predicted for row in validate(profile, rows).rows]


def test_all_eleven_threads_are_here() -> None:
    tests = {name for name in globals() if name.startswith("test_case_")}
    assert len(CASES) == 11
    assert len(tests) == 11
    assert set(CLOSED_FORM) <= set(CASES)
    assert set(MISSES) <= set(CASES)


QWEN_PLAIN = ((1, 222.47), (4, 566.21), (8, 733.61), (16, 1012.96))
QWEN_EAGLE = (  # clients, steps, topk, tokens, tok/s, accept length
    (1, 3, 1, 4, 159.78, 1.86),
    (1, 3, 3, 8, 172.99, 2.2),
    (1, 3, 3, 4, 207.62, 1.99),
    (1, 7, 4, 16, 191.9, 2.52),
    (1, 6, 4, 12, 171.54, 2.42),
    (1, 8, 8, 60, 177.5, 3.2),
    (4, 3, 1, 4, 447.9, 1.86),
    (4, 3, 3, 8, 426.46, 2.27),
)


@functools.cache
def qwen() -> Profile:
    """Fitted to no speculation and the chain; 20 prompts, as the benchmark has them."""
    setup = setup_of("qwen3-30b-a3b", "h100-sxm", "eagle3", "sglang", "0.5.5", tp=2, link="nvlink4")
    rows = [cell(NONE, c, tps, None, 20) for c, tps in QWEN_PLAIN]
    rows += [cell(spec(s, k, n), c, tps, tau, 20) for c, s, k, n, tps, tau in QWEN_EAGLE if k == 1]
    return fit_profile(setup, rows).profile


def test_case_qwen3_no_setting_pays() -> None:
    """SpecForge#339: every setting is slower than none, although one accepts 3.2 tokens."""
    plain = dict(QWEN_PLAIN)
    rows = [cell(spec(s, k, n), c, tps, None, 20) for c, s, k, n, tps, _ in QWEN_EAGLE]
    for row, tps in zip(rows, predicted(qwen(), rows), strict=True):
        assert row.concurrency is not None
        assert tps < plain[row.concurrency]
    settings = tuple(dict.fromkeys(row.setting for row in rows))
    answer = recommend(qwen(), Question(settings, (1, 4)))
    assert all(not choice.choice.plan.setting.speculates for choice in answer.loads)
    assert answer.advice[0].kind == "do-not-speculate"


def test_twenty_prompts_are_never_more_than_twenty_clients() -> None:
    """The same thread's baselines at 32 and 64 (1077.55, 1073.69) are of 20 requests: flagged."""
    profile = qwen()
    system = profile.system()
    plan, workload = system.plan(NONE), profile.setup.workload
    table = accept_table(profile.acceptance(), NONE)
    tps = []
    for clients in (20, 32, 64):
        load = Load("closed_loop", clients, num_requests=20)
        case = Case.of(system, plan, table, workload, load)
        tps.append(simulate(system.cost, case, rng=np.random.default_rng(0)).output_tps)
    assert tps[1] == tps[2] == tps[0]


def test_case_llama31_two_drafts_are_best() -> None:
    """vllm#16937: EAGLE-1 on one H100, none 133; k=2 201.69, k=4 198, k=7 169.92.

    Fitted without k=4, which is predicted within 5 % and between the others.
    """
    setup = setup_of("llama-3.1-8b", "h100-sxm", "eagle", "vllm", "0.8.5")
    rows = {k: cell(spec(k, 1, k + 1, "EAGLE"), 1, tps) for k, tps in K_SWEEP.items()}
    profile = fit_profile(setup, [cell(NONE, 1, 133.0), rows[2], rows[7]]).profile
    two, four, seven = predicted(profile, list(rows.values()))
    assert two > four > seven > 133.0
    assert four == pytest.approx(K_SWEEP[4], rel=0.05)


K_SWEEP = {2: 201.69, 4: 198.0, 7: 169.92}


def test_case_llama3_four_drafts_from_two() -> None:
    """vllm#16035: none 128.64, k=2 175.49 (1.89); k=4 accepts 2.08: 165.65 within 5 %.

    The GPU is not in the excerpt; the author's other results are on an H100. That k=2 is the
    faster one (6 %) is within the model's own error here and not asserted.
    """
    setup = setup_of("llama-3-8b", "h100-sxm", "eagle", "vllm", "0.8.5")
    four = cell(spec(4, 1, 5, "EAGLE"), 1, 165.65)
    known = [
        cell(NONE, 1, 128.64),
        cell(spec(2, 1, 3, "EAGLE"), 1, 175.49, 1.89),
        replace(four, output_tps=None, accept_length=2.08, accept_length_scope="run"),
    ]
    profile = fit_profile(setup, known).profile
    (tps,) = predicted(profile, [four])
    assert tps == pytest.approx(165.65, rel=0.05)
    # its own two round times, 10.77 and 12.56 ms, answer which is faster
    assert 2.08 / 1.89 < 12.56 / 10.77


def test_case_qwen35_mtp_cannot_pay() -> None:
    """vllm#39680: 342.2 tok/s without, 128.3 with one draft at 1.97 of 2 accepted."""
    round_s, step_s = 1.97 / 128.3, 1 / 342.2
    needed = breakeven_accept_length(round_s, step_s)
    assert needed == pytest.approx(5.3, abs=0.1)
    assert needed > 1 + 1  # what one draft can yield


def test_case_mimo_not_even_a_perfect_drafter() -> None:
    """vllm#47277: a round of 98.7 ms (k=1) or 263 ms (k=7) against a step of 37.7 ms."""
    one = breakeven_accept_length(98.7e-3, 37.7e-3)
    assert one == pytest.approx(2.62, abs=0.005)
    assert one > 1 + 1
    seven = breakeven_accept_length(263e-3, 37.7e-3)
    assert 3.21 < seven < 1 + 7  # in reach in principle, far from the 3.21 it has


def test_case_cap_of_48() -> None:
    """sglang#34290: the default cap becomes 48 when speculating, 6 per rank at dp 8; 32 in 2025."""
    sglang, chain = engine_named("sglang"), spec(3, 1, 4, "MTP")
    caps = {
        (version, dp): sglang.plan(
            chain, EngineSpec("sglang", version, tp=8, dp=dp), 150e9, False
        ).max_running_requests
        for version, dp in (("main", 1), ("main", 8), ("0.4.3.post4", 1))
    }
    assert caps == {("main", 1): 48, ("main", 8): 6, ("0.4.3.post4", 1): 32}
    plain = sglang.plan(NONE, EngineSpec("sglang", "main", tp=8), 150e9, False)
    assert plain.max_running_requests >= 2048
    setup = setup_of("llama-3.1-8b", "h200-sxm", "eagle3", "sglang", "main")
    profile = fit_profile(setup, [cell(NONE, 1, 150.0)]).profile  # any H200 will do
    setting = spec(3, 1, 4)
    for cap, limited in ((None, True), (256, False)):
        question = Question((setting,), (100,), max_running_requests=cap)
        asked = predict(profile, question, solver="analytic").of("asked")
        assert asked is not None
        assert (asked.points[0].limit == "cap") is limited
        assert asked.points[0].batch_size == pytest.approx(48 if limited else 100)


def deepseek() -> tuple[SpecSetting, Profile]:
    setup = setup_of(
        "deepseek-r1",
        "h20-3e-sxm",
        "mtp",
        "sglang",
        "0.4.4",
        tp=8,
        link="nvlink4",
        lengths=(128, 500),
    )
    chain = spec(2, 1, 3, "MTP")
    known = [
        cell(NONE, 100, 1039.0, None, 100),
        replace(cell(chain, 100, None, 2.54), output_tps=None),
    ]
    return chain, fit_profile(setup, known).profile


def test_case_deepseek_the_cap_before_the_acceptance() -> None:
    """sglang#4759: 100 prompts at once, 32 run and 68 wait; accept length 2.54 is fine."""
    chain, profile = deepseek()
    curve = predict(profile, Question((chain,), (100,)), solver="analytic")
    asked = curve.of("asked")
    assert asked is not None
    assert asked.points[0].limit == "cap"
    assert asked.points[0].batch_size == pytest.approx(32)
    assert asked.points[0].gain < 0


@pytest.mark.xfail(strict=True, reason="a wide verification is expected to lose without a cap too")
def test_deepseek_is_told_to_raise_the_cap() -> None:
    """The thread's own answer; the fit of 0.1 reached it."""
    chain, profile = deepseek()
    today = replace(profile, setup=replace(profile.setup, current=chain))
    advice = recommend(today, Question((chain,), (100,))).advice
    raised = [a.text for a in advice if a.kind == "raise-max-running-requests"]
    assert raised
    assert "cap of 32" in raised[0]


def test_case_overlap_is_faster_than_sequence() -> None:
    """sglang#12128: DeepSeek-R1, fa3, C=1, accept length 2.296: 140.52 (v1) to 159.71 (v2).

    The gain of v2 lies in the 5-15 % of the published ones (9588: 5-10 %, 11398: 11 %, this one
    14 %). The GPU is not stated; H200 is assumed.
    """
    setup = setup_of(
        "deepseek-r1",
        "h200-sxm",
        "mtp",
        "sglang",
        "0.5.5",
        tp=8,
        link="nvlink4",
        lengths=(512, 512),
        attention_backend="fa3",
    )
    chain = spec(3, 1, 4, "EAGLE")
    one = cell(chain.with_scheduler("sequential"), 1, 140.52, 2.296)
    profile = fit_profile(setup, [one]).profile
    two = cell(chain.with_scheduler("overlap"), 1, 159.71)
    v1, v2 = predicted(profile, [one, two])
    assert 0.05 < v2 / v1 - 1 < 0.15


def test_case_deepseek_mtp_pays_at_one_client() -> None:
    """sglang#10281: 82.72 without, 151.53 with (3, 1, 4) at 2.69: a round costs 1.47 steps."""
    ratio = breakeven_accept_length(2.69 / 151.53, 1 / 82.72)
    assert ratio == pytest.approx(1.47, abs=0.005)
    setup = setup_of(
        "deepseek-r1",
        "b200-sxm",
        "mtp",
        "sglang",
        "0.5.3",
        tp=8,
        link="nvlink5",
        lengths=(1024, 1024),
        attention_backend="trtllm_mla",
    )
    chain = spec(3, 1, 4, "MTP")
    known = [cell(NONE, 1, 82.72), replace(cell(chain, 1, None, 2.69), output_tps=None)]
    profile = fit_profile(setup, known).profile
    plain, mtp = predicted(profile, [cell(NONE, 1, 82.72), cell(chain, 1, 151.53)])
    assert mtp / plain == pytest.approx(1.83, rel=0.10)  # nothing about the round's cost is fitted


def test_case_break_even_in_closed_form() -> None:
    """Soup#843: target 39.28, draft 65.9 tok/s; 0.832 needed at k=5, 0.813 there; k=1..2 best."""
    step_s, draft_s = 1 / 39.28, 1 / 65.9

    def gain(accept_prob: float, steps: int) -> float:
        """Yield of a chain over what it needs to pay."""
        tokens = accept_table(uniform(accept_prob), SpecSetting.of(1, steps)).accept_length
        return tokens / breakeven_accept_length(step_s + steps * draft_s, step_s)

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if gain(middle, 5) < 1 else (low, middle)
    assert low == pytest.approx(0.832, abs=0.0005)
    assert gain(0.813, 5) < 1
    gains = {steps: gain(0.813, steps) for steps in range(1, 17)}
    best = max(gains, key=gains.__getitem__)
    assert best in (1, 2)
    assert gains[best] == pytest.approx(1.13, abs=0.01)


def uniform(accept_prob: float) -> Acceptance:
    """Every draft is accepted with this probability, at any depth and of any request."""
    return Acceptance(accept_prob=(accept_prob,), decay=1.0, context_spread=0.0, request_spread=0.0)


def test_case_eight_drafts_at_64_clients() -> None:
    """vllm#48892: k=1 1.84 at 37.18 ms per token, k=8 4.40 at 27.48 ms; survival by position."""
    survival = (0.757, 0.601, 0.498, 0.411, 0.354, 0.298, 0.261, 0.223)
    assert 1 + sum(survival) == pytest.approx(4.40, abs=0.005)
    one, eight = 1.84 * 37.18, 4.40 * 27.48  # ms per round
    assert 1.84 * breakeven_accept_length(eight, one) < 4.40  # against one draft, eight pay
    slope = (eight - one) / 7
    tokens = {k: 1 + sum(survival[:k]) for k in range(1, 9)}
    tpot = {k: (one + slope * (k - 1)) / tokens[k] for k in tokens}
    assert tpot[8] < tpot[2] < tpot[1]
    assert min(tpot, key=tpot.__getitem__) >= 5  # long drafts are right here
