"""The front door: lanes, loads, intervals, notes, and the same bytes for the same question."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from specsim.curve import COLUMNS, Curve, Series, Solver
from specsim.errors import EngineRefusal, InputError, UnknownNameError
from specsim.predict import predict
from specsim.profile import Profile, load_profile
from specsim.question import CONCURRENCY, Question
from specsim.setting import SpecSetting

# Products of a few doubles.
ROUNDING = 1e-12

TREE = SpecSetting.of(2, 2)
CHAIN = SpecSetting.of(1, 4)
LOADS = (1, 30, 100)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile()


def ask(profile: Profile, *settings: SpecSetting, **question: object) -> Curve:
    asked = {"concurrency": LOADS} | question
    return predict(profile, Question(settings, **asked), solver="analytic")


def under_engine(profile: Profile, **changes: object) -> Profile:
    """The same numbers on another engine."""
    engine = replace(profile.setup.engine, **changes)
    return replace(profile, setup=replace(profile.setup, engine=engine))


def roles(curve: Curve) -> list[str]:
    return [series.role for series in curve.series]


def series(curve: Curve, role: str) -> Series:
    found = curve.of(role)
    assert found is not None
    return found


# --- lanes


def test_the_founding_question(profile: Profile) -> None:
    """topk=2 runs on v1 on the founding server, and with overlap from 0.5.13 [@founding-case]."""
    curve = ask(profile, TREE)
    assert roles(curve) == ["baseline", "current", "asked", "alternative"]
    asked, other = series(curve, "asked"), series(curve, "alternative")
    assert {(p.scheduler, p.engine_version) for p in asked.points} == {("sequential", "0.5.9")}
    assert {(p.scheduler, p.engine_version) for p in other.points} == {("overlap", "0.5.13")}
    assert {p.num_draft_tokens for p in (*asked.points, *other.points)} == {7}
    assert "0.5.13" in other.label
    assert all(p.allowed and not p.what_if and p.reason is None for p in curve.rows)
    for old, new in zip(asked.points, other.points, strict=True):
        assert new.accept_length == old.accept_length


def test_an_answer_for_a_named_version_has_no_alternative(profile: Profile) -> None:
    old = ask(profile, TREE, engine_version="0.5.9")
    new = ask(profile, TREE, engine_version="0.5.13")
    assert roles(old) == roles(new) == ["baseline", "current", "asked"]
    assert series(old, "asked").points[0].scheduler == "sequential"
    assert series(new, "asked").points[0].scheduler == "overlap"
    # what runs today is shown as it runs today
    assert series(new, "current").points[0].engine_version == "0.5.9"


def test_a_named_scheduler_has_no_alternative(profile: Profile) -> None:
    assert roles(ask(profile, TREE.with_scheduler("sequential"))) == [
        "baseline",
        "current",
        "asked",
    ]


def test_nothing_is_shown_twice(profile: Profile) -> None:
    """Asked for the current setting, for none, or for the same twice."""
    current = profile.setup.current
    assert current is not None
    assert roles(ask(profile, current)) == ["baseline", "current"]
    assert roles(ask(profile, SpecSetting.none())) == ["baseline", "current"]
    assert roles(ask(profile, TREE, TREE)) == ["baseline", "current", "asked", "alternative"]
    two = ask(profile, CHAIN, TREE)
    assert roles(two) == ["baseline", "current", "asked", "asked", "alternative"]


def test_a_profile_without_a_current_setting(profile: Profile) -> None:
    plain = replace(profile, setup=replace(profile.setup, current=None))
    assert roles(ask(plain, CHAIN)) == ["baseline", "asked"]


def test_a_refused_setting_is_an_error_or_a_what_if(profile: Profile) -> None:
    tree = TREE.with_scheduler("overlap")
    with pytest.raises(EngineRefusal, match="topk = 1"):
        ask(profile, tree)
    point = series(ask(profile, tree, what_if=True), "asked").points[0]
    assert (point.allowed, point.what_if, point.scheduler) == (False, True, "overlap")
    assert point.reason is not None
    assert "topk = 1" in point.reason


def test_a_later_version_that_refuses_too_is_no_alternative(profile: Profile) -> None:
    """trtllm_mha takes no trees in any version: the what-if stands alone."""
    server = under_engine(profile, attention_backend="trtllm_mha")
    curve = ask(server, TREE, what_if=True)
    assert roles(curve) == ["baseline", "current", "asked"]
    assert series(curve, "asked").points[0].what_if


# --- numbers


def test_rows_are_settings_times_loads(profile: Profile) -> None:
    curve = ask(profile, TREE)
    assert [(p.role, p.concurrency) for p in curve.rows] == [
        (role, c) for role in roles(curve) for c in LOADS
    ]
    assert len(list(ask(profile, concurrency=CONCURRENCY).rows)) == 2 * len(CONCURRENCY)


def test_speedup_is_against_no_speculation_at_the_same_load(profile: Profile) -> None:
    curve = ask(profile, TREE)
    baseline = series(curve, "baseline").points
    assert [p.speedup for p in baseline] == [1.0] * len(LOADS)
    assert [p.accept_length for p in baseline] == [1.0] * len(LOADS)
    for line in curve.series:
        for base, p in zip(baseline, line.points, strict=True):
            assert p.speedup == pytest.approx(p.output_tps / base.output_tps, rel=ROUNDING)


def test_intervals_contain_their_centre_and_are_never_surer_than_the_model(
    profile: Profile,
) -> None:
    curve = ask(profile, TREE)
    least = 1.6448536 * profile.fit.model_error
    for p in curve.rows:
        up, down = (
            math.log(p.output_tps_high / p.output_tps),
            math.log(p.output_tps / p.output_tps_low),
        )
        assert up == pytest.approx(down, rel=1e-9)  # symmetric in logarithms
        assert up >= least * (1 - 1e-7)


def test_gains_are_surer_than_throughputs(profile: Profile) -> None:
    """Two settings of one server share its parameters; the sign of a sure gain is sure."""
    curve = ask(profile, TREE)
    for line in curve.series[1:]:
        for c in line.points:
            assert c.gain_low < c.gain < c.gain_high
            assert 0 <= c.probability <= 1
            assert (c.probability > 0.5) == (c.gain > 0)
            assert (c.probability > 0.95) == (c.gain_low > 0)  # the 90 % are central
    assert all(c.gain == c.probability == 0 for c in series(curve, "baseline").points)


def test_more_model_error_means_wider_intervals(profile: Profile) -> None:
    wide = replace(profile, fit=replace(profile.fit, model_error=0.2))
    for narrow, p in zip(ask(profile).rows, ask(wide).rows, strict=True):
        assert p.output_tps == narrow.output_tps
        assert p.output_tps_high > narrow.output_tps_high


def test_a_cap_of_ones_own(profile: Profile) -> None:
    for p in ask(profile, CHAIN, max_running_requests=10, concurrency=(100,)).rows:
        assert p.batch_size <= 10
        assert p.limit == "cap"


# --- loads and lengths


def test_lengths_of_ones_own_replace_the_assumed_ones(profile: Profile) -> None:
    """Cached tokens belong to the profile's prompts; stated lengths are not assumed."""
    base = ask(profile)
    assert {p.evidence for p in base.rows} == {"assumed"}
    said = "lengths are assumed: 4096 (3584 cached) and 1024 tokens, answers spread by 50 %"
    assert any(said in note for note in base.notes)
    own = ask(profile, input_len=4096.0, output_len=100.0)
    assert {(p.input_len, p.output_len) for p in own.rows} == {(4096.0, 100.0)}
    assert not any("lengths are assumed" in note for note in own.notes)
    # another prompt has nothing cached: eight times as much to prefill
    other = ask(profile, input_len=4097.0, output_len=100.0)
    assert all(
        new.output_tps < old.output_tps for new, old in zip(other.rows, own.rows, strict=True)
    )
    assert any("4096" in note for note in ask(profile, output_len=100.0).notes)


