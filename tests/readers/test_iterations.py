"""Sources with a line per forward pass or request: what they say, and that calibrate uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from json_samples import FPM, REQUEST_DRAFTS, forward_pass
from log_samples import iteration_lines
from parsing import parse, parse_one
from result_samples import json_lines

from specsim.calibrate.log_setup import Stated
from specsim.calibrate.logs import gather
from specsim.logs import LogEntry, read_file

approx = pytest.approx
STATED = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, engine_version="0.5.23")


def fpm(*messages: dict[str, object]) -> LogEntry:
    return parse_one("fpm", json_lines(*messages))


def test_forward_passes_by_batch() -> None:
    """A prompt in a pass makes it longer: those count as dropped, as do signs of life."""
    small = [forward_pass(i, 8, 0.02, 9600) for i in range(30)]
    large = [forward_pass(i, 16, 0.03, 32000) for i in range(20)]
    mixed = [forward_pass(i, 16, 0.09, 32000, prompts=1) for i in range(5)]
    entry = fpm(*small, *large, *mixed, forward_pass(60, 0, 0.0, 0))
    assert [(r.batch_size, r.round_time_s, r.output_tps) for r in entry.rows] == [
        (8, approx(0.02), None),
        (16, approx(0.03), None),
    ]
    assert [r.extra["context_len"] for r in entry.rows] == [1200, 2000]
    assert entry.windows.dropped == {"prefill": 5, "ramp": 1, "idle": 1}
    assert entry.windows.read == 56


def test_passes_with_prompts_alone_make_no_row() -> None:
    entry = fpm(*(forward_pass(i, prompts=2) for i in range(6)))
    assert (entry.rows, entry.windows.dropped) == ((), {"prefill": 6})


def test_one_rank_of_several_is_read() -> None:
    entry = fpm(*(forward_pass(i, 8 + 8 * rank, rank=rank) for i in range(9) for rank in (0, 1)))
    (row,) = entry.rows
    assert (row.batch_size, entry.windows.dropped) == (8, {"duplicate_rank": 9})
    assert "one_rank" in entry.codes


def test_workers_are_servers_of_their_own() -> None:
    other = [{**forward_pass(i, 4), "worker_id": "w1"} for i in range(5)]
    entries = parse("fpm", json_lines(*FPM, *other))
    assert [entry.rows[0].batch_size for entry in entries] == [8, 4]


@pytest.mark.parametrize(
    "change",
    [
        {"wall_time": -1.0},
        {"wall_time": "0.02"},
        {"version": 2},
        {"dp_rank": 0.5},
        {"scheduled_requests": {"num_decode_requests": 8}},
        {"scheduled_requests": forward_pass(0, 8, tokens=0)["scheduled_requests"]},
    ],
)
def test_an_impossible_message_is_unread(change: dict[str, object]) -> None:
    entry = fpm(*FPM, {**FPM[0], **change})
    assert (sum(entry.unread.values()), entry.windows.used) == (1, 12)


CHAIN = {"algorithm": "EAGLE3", "topk": 1, "num_steps": 3, "num_draft_tokens": 4}


def test_forward_passes_calibrate_rounds_at_their_context() -> None:
    (made,) = gather([fpm(*FPM)], STATED).observations
    assert (made.setting.algorithm, made.batch_size, made.context_len) == ("none", 8, 1200)
    assert (made.round_time_s, made.weight) == (approx(0.02), 0.5)


@pytest.mark.parametrize(("version", "rows"), [("0.5.19", 0), ("0.5.23", 1)])
def test_forward_passes_of_a_speculating_server(version: str, rows: int) -> None:
    """Another file says that it speculates; its times are whole from 0.5.23 on."""
    launch = LogEntry("a.log", "launch", "sglang", version, CHAIN)
    drafts = parse_one("bench_json", json.dumps(REQUEST_DRAFTS))
    stated = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, engine="sglang")
    made = gather([launch, fpm(*FPM), drafts], stated).observations
    rounds = [o for o in made if o.round_time_s is not None]
    assert len(rounds) == rows
    assert all(o.setting.num_steps == 3 for o in rounds)


def drafts_of(**change: object) -> dict[str, Any]:
    said = REQUEST_DRAFTS["metrics"]["speculative_decoding"]  # type: ignore[index]
    return {"metrics": {"speculative_decoding": {**said, **change}}}


def test_drafts_by_request() -> None:
    detailed = drafts_of(per_step_accepted=[0, 2, 3], per_step_drafted=[3, 3, 3])
    entry = parse_one("bench_json", json_lines(REQUEST_DRAFTS, detailed))
    (row,) = entry.rows
    assert (entry.engine, entry.settings["num_steps"]) == ("vllm", 3)
    assert (row.accept_length, row.drafted_per_round, row.num_requests) == (approx(2.3), 3, 2)
    assert row.survival == approx((0.7, 0.5, 0.1))


@pytest.mark.parametrize(
    "change",
    [
        {"num_spec_steps": 21},
        {"num_accepted_draft_tokens": 25},
        {"num_draft_tokens": 61},
        {"num_draft_tokens": None},
        {"num_spec_tokens": 4},
        {"mean_acceptance_length": 1.3},
    ],
)
def test_drafts_of_a_request_that_contradict_each_other(change: dict[str, object]) -> None:
    entry = parse_one("bench_json", json_lines(REQUEST_DRAFTS, drafts_of(**change)))
    assert (sum(entry.unread.values()), entry.rows[0].num_requests) == (1, 1)


def test_drafts_of_servers_of_two_depths_are_two_entries() -> None:
    deeper = drafts_of(acceptance_histogram=[6, 4, 8, 2, 0], num_spec_tokens=4, num_draft_tokens=80)
    entries = parse("bench_json", json_lines(REQUEST_DRAFTS, deeper))
    assert [entry.settings["num_steps"] for entry in entries] == [3, 4]


def test_drafts_by_request_calibrate_acceptance_alone() -> None:
    """They are of no load; a plain server's throughput beside them stays as it is."""
    entry = parse_one("bench_json", json.dumps(REQUEST_DRAFTS))
    stated = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, engine_version="0.33.0")
    (made,) = gather([entry], stated).observations
    assert (made.accept_length, made.setting.num_steps) == (approx(2.3), 3)
    assert (made.survival, made.round_time_s) == (approx((0.7, 0.5, 0.1)), None)


