"""Results of benchmark programs: what each says, in the same row of figures."""

from __future__ import annotations

import json

import benchmark_samples as samples
import json_samples
import pytest
import result_samples as results
from parsing import parse, parse_one

from specsim.logs import LogEntry

approx = pytest.approx


def test_tables_under_headings_are_of_their_servers() -> None:
    first, second = parse("table", samples.UNDER_HEADINGS)
    assert first.label == "org/m-FP8, 2 GPUs, MTP 3"
    assert [(r.concurrency, r.output_tps) for r in first.rows] == [(1, 66.2), (2, 110)]
    assert (second.label, second.rows[0].output_tps) == ("org/m-NVFP4, 2 GPUs, MTP 3", 76.7)
    assert (second.rows[0].input_len, second.rows[0].output_len) == (2048, 1024)
    assert second.settings["num_steps"] == 3


def test_table_of_sglangs_client_before_another_server() -> None:
    """`--backend vllm` names the interface of a client: the engine is not said."""
    entry = parse_one("table", samples.ROUTED)
    (row,) = entry.rows
    assert (entry.format, entry.engine) == ("sglang_bench_serving_table", None)
    assert (row.kind, row.request_rate, row.concurrency) == ("open_loop", 20, 152.38)
    assert (row.input_len, row.output_len, row.output_tps) == (2000, 200, 3809.52)
    assert (row.ttft_s, row.tpot_s) == (1, approx(7 / 199))
    none = parse_one("table", samples.ROUTED.replace("vllm     ", "sglang   "))
    assert none.engine == "sglang"


def test_offline_example_of_a_lookup_that_seldom_drafts() -> None:
    entry = parse_one("console", samples.OFFLINE)
    (row,) = entry.rows
    # 10000 tokens less 4000 accepted are 6000 rounds; 2000 of them had a draft, of 3 tokens
    assert row.accept_length == approx(10 / 6)
    assert row.drafted_per_round == approx(1)
    assert row.survival == (0.9, 0.6, 0.3, 0.2)
    assert (row.concurrency, row.num_requests, row.output_tps) == (50, 50, 1250)
    assert (row.input_len, row.output_len, row.duration_s) == approx((80, 200, 8))
    assert (entry.settings["algorithm"], entry.settings["num_steps"]) == ("NGRAM", 4)
    assert "2000 of 6000 rounds" in entry.diagnoses[0].message
    unknown = parse_one("console", samples.OFFLINE.replace("total_num", "total"))
    assert unknown.rows[0].accept_length is None


def test_offline_example_of_a_drafter_that_always_drafts() -> None:
    text = samples.OFFLINE.replace("10000", "6040")  # 50 prompts gave a token each
    (row,) = parse_one("console", text).rows
    assert (row.accept_length, row.drafted_per_round) == (3, 3)


def test_vllm_bench_throughput() -> None:
    (row,) = parse_one("console", samples.BENCH_THROUGHPUT).rows
    assert (row.output_tps, row.accept_length, row.concurrency) == (1700, None, None)


def test_trtllm_bench() -> None:
    entry = parse_one("console", samples.TRTLLM_BENCH)
    (row,) = entry.rows
    assert (entry.engine, entry.engine_version) == ("tensorrt-llm", "1.2")
    assert (entry.settings["tp"], entry.settings["ep"]) == (4, 4)
    assert (row.concurrency, row.batch_size, row.output_tps) == (64, 63.6, 4000)
    assert (row.input_len, row.output_len, row.num_requests) == (1024, 1024, 640)
    assert (row.accept_length, entry.unread) == (None, {})
    fewer = parse_one("console", samples.TRTLLM_BENCH.replace("Size: 64", "Size: 2048"))
    assert fewer.rows[0].concurrency == 63.6  # how many were asked is not said