def test_longer_answers_hide_prefill(profile: Profile) -> None:
    """At one client and no context effects of note, tokens per second rise with the answer."""
    tps = [ask(profile, output_len=n, concurrency=(1,)).rows[0].output_tps for n in (16, 64, 256)]
    assert tps == sorted(tps)


def test_steady_decode_at_a_context(profile: Profile) -> None:
    for p in ask(profile, CHAIN, context_len=16_384.0).rows:
        assert (p.input_len, p.output_len, p.context_len) == (None, None, 16_384.0)
        assert (p.ttft_s, p.ttft_p50_s) == (None, None)
        expected = p.batch_size * p.accept_length / p.round_time_s
        assert p.output_tps == pytest.approx(expected, rel=ROUNDING)


def test_open_loop_is_one_load(profile: Profile) -> None:
    curve = ask(profile, CHAIN, request_rate=0.05)
    assert [len(line.points) for line in curve.series] == [1, 1, 1]
    for p in curve.rows:
        assert p.output_tps == pytest.approx(
            0.05 * profile.setup.workload.output_len.mean, rel=1e-9
        )
        assert p.limit == "client"


@pytest.mark.parametrize("solver", ["analytic", "simulate"])
def test_more_than_the_server_can_do_is_said_and_is_its_capacity(
    profile: Profile, solver: Solver
) -> None:
    """At 100, 200 and 300 requests/s it once said 557, 184 with +37 %, and 9.38 tok/s."""
    full = predict(profile, Question((CHAIN,), (200,)), solver=solver)
    for rate in (3.0, 1e6):
        curve = predict(profile, Question((CHAIN,), request_rate=rate), solver=solver)
        for point, at_cap in zip(curve.rows, full.rows, strict=True):
            assert point.saturated
            assert point.output_tps == pytest.approx(at_cap.output_tps, rel=0.01)
            assert (point.ttft_s, point.ttft_p50_s, point.ttft_p99_s) == (None, None, None)
            assert point.limit == at_cap.limit
    assert not any(p.saturated for p in full.rows)


