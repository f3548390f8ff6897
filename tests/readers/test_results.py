"""Benchmark results, metrics, iteration logs, acceptance tables: JSON and printed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import result_samples as results
from parsing import parse, parse_one

from specsim.logs import LogEntry
from specsim.logs.unread import MISSING

approx = pytest.approx


def bench(*records: object) -> list[LogEntry]:
    return parse("bench_json", results.json_lines(*records))


def test_sglang_bench_serving() -> None:
    (entry,) = bench(results.SERVING_RECORD)
    (row,) = entry.rows
    assert (row.concurrency, row.output_tps, row.accept_length) == (12, 1200, 2.4)
    assert (row.tpot_s, row.ttft_s) == approx((0.0095, 0.12))
    assert (row.num_requests, row.input_len, row.output_len) == (96, 500, 250)
    assert row.accept_length_scope == "pooled"  # of the server's life, not of this run
    assert entry.settings["num_draft_tokens"] == 4
    assert (entry.engine, entry.engine_version) == ("sglang", "0.5.9")
    assert "itl_per_chunk" not in entry.codes  # the native backend spreads a chunk's gap


def test_sweep_of_one_server_is_one_entry() -> None:
    other = {**results.SERVING_RECORD, "max_concurrency": 24}
    (entry,) = bench(results.SERVING_RECORD, other)
    assert [r.concurrency for r in entry.rows] == [12, 24]
    assert len(bench(results.SERVING_RECORD, results.SERVING_RECORD)) == 2


def test_vllm_bench_serve() -> None:
    (entry,) = bench(results.VLLM_RECORD)
    (row,) = entry.rows
    assert entry.format == "vllm_bench_serve"
    assert (row.accept_length, row.accept_length_scope) == (2.6, "run")
    assert row.survival == (0.8, 0.5, 0.3)
    assert row.drafted_per_round == approx(3)
    assert entry.settings["num_steps"] == 3
    assert "itl_per_chunk" in entry.codes  # 24.7 ms a chunk, 9.5 ms a token


def test_open_loop() -> None:
    (entry,) = bench({**results.VLLM_RECORD, "request_rate": 5.0, "max_concurrency": None})
    (row,) = entry.rows
    assert (row.kind, row.request_rate, row.concurrency) == ("open_loop", 5.0, None)


def test_one_batch_server() -> None:
    (entry,) = bench(results.ONE_BATCH_RECORD)
    (row,) = entry.rows
    assert (row.kind, row.batch_size, row.output_tps) == ("steady_decode", 8, 1600)
    assert row.round_time_s == approx(2.0 * 8 / 1600)


def test_one_batch_server_of_0_4_6() -> None:
    record = {
        k: v for k, v in results.ONE_BATCH_RECORD.items() if "ttft" not in k and k != "acc_length"
    }
    (entry,) = bench({**record, "output_throughput": 8 * 400 / 2.2})
    assert entry.rows[0].kind == "closed_loop"  # prefill is in its latency


def test_offline_throughput() -> None:
    (entry,) = bench(results.OFFLINE_RECORD)
    assert (entry.rows[0].concurrency, entry.rows[0].output_tps) == (50, 900)


def test_bench_speculative() -> None:
    none, tree = bench(*results.SPECULATIVE_RECORDS)
    assert none.settings["algorithm"] == "none"
    assert (none.rows[0].output_tps, none.rows[0].round_time_s) == (100, 0.01)
    assert (tree.settings["topk"], tree.settings["num_steps"]) == (2, 3)
    assert [(r.batch_size, r.output_tps, r.round_time_s) for r in tree.rows] == [
        (1, 200, 0.0125),
        (4, 500, 0.02),
    ]


def test_server_info() -> None:
    info: dict[str, Any] = dict(results.SERVING_RECORD["server_info"])  # type: ignore[call-overload]
    state = {"avg_spec_accept_length": 2.4, "step_time_dict": {"8": [0.02] * 9 + [0.9]}}
    (entry,) = bench({**info, "internal_states": [state]})
    (row,) = entry.rows
    assert (row.batch_size, row.round_time_s, row.accept_length) == (8, 0.02, 2.4)


def test_histograms() -> None:
    (entry,) = bench(*results.HISTOGRAM_RECORDS)
    (row,) = entry.rows
    # 20 rounds: 6 accepted none, 7 one, 7 two.
    assert row.accept_length == approx(1 + (7 + 14) / 20)
    assert row.survival == approx((14 / 20, 7 / 20))
    assert row.num_requests == 2


def test_details_of_requests_are_passed_over() -> None:
    details = {"ttfts": [0.1] * 9000, "generated_texts": ['", "itls": [1]'] * 9}
    (entry,) = bench({**results.SERVING_RECORD, **details})
    assert (entry.rows[0].output_tps, entry.unread) == (1200, {})


@pytest.mark.parametrize("indent", [None, 2])
def test_indented_json_with_comments(indent: int | None) -> None:
    text = "# a comment\n" + json.dumps(results.VLLM_RECORD, indent=indent) + "\n# more\n"
    entry = parse_one("bench_json", text)
    assert entry.rows[0].output_tps == 1200


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (results.SERVING_RECORD, {"output_throughput": 1300.0}),
        (results.SERVING_RECORD, {"total_output_tokens": 2400}),
        (results.SERVING_RECORD, {"request_throughput": 48.0}),
        (results.SERVING_RECORD, {"duration": "20"}),
        (results.SERVING_RECORD, {"accept_length": 0.4}),
        (results.SERVING_RECORD, {"completed": 0}),
        (results.VLLM_RECORD, {"spec_decode_acceptance_length": 3.6}),
        (results.VLLM_RECORD, {"spec_decode_num_drafts": 923}),
        (
            results.VLLM_RECORD,
            {"spec_decode_per_position_acceptance_rates": [0.8, 0.9, 0.3]},
        ),
        (results.ONE_BATCH_RECORD, {"output_throughput": 2600.0}),
        (results.ONE_BATCH_RECORD, {"latency": 22.0}),
        (results.OFFLINE_RECORD, {"output_throughput": 90.0}),
        (results.SPECULATIVE_RECORDS[1], {"step_time": 0.125}),
        (results.SPECULATIVE_RECORDS[1], {"acc_length": 9.5, "speed": 760.0}),
    ],
)
def test_contradicting_record_is_unread(record: dict[str, Any], changes: dict[str, Any]) -> None:
    (entry,) = bench({**record, **changes})
    assert entry.unread_lines == 1
    assert not entry.usable


def test_two_records_written_into_one() -> None:
    first, second = results.json_lines(*results.SPECULATIVE_RECORDS[1:]).splitlines()
    entry = parse_one("bench_json", first[:40] + second[second.index(",") :] + "\n")
    assert (entry.unread_lines, entry.usable) == (1, False)


def test_cut_json_line() -> None:
    text = results.json_lines(results.VLLM_RECORD, results.SERVING_RECORD)
    entry = parse_one("bench_json", text[:-40])
    assert entry.format == "vllm_bench_serve"
    assert entry.unread == {"truncated": 1}
    assert "truncated" in entry.codes


def test_serving_table() -> None:
    entry = parse_one("table", results.SERVING_TABLE)
    (row,) = entry.rows
    assert (row.concurrency, row.output_tps, row.accept_length) == (12, 1200, 2.4)
    assert (row.ttft_s, row.itl_s) == approx((0.12, 0.0095))
    assert (entry.engine, entry.diagnoses) == ("sglang", ())


def test_serving_table_that_is_cut() -> None:
    text = results.SERVING_TABLE[: results.SERVING_TABLE.index("Mean ITL") + 6]
    entry = parse_one("table", text)
    assert entry.rows[0].output_tps == 1200
    assert entry.codes == ("truncated",)
    assert entry.unread_lines == 1


def test_queue_dominated_table() -> None:
    entry = parse_one("table", results.VLLM_QUEUED_TABLE)
    (row,) = entry.rows
    assert (row.kind, row.request_rate, row.concurrency) == ("open_loop", 10, None)
    assert (row.output_tps, row.tpot_s) == (500, 0.02)
    assert set(entry.codes) == {"queue_dominated", "truncated"}
    assert entry.engine == "vllm"


def test_send_one() -> None:
    v1, v2 = parse("table", results.SEND_ONE)
    assert (v1.label, v1.rows[0].output_tps, v1.rows[0].accept_length) == ("EAGLE V1", 100, 2.5)
    assert (v2.label, v2.rows[0].output_tps, v2.rows[0].accept_length) == ("EAGLE V2", 125, 2.5)
    assert [e.rows[0].round_time_s for e in (v1, v2)] == approx([0.025, 0.02])


def test_send_one_that_contradicts_itself() -> None:
    entry = parse_one("table", results.SEND_ONE.replace("5.000 ", "6.000 ", 1))
    assert entry.rows[0].output_tps == 125
    assert entry.unread_lines == 1


def test_evalscope_that_is_cut() -> None:
    entry = parse_one("table", results.EVALSCOPE_CUT)
    (row,) = entry.rows
    assert (row.concurrency, row.num_requests, row.duration_s) == (16, 80, 50)
    assert row.output_tps is None
    assert entry.codes == ("truncated",)


def test_golden_acceptance() -> None:
    entries = parse("golden_acceptance", results.GOLDEN)
    found = {
        (e.label, e.settings["num_steps"]): e.accept_length or e.rows[0].accept_length
        for e in entries
    }
    assert found == {
        ("thinking_on", 1): 1.75,
        ("thinking_on", 2): 2.2,
        ("thinking_on", 3): 2.45,
        ("thinking_off", 1): 1.8,
    }
    assert entries[0].settings["model"] == "some-model"


@pytest.mark.parametrize(
    "text",
    [
        "on: {1: 1.75, 2: 2.20}\n",
        "on:\n  - num_speculative_tokens: 2\n    acceptance_length: 2.20\n",
    ],
)
def test_golden_acceptance_otherwise_laid_out(text: str) -> None:
    assert parse("golden_acceptance", text)[-1].rows[0].accept_length == 2.2


def test_golden_acceptance_that_cannot_be() -> None:
    entry = parse_one("golden_acceptance", "on:\n  2: 4.20\n")
    assert (entry.unread_lines, entry.usable) == (1, False)


def test_llama_speculative() -> None:
    entry = parse_one("llamacpp", results.LLAMA_TOOL)
    (row,) = entry.rows
    assert (row.output_tps, row.accept_length, row.drafted_per_round) == (10, 4, 8)
    assert row.round_time_s == approx(0.4)
    assert (entry.settings["num_steps"], entry.settings["num_draft_tokens"]) == (8, 9)
    (timing,) = entry.timings
    assert (timing.phase, timing.seconds) == ("draft", approx(0.01))
    assert "truncated" in entry.codes


def test_llama_server() -> None:
    entry = parse_one("llamacpp", results.LLAMA_SERVER)
    (row,) = entry.rows
    # 200 tokens, 120 of them drafts: 80 rounds.
    assert (row.accept_length, row.drafted_per_round) == (2.5, 3)
    assert (row.output_tps, row.tpot_s, row.ttft_s) == approx((100, 0.01, 0.5))


def test_llama_server_with_several_slots_has_no_total() -> None:
    other = results.LLAMA_SERVER.replace("id  0", "id  1")
    entry = parse_one("llamacpp", results.LLAMA_SERVER + other)
    assert (entry.rows[0].output_tps, entry.rows[0].tpot_s) == (None, approx(0.01))


@pytest.mark.parametrize(
    ("old", "new"),
    [("10.00 ms per", "11.00 ms per"), ("  100.00 tok", "  900.00 tok"), ("0.50000", "0.70000")],
)
def test_llama_server_that_contradicts_itself(old: str, new: str) -> None:
    entry = parse_one("llamacpp", results.LLAMA_SERVER.replace(old, new))
    assert entry.unread_lines >= 1


def test_a_drafters_timing_out_of_its_place_is_no_stream() -> None:
    """llama-cli's decoding stands below its prompt; without one the line may be the drafter's."""
    timing = next(line for line in results.LLAMA_TOOL.splitlines() if "eval time" in line)
    entry = parse_one("llamacpp", f"{timing}\n{results.LLAMA_TOOL}")
    assert (entry.rows[0].output_tps, entry.unread[MISSING]) == (10.0, 1)


def test_timings_after_counts_of_drafts_are_of_their_run() -> None:
    """A heading that is damaged is nobody's label: the drafter's timings make no second run."""
    broken = results.LLAMA_TOOL.replace("draft:", "drift:")
    assert parse_one("llamacpp", broken).rows == parse_one("llamacpp", results.LLAMA_TOOL).rows