@pytest.mark.parametrize(
    ("old", "new"),
    [("1000.0000\n", "2000.0000\n"), ("63.6000", "6.3600"), ("163840", "16384"), ("640\n", "64\n")],
)
def test_trtllm_bench_that_contradicts_itself(old: str, new: str) -> None:
    entry = parse_one("console", samples.TRTLLM_BENCH.replace(old, new, 1))
    assert (entry.usable, entry.unread_lines) == (False, 1)


def test_aiperf_in_the_console() -> None:
    entry = parse_one("table", samples.AIPERF)
    (row,) = entry.rows
    assert row.accept_length == 4.2  # over rounds; 3.90 is the mean over requests
    assert row.drafted_per_round == approx(5)
    assert entry.settings["num_draft_tokens"] == 6
    assert (row.concurrency, row.output_tps, row.tpot_s) == (8, 758.27, approx(0.01025))
    assert (row.ttft_s, row.num_requests) == (approx(0.1005), 96)
    assert (entry.engine, entry.unread) == (None, {})


def test_aiperf_csv_and_json() -> None:
    (row,) = parse_one("table", samples.AIPERF_CSV).rows
    assert (row.output_tps, row.tpot_s) == (760.27, approx(0.01025))
    assert row.concurrency == approx(2.53 * 3.16525)  # Little's law: requests/s x seconds
    entry = parse_one("bench_json", json.dumps(json_samples.AIPERF_JSON, indent=1))
    (row,) = entry.rows
    assert (row.accept_length, row.drafted_per_round, row.concurrency) == (3, 4, 8)
    assert (entry.settings["model"], entry.settings["num_steps"]) == ("org/m", 4)
    paced = {"phases": [{"name": "profiling", "type": "poisson", "rate": 2.5, "concurrency": None}]}
    (row,) = read_json({**json_samples.AIPERF_JSON, "input_config": paced}).rows
    assert (row.kind, row.request_rate) == ("open_loop", 2.5)
    older = {"model_names": ["org/m"], "perf_analyzer": {"stimulus": {"concurrency": 8}}}
    genai_perf = read_json({**json_samples.AIPERF_JSON, "input_config": older})
    assert (genai_perf.rows[0].concurrency, genai_perf.settings["model"]) == (8, "org/m")


def test_batched_bench() -> None:
    entry = parse_one("table", samples.BATCHED)
    assert [(r.batch_size, r.round_time_s) for r in entry.rows] == [
        (1, approx(5 / 128)),
        (4, approx(0.075)),
    ]
    assert (entry.engine, entry.settings["algorithm"]) == ("llama.cpp", "none")
    assert entry.rows[0].extra["context_len"] == 1024 + 64
    assert [t.seconds for t in entry.timings] == [2, 8]
    wrong = parse("table", samples.BATCHED.replace("53.33", "83.33"))
    assert [len(e.rows) for e in wrong] == [1]


def test_sweep_bench_and_llama_bench() -> None:
    entry = parse_one("table", samples.SWEEP)
    assert [(r.extra["context_len"], r.round_time_s) for r in entry.rows] == [
        (64, approx(1 / 32)),
        (4160, approx(1 / 16)),
    ]
    llama, qwen = parse("table", samples.LLAMA_BENCH)
    assert [r.output_tps for r in llama.rows] == [80, 64]
    assert (llama.timings[0].seconds, qwen.rows[0].output_tps) == (approx(0.16), 50)


def read_json(value: object) -> LogEntry:
    return parse_one("bench_json", json.dumps(value, indent=1))


def test_guidellm() -> None:
    entry = read_json(json_samples.GUIDELLM)
    assert entry.format == "guidellm"
    assert [(r.concurrency, r.output_tps) for r in entry.rows] == [(1, 60.5), (8, 484)]
    row = entry.rows[0]
    # its inter-token latency leaves the first token out, its time per output token does not
    assert (row.tpot_s, row.ttft_s) == (approx(0.01575), approx(0.1505))
    assert (row.input_len, row.output_len, row.num_requests) == (512.5, 256.5, 90)