def iterations(text: str) -> LogEntry:
    return parse_one("vllm_iterations", text)


def test_an_iteration_takes_its_wait_and_the_host_between() -> None:
    """20 a second, each of which waits 48 ms: 2 ms pass between two."""
    entry = iterations(iteration_lines(20, 48.0, batch=8, drafts=3))
    (row,) = entry.rows
    assert (row.batch_size, row.drafted_per_round) == (8, 3)
    assert row.round_time_s == approx(0.05)
    assert (entry.settings["num_steps"], entry.windows.used) == (3, 160)


def test_iterations_with_prompts_are_left_out_and_take_their_time() -> None:
    """Each second has 10 iterations with a prompt (58 ms) and 10 without (38 ms)."""
    lines = iteration_lines(20, 38.0).splitlines(keepends=True)
    for at in range(0, len(lines), 2):
        lines[at] = lines[at].replace("0 context requests, 0 ", "1 context requests, 700 ")
        lines[at] = lines[at].replace("time: 38.00 ms", "time: 58.00 ms")
    entry = iterations("".join(lines))
    assert entry.rows[0].round_time_s == approx(0.040)
    assert entry.windows.dropped == {"prefill": 80}


def test_a_second_with_a_lost_line_tells_nothing_of_the_host() -> None:
    lines = iteration_lines(20, 48.0, seconds=7).splitlines(keepends=True)
    assert iterations("".join(lines)).rows[0].round_time_s == approx(0.05)
    for at in (30, 70):
        lines[at] = lines[at].replace(" generation", " gen#ration", 1)
    entry = iterations("".join(lines))
    assert (entry.rows[0].round_time_s, entry.unread) == (None, {"damaged field": 2})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("32 generation tokens", "7 generation tokens"),
        ("32 generation tokens", "3200 generation tokens"),
        ("usage: 10.0%", "usage: 101.0%"),
        ("48.00 ms", "48. 00 ms"),
    ],
)
def test_an_impossible_iteration_is_unread(old: str, new: str) -> None:
    text = iteration_lines(20, 48.0, kv=", GPU KV cache usage: 10.0%")
    entry = iterations(text.replace(old, new, 1))
    assert (sum(entry.unread.values()), entry.windows.read) == (1, 159)


def test_plain_decoding_and_a_lookup() -> None:
    """A lookup drafts as many as it finds: no depth of a setting."""
    assert iterations(iteration_lines(20, 48.0, drafts=0)).settings["algorithm"] == "none"
    lines = iteration_lines(20, 48.0).splitlines(keepends=True)
    lines[::2] = [line.replace("32 generation tok", "12 generation tok") for line in lines[::2]]
    entry = iterations("".join(lines))
    assert (entry.rows, entry.windows.dropped) == ((), {"drafts_vary": 160})


def test_ranks_and_starts_of_a_server() -> None:
    ranks = [iteration_lines(20, 48.0, batch=8 * n, engine=n - 1) for n in (1, 2)]
    both = "".join(
        a + b for a, b in zip(*(r.splitlines(keepends=True) for r in ranks), strict=True)
    )
    entry = iterations(both)
    assert (entry.rows[0].batch_size, entry.windows.dropped) == (8, {"duplicate_rank": 160})
    assert "one_rank" in entry.codes
    again = parse("vllm_iterations", ranks[0] + iteration_lines(20, 38.0, drafts=0))
    assert [e.settings["num_steps"] for e in again] == [3, 0]


def test_iterations_within_a_server_log_calibrate_rounds(tmp_path: Path) -> None:
    """The log's own lines say what a round gives, the iterations how long it takes."""
    from log_samples import VLLM

    file = tmp_path / "server.log"
    file.write_text(VLLM + iteration_lines(20, 48.0, kv=", GPU KV cache usage: 10.0%"))
    entries = read_file(file)
    assert {e.format for e in entries} == {"vllm_log", "vllm_iterations"}
    stated = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, engine_version="0.33.0")
    rows = gather(entries, stated).observations
    (made,) = [o for o in rows if "vllm_iterations" in o.source]
    assert (made.setting.num_steps, made.batch_size) == (3, 8)
    assert made.round_time_s == approx(0.05)