def test_acceptance_is_chosen_by_name(profile: Profile) -> None:
    better = replace(profile.acceptances[0], dataset="echo", level=2.0)
    two = replace(profile, acceptances=(*profile.acceptances, better))
    plain, echo = (series(ask(two, CHAIN, dataset=d), "asked") for d in (None, "echo"))
    assert echo.points[0].accept_length > plain.points[0].accept_length
    with pytest.raises(UnknownNameError, match="coding/agentic@0"):
        ask(profile, CHAIN, dataset="poetry")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"concurrency": ()}, "concurrency: is empty"),
        ({"concurrency": (0,)}, "concurrency 0: must lie in"),
        ({"concurrency": (1, -5)}, "concurrency -5"),
        ({"request_rate": 0.0}, "request rate 0.0: must be positive"),
        ({"request_rate": math.nan}, "request rate nan"),
        ({"input_len": -1.0}, "input length -1.0"),
        ({"output_len": 0.0}, "output length 0.0: must be at least 1"),
        ({"output_len": math.inf}, "output length inf"),
        ({"context_len": 1e9}, "context length 1000000000.0"),
        ({"max_running_requests": 0}, "max_running_requests"),
        ({"engine_version": "zero"}, "zero"),
    ],
)
def test_bad_questions_name_the_value(
    profile: Profile, question: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ask(profile, CHAIN, **question)


# --- notes


def test_notes_say_what_the_engine_does_and_what_is_assumed(profile: Profile) -> None:
    notes = ask(profile, TREE).notes
    assert any(note.startswith("topk=2 steps=2 tokens=7: ") for note in notes)
    assert any("prior-driven" in note for note in notes) == any(
        p.fitted and p.driven == "prior" for p in profile.parameters
    )
    assert len(set(notes)) == len(notes)
    refused = ask(profile, TREE.with_scheduler("overlap"), what_if=True).notes
    assert any("topk = 1" in note for note in refused)


def test_a_chain_of_other_tokens_is_noted(profile: Profile) -> None:
    """SGLang sets n = S + 1 of a chain, and says so."""
    chain = SpecSetting("EAGLE3", 1, 4, 3)
    curve = ask(profile, chain)
    assert series(curve, "asked").points[0].num_draft_tokens == 5
    assert any("adjusted to speculative_num_steps + 1" in note for note in curve.notes)


# --- documents


def test_the_same_question_gives_the_same_bytes(profile: Profile) -> None:
    one, two = (ask(load_profile(), TREE).to_json() for _ in range(2))
    assert one == two
    document = json.loads(one)
    assert document["schema"] == "specsim.curve/2"
    assert (document["profile"], document["solver"], document["seed"]) == (
        profile.name,
        "analytic",
        0,
    )
    assert len(document["rows"]) == 4 * len(LOADS)
    assert list(COLUMNS) == list(document["rows"][0])


def test_the_answer_does_not_depend_on_the_processes(profile: Profile) -> None:
    question = Question((SpecSetting.of(2, 2),), (1, 4))
    one = predict(profile, question, seed=3)
    assert predict(profile, question, seed=3, jobs=2).to_json() == one.to_json()


def test_a_csv_has_the_columns_and_rows_of_the_document(profile: Profile) -> None:
    curve = ask(profile, TREE)
    rows = list(csv.DictReader(io.StringIO(curve.to_csv())))
    document = json.loads(curve.to_json())["rows"]
    assert list(rows[0]) == list(document[0])
    for row, expected in zip(rows, document, strict=True):
        assert float(row["output_tps"]) == pytest.approx(expected["output_tps"], rel=1e-9)
        assert row["tpot_p99_s"] == ""  # the closed form has no percentiles


def test_a_curve_is_a_frame_and_a_table(profile: Profile) -> None:
    curve = ask(profile, TREE)
    frame = curve.to_frame()
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == 4 * len(LOADS)
    html = curve._repr_html_()
    assert html.count("<tr") == len(frame) + 1
    assert series(curve, "alternative").label in html