def test_inference_perf() -> None:
    (row,) = read_json(json_samples.INFERENCE_PERF).rows
    assert (row.kind, row.request_rate, row.output_tps) == ("open_loop", 5.5, 840.5)
    assert (row.tpot_s, row.ttft_s, row.input_len) == (0.0125, 0.125, 500.5)


def test_trtllm_bench_json() -> None:
    entry = read_json(json_samples.TRTLLM_JSON)
    (row,) = entry.rows
    assert (entry.engine_version, entry.settings["tp"]) == ("1.2.0", 2)
    assert (row.concurrency, row.output_tps, row.tpot_s) == (64, 4000.5, approx(0.0155))


def test_inferencex() -> None:
    entry = read_json(json_samples.INFERENCEX)
    (row,) = entry.rows
    assert (entry.engine, entry.settings["algorithm"], entry.settings["tp"]) == ("sglang", "MTP", 8)
    assert (row.concurrency, row.output_tps) == (64, 8 * 400.25)
    assert (row.input_len, row.output_len, row.tpot_s) == (1024, 1024, 0.0185)
    plain = read_json(
        json_samples.INFERENCEX | {"spec_decoding": "none", "framework": "dynamo-trt"}
    )
    assert (plain.settings["algorithm"], plain.engine) == ("none", "tensorrt-llm")


def test_timings_of_llama_server() -> None:
    text = "".join(json.dumps(answer) + "\n" for answer in json_samples.TIMINGS)
    entry = parse_one("bench_json", text)
    (row,) = entry.rows
    # 200 tokens, 120 of them drafts: 80 rounds
    assert (entry.engine, row.accept_length, row.drafted_per_round) == ("llama.cpp", 2.5, 3)
    assert (row.concurrency, row.num_requests) == (1, 2)
    assert (row.output_tps, row.tpot_s) == (approx(200 / 2.5005), approx(2.5005 / 200))
    apart = text.replace('"id_slot": 0', '"id_slot": 1', 1)
    (row,) = parse_one("bench_json", apart).rows
    assert (row.output_tps, row.concurrency) == (None, None)


def test_mtp_bench() -> None:
    (row,) = parse_one("bench_json", json_samples.MTP_BENCH).rows
    assert (row.accept_length, row.drafted_per_round) == (approx(1800 / 800), 1250 / 800)
    assert (row.num_requests, row.output_len, row.output_tps) == (9, 200, None)


def test_meta_info_without_histogram() -> None:
    text = "".join(json.dumps(answer) + "\n" for answer in json_samples.META_INFO)
    entry = parse_one("bench_json", text)
    assert (entry.engine, entry.rows[0].accept_length) == ("sglang", 2.5)
    wrong = json.dumps(
        {"meta_info": json_samples.META_INFO[0]["meta_info"] | {"spec_accept_length": 3.8}}
    )
    assert parse_one("bench_json", wrong).unread_lines == 1


def test_tables_of_people() -> None:
    plain, eagle = parse("table", samples.PEOPLES_TABLE)
    assert plain.label == "Qwen3-32B on 4x H100, baseline"
    assert (plain.settings["algorithm"], eagle.settings["algorithm"]) == ("none", "EAGLE3")
    assert [(r.concurrency, r.output_tps) for r in eagle.rows] == [(1, 130.25), (8, 800.25)]
    assert (eagle.rows[1].accept_length, eagle.rows[1].tpot_s) == (2.85, approx(0.00965))
    plain, eagle = parse("table", samples.BESIDE)
    assert [r.output_tps for r in plain.rows] == [60.25, 420.25]
    assert [r.output_tps for r in eagle.rows] == [130.25, 800.25]
    (entry,) = parse("table", samples.SWEEP_CSV)
    assert [(r.concurrency, r.output_tps) for r in entry.rows] == [(1, 66.25), (8, 400.25)]
    assert [r.tpot_s for r in entry.rows] == approx([0.01495, 0.01895])
    assert entry.engine is None


