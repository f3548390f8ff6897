"""Loads that change, and the command that compares schedules under them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from policy_cases import with_workload
from simulation_cases import CHAIN, case_of, llama_sglang

from specsim.cli.schedule import schedule_command
from specsim.decide.adaptive import (
    LoadAnswer,
    Outcome,
    Role,
    paired_gain,
    schedule_under_load,
)
from specsim.decide.schedule import Step, simpler_tables
from specsim.decide.slo import parse_slo
from specsim.errors import FormatError, InputError
from specsim.profile import Profile, load_profile
from specsim.question import Question
from specsim.scenario import apply_overrides, parse_overrides
from specsim.simulate import Trace, parse_load, read_trace, simulate
from specsim.workload import Lengths, VaryingLoad, Workload

SHORT = Workload(Lengths(200, 0.3), Lengths(60, 0.5), evidence="measured")
FEW = Question(max_draft_tokens=5, max_steps=3, max_topk=2, engine_version="0.5.23")


def level_at(load: VaryingLoad, time_s: float) -> float:
    """Level at a time; at a jump, either side."""
    return float(np.interp(time_s, load.time_s, load.level))


# --- loads


def test_a_ramp_goes_up_and_down_unless_told_otherwise() -> None:
    assert parse_load("ramp:1..64@600s") == VaryingLoad.ramp((1, 64, 1), 600)
    up = parse_load("ramp:1..64..64@10m")
    assert isinstance(up, VaryingLoad)
    assert (level_at(up, 150), level_at(up, 450), up.unit) == (32.5, 64.0, "clients")
    rate = parse_load("ramp:0.5..8/s@2h")
    assert isinstance(rate, VaryingLoad)
    assert (rate.duration_s, rate.unit, rate.mean) == (7200.0, "requests_per_s", 4.25)


def test_bursts_end_their_periods() -> None:
    load = parse_load("burst:1..20/s,10s/60s@150s")
    assert isinstance(load, VaryingLoad)
    assert [level_at(load, t) for t in (5, 49, 55, 61, 115, 140)] == [1, 1, 20, 1, 20, 1]
    assert load.mean == pytest.approx((130 * 1 + 20 * 20) / 150)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ramp",
        "ramp:1@60s",
        "ramp:1..2",
        "ramp:1..2@60",
        "ramp:-1..2@60s",
        "ramp:0..0@60s",
        "ramp:0..0.5@60s",
        "ramp:1..2@0s",
        "ramp:1..2@9999999h",
        "ramp:1..9999999@60s",
        "burst:1..2@60s",
        "burst:1..2..3,1s/10s@60s",
        "burst:1..2,10s/5s@60s",
        "burst:1..2,1s/90s@60s",
        "burst:1..2,1ms/2ms@100h",
        "steps:1..2@60s",
        "trace:",
        "trace:nowhere.csv",
    ],
)
def test_loads_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_load(text)


def test_arrivals_follow_the_rate() -> None:
    """Counts in ten equal parts of a ramp 2..20/s, each Poisson: within five standard errors."""
    load = VaryingLoad.ramp((2, 20), 300, "requests_per_s")
    times = load.arrivals(np.random.default_rng(11))
    assert (np.diff(times) >= 0).all()
    assert 0 <= times[0] <= times[-1] <= 300
    counts, edges = np.histogram(times, 10, (0.0, 300.0))
    for count, begin, end in zip(counts, edges, edges[1:], strict=False):
        expected = (level_at(load, begin) + level_at(load, end)) / 2 * (end - begin)
        assert abs(count - expected) <= 5 * math.sqrt(expected)


def test_nothing_arrives_where_the_rate_is_zero() -> None:
    load = VaryingLoad.burst(0.0, 50.0, 1.0, 10.0, 40.0)
    times = load.arrivals(np.random.default_rng(0))
    assert len(times) > 100
    assert ((times % 10) >= 9 - 1e-9).all()
    dense = VaryingLoad.ramp((9e4, 9e4), 3600, "requests_per_s")
    with pytest.raises(InputError, match=r"1000000 requests"):
        dense.arrivals(np.random.default_rng(0))


def test_clients_come_and_go_with_the_level() -> None:
    """No more are in than the level, and as many as it once their answers are shorter than it."""
    system = llama_sglang("0.5.18")
    load = VaryingLoad.ramp((2, 20, 2), 60)
    case = case_of(system, CHAIN, output_len=30)
    result = simulate(system.cost, case, rng=np.random.default_rng(1), varying=load)
    requests = result.requests
    assert (requests["tokens"] == 30).all()
    assert requests["arrival_s"].max() < 60
    for moment in (6.0, 15.0, 29.9, 45.0):
        inside = (requests["arrival_s"] <= moment) & (requests["finished_s"] > moment)
        assert abs(int(inside.sum()) - level_at(load, moment)) <= 2
    assert result.window_s == (0.0, 60.0)
    again = simulate(system.cost, case, rng=np.random.default_rng(1), varying=load)
    assert again.requests.tobytes() == requests.tobytes()


def test_arriving_requests_are_all_answered() -> None:
    system = llama_sglang("0.5.18")
    load = VaryingLoad.burst(1.0, 30.0, 3.0, 10.0, 30.0)
    case = case_of(system, CHAIN, cv=0.5)
    requests = simulate(system.cost, case, rng=np.random.default_rng(1), varying=load).requests
    assert (requests["tokens"] == requests["output_len"]).all()
    burst = (requests["arrival_s"] % 10 >= 7).mean()
    assert burst > 0.8


def test_a_trace_is_read_from_a_table(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("# a day\noutput_len,arrival_s,input_len,user\n5,0.5,10,a\n\n7,2,0,b\n")
    trace = read_trace(path)
    assert trace.arrival_s.tolist() == [0.5, 2.0]
    assert trace.input_len.tolist() == [10, 0]
    assert trace.output_len.tolist() == [5, 7]
    assert isinstance(parse_load(f"trace:{path}"), Trace)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("arrival_s,input_len\n1,2\n", "output_len"),
        ("arrival_s,input_len,output_len\n", "no requests"),
        ("arrival_s,input_len,output_len\n1,2\n", "line 2"),
        ("arrival_s,input_len,output_len\n1,2,3\n#\n2,x,3\n", "line 4"),
        ("arrival_s,input_len,output_len\n1,2,3.5\n", "line 2"),
        ("arrival_s,input_len,output_len\n1,inf,3\n", "line 2"),
        ("arrival_s,input_len,output_len\n2,2,3\n1,2,3\n", "rising"),
        ("arrival_s,input_len,output_len\n2,2,0\n", "lengths"),
        ("", "empty"),
    ],
)
def test_bad_traces_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises((InputError, FormatError), match=complaint):
        read_trace(path)


# --- the comparison


def founding() -> Profile:
    """The founding server with short requests."""
    return with_workload(load_profile(), SHORT)


@pytest.fixture(scope="module")
def answer() -> LoadAnswer:
    load = VaryingLoad.ramp((1, 24, 1), 60)
    return schedule_under_load(founding(), load, FEW, repeats=3)


def outcome(answer: LoadAnswer, role: Role) -> Outcome:
    found = answer.of(role)
    assert found is not None
    return found


def test_everything_asked_for_is_compared(answer: LoadAnswer) -> None:
    roles = [o.role for o in answer.outcomes]
    assert roles == ["none", "fixed", "fixed", "table", "default", "idle"]
    assert answer.score == "throughput"
    assert all(len(o.runs) == 3 for o in answer.outcomes)
    assert (answer.best_fixed.gain, answer.best_fixed.gain_se) == (0.0, 0.0)
    idle, none = outcome(answer, "idle"), outcome(answer, "none")
    assert paired_gain(idle.runs, none.runs)[0] < 0  # the drafter costs, whatever it is good for


def test_gains_are_paired(answer: LoadAnswer) -> None:
    """PAIRED-GAIN: luck that both share is in neither the gain nor its error."""
    table, static = outcome(answer, "table"), answer.best_fixed
    gain, error = table.gain, table.gain_se
    ratios = [a.score / b.score for a, b in zip(table.runs, static.runs, strict=True)]
    assert gain == pytest.approx(np.mean(ratios) - 1)
    assert error == pytest.approx(np.std(ratios, ddof=1) / math.sqrt(3))
    assert answer.worth_it == (gain > max(0.01, 2 * error))
    assert sum(share.time_share for share in table.steps) == pytest.approx(1.0)
    assert {s.num_steps for s in table.steps} == {row.num_steps for row in answer.table}


def test_goodput_and_request_time_are_the_scores_of_other_questions() -> None:
    burst = VaryingLoad.burst(0.2, 2.0, 10.0, 30.0, 60.0)
    by_time = schedule_under_load(founding(), burst, FEW, repeats=1)
    assert by_time.score == "request_time"
    table = outcome(by_time, "table")
    assert table.score == pytest.approx(1 / table.request_time_s)
    assert math.isnan(table.gain_se)
    assert math.isnan(table.output_tps_se)
    wish = replace(FEW, targets=parse_slo("tpot=25ms"))
    good = outcome(schedule_under_load(founding(), burst, wish, repeats=1), "table")
    assert good.score == good.goodput_rps
    assert 0 <= good.good_share <= 1


def test_a_table_drafts_less_where_the_batch_is_larger() -> None:
    """Llama-3.1-8B on an L40S: a handful drafts deep, a hundred fill the GPU's arithmetic."""
    sets = ["model=llama-3.1-8b", "quantisation=bf16", "draft=eagle3", "gpu=l40s", "gpu_count=1"]
    sets += ["tp=1", "engine.version=0.5.23", "accept_length=2.4"]
    profile = with_workload(apply_overrides(load_profile(), parse_overrides(sets)).profile, SHORT)
    wish = Question(max_draft_tokens=9, max_steps=8, max_topk=2, max_running_requests=256)
    load = VaryingLoad.burst(2, 256, 6, 40, 80, "clients")
    result = schedule_under_load(profile, load, wish, repeats=2)
    assert result.best_fixed.role == "fixed"
    steps = [step.num_steps for step in result.table]
    assert steps[0] > steps[-1]


