"""One decision for all commands: words match numbers, and the commands agree, on random systems."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from specsim.cli.main import run
from specsim.curve import Curve
from specsim.decide import Verdict
from specsim.decide.contest import verdict
from specsim.decide.recommend import recommend
from specsim.decide.schedule import best_schedule
from specsim.predict import predict
from specsim.profile import Profile
from specsim.question import Question
from specsim.report import View
from specsim.report.answer import answer, choice_cells
from specsim.setting import SpecSetting
from specsim.uncertainty import SURE

SYSTEMS = int(os.environ.get("SPECSIM_FUZZ", "3"))
"""Random systems; SPECSIM_FUZZ=200 is the long run (some minutes)."""

LOADS = (1, 4, 16, 64, 128)
ASKED = (SpecSetting.of(1, 3), SpecSetting.of(2, 2), SpecSetting.of(4, 3, 16))
GAIN = re.compile(r"([+-]?\d+) % at (\d+), (?:over )?(\d+) % sure")
SPANS = r"at ([\d, andtomre]+) clients "
NONE = re.compile(SPANS + "no chain surely beats")
OTHER = re.compile(SPANS + "specsim recommend prefers another depth")
LOADS_OF = re.compile(r"(\d+)(?: to (\d+)|( and more))?")
SPAN = re.compile(r"(wins|loses|is even) (?:from (\d+) to (\d+)|at (\d+)) clients?")


@pytest.fixture(scope="module")
def systems() -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "benchmarks" / "random_systems.py"
    spec = importlib.util.spec_from_file_location("random_systems", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["random_systems"] = module
    spec.loader.exec_module(module)
    return module


def random_profile(systems: ModuleType, seed: int) -> Profile:
    """A server drawn from its prior: measured or not, of two releases, capped or not."""
    rng = np.random.default_rng(seed)
    setup = systems._setup(*systems.SETUPS[seed % len(systems.SETUPS)])
    engine = replace(setup.engine, version=str(rng.choice(["0.5.9", "0.5.13", "0.5.23"])))
    engine = replace(engine, max_running_requests=[128, None][seed % 3 == 0])
    if seed % 5 == 1:
        setup = replace(setup, current=None)
    error = float(rng.choice([0.04, 0.15]))
    profile = systems.prior_profile(
        replace(systems._setup(*systems.SETUPS[seed % len(systems.SETUPS)]), engine=engine),
        f"random {seed}",
        error,
    )
    drawn = np.clip(rng.standard_normal(len(profile.parameters)), -2.0, 2.0)
    return replace(systems.moved(profile, drawn), setup=replace(setup, engine=engine))


@pytest.mark.parametrize("seed", range(SYSTEMS))
def test_the_commands_agree_and_words_match_numbers(systems: ModuleType, seed: int) -> None:
    profile = random_profile(systems, seed)
    wish = Question(
        concurrency=LOADS, max_draft_tokens=16, max_steps=6, max_topk=4
    )  # few candidates, for speed
    question = replace(wish, settings=(ASKED[seed % 3],))
    curve = predict(profile, question, solver="analytic")
    decision = verdict(profile, question)
    chosen = [load.choice.plan for load in recommend(profile, wish).loads]
    assert [load.choice.plan.setting for load in decision.loads] == [p.setting for p in chosen]
    check_words(curve, decision)


@pytest.mark.parametrize("seed", [*range(SYSTEMS), 127])
def test_the_schedule_agrees_or_says_why_not(systems: ModuleType, seed: int) -> None:
    """Its depth at a load's batch is a choice of that load, or its note names the load."""
    profile = random_profile(systems, seed)
    chains = Question(concurrency=LOADS, max_draft_tokens=16, max_steps=6, max_topk=1)
    best = best_schedule(profile, chains)

    def told(note: re.Pattern[str], load: int) -> bool:
        spans = LOADS_OF.findall(" ".join(note.findall(" ; ".join(best.notes))))
        return any(int(a) <= load <= (load if more else int(b or a)) for a, b, more in spans)

    for load in verdict(profile, chains).loads:
        batch = max(1.0, load.choice.batch_size) + 0.5
        depth = [step.num_steps for step in best.table if step.from_batch_size <= batch][-1]
        plain = not load.choice.plan.setting.speculates
        if plain and depth:
            assert told(NONE, load.concurrency), (best.table, best.notes)
        else:
            good = {o.plan.setting.num_steps for o in (load.choice, *load.tied)}
            assert depth in good or told(OTHER, load.concurrency), (load, best.table)