@pytest.mark.parametrize("speed", ["Total tok/s", "Prompt tok/s", "tok/s/GPU", "p50 tok/s", "qps"])
def test_a_speed_that_is_not_the_output_of_all_is_not_read(speed: str) -> None:
    text = f"| Users | {speed} | TPOT (ms) |\n|--|--|--|\n| 8 | 90.5 | 9 |\n"
    assert [r.output_tps for e in parse("table", text) for r in e.rows] == [None]


def test_a_speed_of_each_client_is_told_from_that_of_all() -> None:
    text = "| Users | tok/s | TPOT (ms) |\n|--|--|--|\n| 8 | 100.5 | 10.0 |\n"
    assert parse_one("table", text).unread == {"speed of one request or all": 1}
    text = "| Users | tok/s/user |\n|--|--|\n| 8 | 100.0 |\n"
    (row,) = parse_one("table", text).rows
    assert (row.output_tps, row.tpot_s) == (None, 0.01)


def test_specforge() -> None:
    plain, chain = parse("bench_json", json.dumps(json_samples.SPECFORGE))
    assert (plain.settings["algorithm"], plain.rows[0].output_tps) == ("none", 300.5)
    (row,) = chain.rows
    assert (chain.settings["num_steps"], chain.settings["num_draft_tokens"]) == (3, 4)
    assert (row.concurrency, row.output_tps, row.accept_length) == (4, 650.5, 2.75)


def test_guidellm_csv() -> None:
    (entry,) = parse("table", samples.GUIDELLM_CSV)
    closed, opened = entry.rows
    assert (closed.concurrency, closed.output_tps, closed.tpot_s) == (8, 484.25, approx(0.01575))
    assert (opened.kind, opened.request_rate, opened.concurrency) == ("open_loop", 2.5, 10.25)
    assert closed.ttft_s == approx(0.15025)  # the mean, not the median
    shifted = samples.GUIDELLM_CSV.replace("\n,,,Mean", "\n,,,,Mean")
    assert not any(entry.rows for entry in parse("table", shifted))


def test_guidellm_in_the_console() -> None:
    """Its heads span columns and stand in three lines; the median is not the mean."""
    (entry,) = parse("table", samples.GUIDELLM_CONSOLE)
    one, eight, paced = entry.rows
    assert (entry.format, entry.unread) == ("guidellm_console", {})
    assert [(r.concurrency, r.output_tps) for r in (one, eight)] == [(1, 75.2), (8, 540.2)]
    assert (paced.kind, paced.request_rate, paced.concurrency) == ("open_loop", 2.5, 9.8)
    medians = samples.GUIDELLM_CONSOLE.replace("Mean", "Mdn ")
    assert not any(e.usable for e in parse("table", medians))


def test_finish_lines_of_sglang() -> None:
    entry = parse_one("sglang_finish", samples.FINISH)
    (row,) = entry.rows
    assert (row.accept_length, row.drafted_per_round, row.num_requests) == (2.5, 3, 3)
    for count in ("1x0", "10}Y0"):
        damaged = samples.FINISH.replace("'spec_verify_ct': 100", f"'spec_verify_ct': {count}", 1)
        assert parse_one("sglang_finish", damaged).unread_lines == 1


def test_tensorrt_llms_copy_of_the_serving_benchmark() -> None:
    entry = parse_one("table", samples.TRTLLM_SERVING)
    (row,) = entry.rows
    assert (entry.engine, row.output_tps, row.accept_length) == (None, 800, 2.4)


def test_summary_of_a_vllm_sweep() -> None:
    (entry,) = parse("table", samples.VLLM_SWEEP)
    assert (entry.settings["model"], entry.label) == ("org/m", "")
    assert [r.concurrency for r in entry.rows] == [1, 8]


