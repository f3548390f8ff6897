"""Timelines: spans that add up to the simulator's records, the sketch, the Chrome trace."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from simulation_cases import CHAIN, CHAIN_V1, NONE, TREE_V1, case_of, kimi, llama

from specsim.case import Case
from specsim.cli import main
from specsim.errors import InputError
from specsim.profile import load_profile
from specsim.report.timeline import (
    PHASES,
    Timeline,
    scheduled_plans,
    timeline_of,
    timelines,
)
from specsim.report.timeline_views import chrome_trace, sketch
from specsim.setting import SpecSetting
from specsim.simulate import SimulationResult, simulate
from specsim.workload import Load

CASES = {
    "sequential": lambda: (kimi(), case_of(kimi(), TREE_V1, 12, cv=0.5)),
    "overlap": lambda: (kimi(), case_of(kimi(), CHAIN, 12, cv=0.5)),
    "mixed prefill, runs ahead": lambda: (llama(), case_of(llama(), CHAIN, 12, cv=0.5)),
    "no speculation": lambda: (llama(), case_of(llama(), NONE, 12, cv=0.5)),
    "queue": lambda: (kimi(), case_of(kimi(), CHAIN_V1, 12, cv=0.5, cap=4)),
    "steady decode": lambda: (
        kimi(),
        case_of(kimi(), CHAIN, load=Load("steady_decode", 4, context_len=4096, window_s=1.0)),
    ),
}


def run(name: str) -> SimulationResult:
    system, case = CASES[name]()
    assert isinstance(case, Case)
    return simulate(system.cost, case, rng=np.random.default_rng(7), requests=40)


def ns(seconds: np.ndarray) -> np.ndarray:
    return np.rint(seconds * 1e9).astype(np.int64)


def union_ns(spans: np.ndarray) -> int:
    """Length of a union of intervals."""
    spans = np.sort(spans, order="start_ns")
    ends = np.maximum.accumulate(spans["end_ns"])
    begins = np.maximum(spans["start_ns"][1:], ends[:-1])
    return int(ends[0] - spans["start_ns"][0] + (ends[1:] - begins).clip(0).sum())


@pytest.fixture(scope="module")
def shown() -> tuple[Timeline, ...]:
    return timelines(load_profile(), SpecSetting.of(2, 2), 100, rounds=4)


@pytest.mark.parametrize("name", CASES)
def test_spans_cover_the_records_to_the_nanosecond(name: str) -> None:
    """Whole nanoseconds: no tolerance. Separate prefill steps count, mixed ones are in rounds."""
    result = run(name)
    timeline = timeline_of(result, name)
    steps = np.concatenate(
        [
            np.stack([ns(result.rounds[c]) for c in ("start_s", "end_s")]),
            np.stack(
                [ns(result.prefills[~result.prefills["mixed"]][c]) for c in ("start_s", "end_s")]
            ),
        ],
        axis=1,
    )
    total = int((steps[1] - steps[0]).sum())
    lane = timeline.lane("step")
    assert int((lane["end_ns"] - lane["start_ns"]).sum()) == total
    busy = timeline.spans[np.isin(timeline.spans["lane"], ("cpu", "gpu", "link"))]
    assert union_ns(busy) == total
    if name == "sequential":  # nothing overlaps: the spans add up too
        assert int((busy["end_ns"] - busy["start_ns"]).sum()) == total


@pytest.mark.parametrize("name", CASES)
def test_each_round_is_tiled_by_its_own_spans(name: str) -> None:
    result = run(name)
    timeline = timeline_of(result, name, 30)
    busy = timeline.spans[np.isin(timeline.spans["lane"], ("cpu", "gpu", "link"))]
    for step in timeline.rounds:
        own = busy[busy["round"] == step["round"]]
        assert own["start_ns"].min() == step["start_ns"]
        assert own["end_ns"].max() == step["end_ns"]
        length = step["end_ns"] - step["start_ns"]
        assert union_ns(own) == length
        assert set(own["batch"][own["phase"] != "prefill"]) == {step["batch"]}
        assert set(own["accepted"]) == {step["accepted"]}
    for lane in ("cpu", "gpu", "link"):  # a lane does one thing at a time
        spans = timeline.lane(lane)
        if result.pricers[0].plan.timeline != "run_ahead":
            assert (spans["start_ns"][1:] >= spans["end_ns"][:-1]).all()


@pytest.mark.parametrize("name", ["sequential", "overlap", "no speculation"])
def test_phases_are_priced_as_long_as_their_rounds_and_carry_their_tokens(name: str) -> None:
    """A closed loop's rounds are priced from lines, equal to the full formula to rounding."""
    result = run(name)
    rounds, timeline = result.rounds, timeline_of(result, "")
    priced = result.pricers[0].exact(rounds["batch"], rounds["kv_tokens"])
    whole = timeline.rounds["end_ns"] - timeline.rounds["start_ns"]
    alone = rounds["prefill_s"] == 0
    assert np.abs(ns(priced.round_s) - whole)[alone].max() <= 1
    target, host = (timeline.spans[timeline.spans["phase"] == p] for p in ("target", "host"))
    assert target["accepted"].sum() == rounds["accepted"].sum()
    assert host["tokens"].sum() == (rounds["active"] + rounds["accepted"]).sum()
    first = timeline_of(result, "", 2)
    assert set(first.spans["round"].tolist()) <= {-1, *first.rounds["round"].tolist()}


def test_waiting_clients_are_those_between_arrival_and_admission() -> None:
    result = run("queue")
    lane = timeline_of(result, "").lane("clients")
    start, end = ns(result.rounds["start_s"][:1])[0], ns(result.rounds["end_s"][-1:])[0]
    come = ns(result.requests["arrival_s"]).clip(start, end)
    gone = ns(np.nan_to_num(result.requests["admitted_s"], nan=1e9)).clip(start, end)
    waited = int(((lane["end_ns"] - lane["start_ns"]) * lane["batch"]).sum())
    assert waited == int((gone - come).sum())
    assert lane["batch"].max() == 8  # 12 clients, 4 slots