def check_words(curve: Curve, decision: Verdict) -> None:
    """Every claim of the first sentence, and of the best by load, against the numbers."""
    view = View.of(curve, decision)
    sentences = answer(view, decision.free)
    (i,) = view.having("asked") or view.having("current")
    places = {load: j for j, load in enumerate(LOADS)}
    outcomes = view.outcomes(i)
    for verb, first, last, alone in SPAN.findall(sentences[0]):
        a, b = places[int(first or alone)], places[int(last or alone)]
        expected = {"wins": "faster", "loses": "slower", "is even": "even"}[verb]
        assert set(outcomes[a : b + 1]) == {expected}, sentences[0]
    for gain, load, certain in GAIN.findall(sentences[0]):
        j = places[int(load)]
        assert int(gain) == round(100 * view.gain(i, j))
        assert abs(int(certain) - 100 * view.sureness(i, j)) <= 1
    worth = re.search(r" (is|is not) worth a GPU hour", sentences[0])
    if worth:
        today = view.outcomes(i, view.today) if view.today not in (None, i) else outcomes
        pays = [a == b == "faster" for a, b in zip(outcomes, today, strict=True)]
        assert (worth[1] == "is") == any(pays), sentences[0]
        assert (" only " in sentences[0].split(":")[0]) == (any(pays) and not all(pays))
    for outcome, option in zip(
        outcomes, (view.option(i, j) for j in range(len(LOADS))), strict=True
    ):
        if outcome == "faster":
            assert option.probability_faster >= SURE
    for load in decision.loads:
        j = places[load.concurrency]
        better = (k for k in range(len(curve.series)) if view.outcomes(k)[j] == "faster")
        runs = [k for k in better if curve.series[k].role != "alternative"]
        allowed = [k for k in runs if not curve.series[k].points[0].what_if]
        if allowed:  # no speculation is surely beaten: it is not the choice
            assert load.choice.plan.setting.speculates
    for _, cell in choice_cells(view.loads, view.axis, view.series[i]):
        assert all(len(cell(load)) <= 26 for load in view.loads)


def test_who_else_is_asked_about_changes_no_choice(systems: ModuleType) -> None:
    profile = random_profile(systems, 2)
    alone = verdict(profile, Question((), LOADS))
    beside = verdict(profile, Question((SpecSetting.of(8, 6, 64),), LOADS))
    assert [a.choice.plan for a in alone.loads] == [b.choice.plan for b in beside.loads]


def test_free_flags_are_part_of_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """SGLang caps speculation at 48 running, which turns a gain into a loss at many clients."""
    words = (
        "--topk",
        "1",
        "--steps",
        "3",
        "--model",
        "qwen3-30b-a3b",
        "--gpu",
        "h100",
        "--tp",
        "2",
    )
    assert run(["predict", *words, "--concurrency", "30,100", "--solver", "analytic"]) == 0
    told = " ".join(capsys.readouterr().out.split("\n\n")[1].split())
    flag = re.search(r"--max-running-requests 128: .*? gives \+(\d+) % instead of -(\d+) %", told)
    assert flag is not None, told
    assert "GB more KV cache per GPU" in told


def test_the_interval_of_the_accept_length_holds_it(systems: ModuleType) -> None:
    decision = verdict(random_profile(systems, 0), Question(ASKED, (1, 30)))
    for option in decision.loads[0].asked:
        assert 1.0 <= option.accept_length_low < option.accept_length
        assert option.accept_length < option.accept_length_high <= option.plan.setting.most_accepted


def test_limits_of_the_candidates_are_kept(systems: ModuleType) -> None:
    wish = Question(concurrency=(1,), max_draft_tokens=3, max_topk=1)
    (load,) = recommend(random_profile(systems, 1), wish).loads
    assert load.choice.plan.setting.num_draft_tokens <= 4