def test_simpler_tables_begin_at_one() -> None:
    rows = [Step(b, s, 0.0, 0.0) for b, s in ((1, 0), (8, 3), (32, 0))]
    for table in simpler_tables(rows):
        assert table[0].from_batch_size == 1


def test_bad_repeats_are_refused() -> None:
    with pytest.raises(InputError, match="repeats"):
        schedule_under_load(founding(), VaryingLoad.ramp((1, 2), 9), FEW, repeats=0)


# --- the command


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    schedule_command.main(list(words), standalone_mode=False)
    return capsys.readouterr().out


QUICK = (
    "--load", "ramp:1..16@30s", "--max-draft-tokens", "4", "--repeats", "2", "--input-len", "200",
    "--output-len", "60",
)  # fmt: skip


def test_the_command_says_what_to_launch(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *QUICK, "--engine-version", "0.5.23")
    for words in ("no speculation", "best table", "SGLang's default table", "K = 0", "dapting"):
        assert words in text or words.replace("dapting", "dapt:") in text
    assert "--speculative-adaptive-config adaptive.json" in text
    assert "best fixed" in text


def test_targets_that_nobody_meets_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *QUICK, "--slo", "tpot=1us")
    assert "No request meets the targets" in text
    document = json.loads(printed(capsys, *QUICK, "--slo", "tpot=1us", "--json"))
    assert document["outcomes"][0]["gain"] is None


def test_the_document_is_stable_and_has_units(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *QUICK, "--json")
    assert text == printed(capsys, *QUICK, "--json")
    document = json.loads(text)
    assert document["schema"] == "specsim.schedule/1"
    row = document["outcomes"][0]
    for name in ("output_tps", "tpot_s", "ttft_s", "request_time_s", "goodput_rps"):
        assert row[name] > 0
    config = json.loads(document["engine_config"])
    assert config["1"]["candidate_steps"] == [document["table"][0]["num_steps"]]
    assert any("0.5.9 cannot" in note for note in document["notes"])


@pytest.mark.parametrize(
    "words", [("--load", "ramp"), ("--slo", "tpot"), ("--repeats", "0"), ("--seed", "-1")]
)
def test_complaints(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        printed(capsys, *words)