def test_both_schedulers_and_the_version_that_runs_them(shown: tuple[Timeline, ...]) -> None:
    first, second = shown
    assert "sequential (v1), sglang 0.5.9" in first.title
    assert "overlap (v2), sglang 0.5.13" in second.title
    assert len(first.rounds) == len(second.rounds) == 4
    (plan,) = scheduled_plans(load_profile(), SpecSetting.of(2, 2, scheduler="sequential"))
    assert plan.timeline == "sequential"


def test_overlap_hides_the_cpu_under_the_extend(shown: tuple[Timeline, ...]) -> None:
    host = [t.spans[t.spans["phase"] == "host"] for t in shown]
    extend = [t.spans[t.spans["phase"] == "extend"] for t in shown]
    assert (host[0]["start_ns"] >= extend[0]["end_ns"]).all()
    assert (host[1]["start_ns"] == extend[1]["start_ns"]).all()


def test_sketch_shows_lanes_letters_and_the_scale(shown: tuple[Timeline, ...]) -> None:
    text = sketch(shown, 100)
    assert max(map(len, text.splitlines())) <= 100
    for words in ("engine steps", "CPU scheduler", "GPU", "link: all-reduce", "waiting", " ms "):
        assert words in text
    letters = {letter for letter, _ in PHASES.values()}
    gpu = next(line for line in text.splitlines() if line.startswith("GPU"))
    assert set(gpu.removeprefix("GPU").replace(" ", "")) <= letters
    assert text == sketch(shown, 100)


def test_trace_is_what_perfetto_reads(shown: tuple[Timeline, ...]) -> None:
    """Trace Event Format (Google, 2016): X events with ts and dur in microseconds, M, C."""
    document = json.loads(chrome_trace(shown))
    events = document["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {t.title for t in shown}
    complete = [e for e in events if e["ph"] == "X"]
    assert all({"batch", "tokens", "accepted"} <= set(e["args"]) for e in complete)
    assert all(e["dur"] > 0 and e["ts"] >= 0 for e in complete)
    for pid, timeline in enumerate(shown, start=1):
        spans = [e for e in complete if e["pid"] == pid and e["tid"] == 1]
        total = sum(round(e["dur"] * 1000) for e in spans)
        lane = timeline.lane("step")
        assert total == int((lane["end_ns"] - lane["start_ns"]).sum())
    waiting = [e["args"]["waiting"] for e in events if e["ph"] == "C"]
    assert max(waiting) > 50  # 100 clients, about 36 run


@pytest.mark.slow
def test_ten_thousand_rounds_are_exported_in_three_seconds() -> None:
    """The issue's number, with room for a busy machine; one timeline, simulation included."""
    setting = SpecSetting.of(2, 2, scheduler="sequential")
    start = time.process_time()
    (timeline,) = timelines(load_profile(), setting, 30, rounds=10_000)
    text = chrome_trace([timeline])
    assert time.process_time() - start < 3.0
    assert len(timeline.rounds) == 10_000
    assert text.count('"name": "round"') == 10_000


def test_rounds_out_of_range_and_unrecorded_rounds_are_refused() -> None:
    with pytest.raises(InputError, match="rounds 0"):
        timelines(load_profile(), SpecSetting.of(1, 2), 1, rounds=0)
    system, case = CASES["overlap"]()
    result = simulate(
        system.cost, case, rng=np.random.default_rng(7), requests=4, record_rounds=False
    )
    with pytest.raises(InputError, match="no recorded rounds"):
        timeline_of(result, "t")


def run_cli(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setitem(main.COMMANDS, "timeline", "Rounds as lanes.")
    return main.run(["timeline", *words])


def test_command_draws_and_exports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture, trace = tmp_path / "a.svg", tmp_path / "a.json"
    words = ["--topk", "2", "--steps", "2", "--concurrency", "4", "--rounds", "6"]
    files = ["--png", str(picture), "--trace", str(trace)]
    assert run_cli(monkeypatch, *words, *files) == 0
    out, err = capsys.readouterr()
    assert "engine steps" in out
    assert "a round, start to end" in out
    assert err.count("wrote") == 2
    assert picture.read_bytes().startswith(b"<?xml")
    assert len(json.loads(trace.read_text())["traceEvents"]) > 2 * 6 * 5
    assert run_cli(monkeypatch, "--concurrency", "4") == 0  # what runs today


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--topk", "2", "--steps", "2", "--rounds", "0"], "rounds 0"),
        (["--topk", "2", "--steps", "2", "--concurrency", "0"], "concurrency 0"),
        (["--topk", "2", "--steps", "2", "--png", "a.gif"], "a.gif"),
        (["--topk", "2", "--steps", "2", "--seed", "-1"], "seed -1"),
        (["2,2,7", "2,1,3"], "2 settings"),
        (["--topk", "2", "--steps", "2", "--scheduler", "both"], "scheduler 'both'"),
        (["--topk", "2", "--steps", "2", "--trace", "no/such/folder.json"], "no/such"),
    ],
)
def test_command_refuses_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    complaint: str,
) -> None:
    assert run_cli(monkeypatch, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert err.count("\n") == 1


def test_other_engines_have_two_timelines_too() -> None:
    both = timelines(load_profile("kimi-k2.6-8x-rtx-pro-6000"), SpecSetting.of(1, 3), 8, rounds=2)
    assert "sequential" in both[0].title
    assert all("vllm" in t.title for t in both)