def test_grid_of_sglang_jax() -> None:
    (row,) = parse_one("table", samples.JAX_GRID).rows
    assert (row.batch_size, row.output_tps, row.accept_length) == (8, 1600.25, None)


def test_llama_cpps_benchmarks_in_json_and_csv() -> None:
    (row,) = read_json(json_samples.BATCHED_JSON).rows
    assert (row.batch_size, row.round_time_s) == (4, approx(0.075))
    entry = read_json(json_samples.LLAMA_BENCH_JSON)
    assert [(r.output_tps, r.extra["context_len"]) for r in entry.rows] == [
        (80.25, 64),
        (64.25, 4160),
    ]
    assert entry.timings[0].seconds == approx(512 / 3200.5)
    (row,) = parse_one("table", samples.LLAMA_BENCH_CSV).rows
    assert row.output_tps == 80.25


def test_heading_without_marks_and_parts_that_are_loads() -> None:
    def labels(first: str, second: str) -> list[str]:
        two = serving("1"), serving("2")
        return [e.label for e in parse("table", f"{first}\n{two[0]}{second}\n{two[1]}")]

    def serving(clients: str) -> str:
        return samples.serving_table(66.2, **{"Maximum request concurrency": clients})

    assert labels("FP8 on 2 GPUs:", "NVFP4 on 2 GPUs:") == ["FP8 on 2 GPUs", "NVFP4 on 2 GPUs"]
    assert labels("## FP8, concurrency 1", "## FP8, concurrency 2") == ["FP8"]
    assert labels("**FP8**", "=== NVFP4 ===") == ["FP8", "NVFP4"]
    assert labels("Benchmark results:", "4 clients:") == [""]
    assert labels("# source: a page", "# says: more") == [""]


def test_tables_of_people_in_other_words() -> None:
    text = (
        "conc;GPUs;Gen. throughput (tokens/sec);TTFT;Mean ITL\n"
        "4;2 x H100;210.5;0.25 s;9.5\n8;2 x H100;400.5;350 ms;9.75\n4;4 x H100;310.5;0.15 s;6.5\n"
    )
    two, four = parse("table", text)
    assert [r.output_tps for r in two.rows] == [210.5, 400.5]
    assert [r.ttft_s for r in two.rows] == approx([0.25, 0.35])
    assert (two.label, four.label, two.rows[0].itl_s) == ("2 x H100", "4 x H100", None)  # no unit
    text = (
        "| Users | TPS/user | Acceptance length | k |\n|---|---|---|---|\n| 8 | 62.5 | 2.5 | 3 |\n"
    )
    entry = parse_one("table", text)
    assert (entry.rows[0].accept_length, entry.settings["num_draft_tokens"]) == (2.5, 4)


@pytest.mark.parametrize(
    "row",
    ["| 8 | 1,200.5 | 5.5 |", "| 2.5 | 100.5 | 25.5 |", "| 8 | 9O0.5 | 9.5 |", "| x | 90.5 | 9 |"],
)
def test_rows_that_cannot_be_are_not_read(row: str) -> None:
    table = f"| Concurrency | tok/s | TPOT (ms) |\n|--|--|--|\n{row}\n"
    entry = parse_one("table", table)
    assert entry.usable is (row.startswith("| 8 | 1,200"))
    assert entry.unread_lines == (0 if entry.usable else 1)


def test_a_loaded_drafter_that_helps_nothing_is_no_speculation_that_is_off() -> None:
    """SGLang's client prints an accept length only where a drafter is loaded."""
    entry = parse_one("table", results.SERVING_TABLE.replace("2.40", "1.00"))
    assert entry.codes == ("zero_acceptance",)


def test_evalscopes_table_of_loads() -> None:
    entry = parse_one("table", samples.EVALSCOPE_RICH)
    assert [(r.concurrency, r.output_tps) for r in entry.rows] == [(1, 60.25), (8, 430.25)]
    assert [r.num_requests for r in entry.rows] == [20, 80]
