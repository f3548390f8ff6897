"""Results of benchmark programs: what each says, in the same row of figures."""

from __future__ import annotations

import json

import benchmark_samples as samples
import pytest
from parsing import parse, parse_one

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
    entry = parse_one("vllm_offline", samples.OFFLINE)
    (row,) = entry.rows
    # 10000 tokens less 4000 accepted are 6000 rounds; 2000 of them had a draft, of 3 tokens
    assert row.accept_length == approx(10 / 6)
    assert row.drafted_per_round == approx(1)
    assert row.survival == (0.9, 0.6, 0.3, 0.2)
    assert (row.concurrency, row.num_requests, row.output_tps) == (50, 50, 1250)
    assert (row.input_len, row.output_len, row.duration_s) == approx((80, 200, 8))
    assert (entry.settings["algorithm"], entry.settings["num_steps"]) == ("NGRAM", 4)
    assert "2000 of 6000 rounds" in entry.diagnoses[0].message
    unknown = parse_one("vllm_offline", samples.OFFLINE.replace("total_num", "total"))
    assert unknown.rows[0].accept_length is None


def test_offline_example_of_a_drafter_that_always_drafts() -> None:
    text = samples.OFFLINE.replace("10000", "6040")  # 50 prompts gave a token each
    (row,) = parse_one("vllm_offline", text).rows
    assert (row.accept_length, row.drafted_per_round) == (3, 3)


def test_vllm_bench_throughput() -> None:
    (row,) = parse_one("vllm_offline", samples.BENCH_THROUGHPUT).rows
    assert (row.output_tps, row.accept_length, row.concurrency) == (1700, None, None)


def test_trtllm_bench() -> None:
    entry = parse_one("trtllm_bench", samples.TRTLLM_BENCH)
    (row,) = entry.rows
    assert (entry.engine, entry.engine_version) == ("tensorrt-llm", "1.2")
    assert (entry.settings["tp"], entry.settings["ep"]) == (4, 4)
    assert (row.concurrency, row.batch_size, row.output_tps) == (64, 63.6, 4000)
    assert (row.input_len, row.output_len, row.num_requests) == (1024, 1024, 640)
    assert (row.accept_length, row.extra["e2e_s"]) == (None, approx(16.2816))
    assert entry.unread == {}
    fewer = parse_one("trtllm_bench", samples.TRTLLM_BENCH.replace("Size: 64", "Size: 2048"))
    assert fewer.rows[0].concurrency == 63.6  # how many were asked is not said


@pytest.mark.parametrize(
    ("old", "new"),
    [("1000.0000\n", "2000.0000\n"), ("63.6000", "6.3600"), ("163840", "16384"), ("640\n", "64\n")],
)
def test_trtllm_bench_that_contradicts_itself(old: str, new: str) -> None:
    entry = parse_one("trtllm_bench", samples.TRTLLM_BENCH.replace(old, new, 1))
    assert (entry.usable, entry.unread_lines) == (False, 1)


def test_aiperf_in_the_console() -> None:
    entry = parse_one("aiperf", samples.AIPERF)
    (row,) = entry.rows
    assert row.accept_length == 4.2  # over rounds; 3.90 is the mean over requests
    assert row.drafted_per_round == approx(5)
    assert entry.settings["num_draft_tokens"] == 6
    assert (row.concurrency, row.output_tps, row.tpot_s) == (8, 758.27, approx(0.01025))
    assert (row.ttft_s, row.num_requests) == (approx(0.1005), 96)
    assert (entry.engine, entry.unread) == (None, {})


def test_aiperf_csv_and_json() -> None:
    (row,) = parse_one("aiperf", samples.AIPERF_CSV).rows
    assert (row.output_tps, row.tpot_s) == (760.27, approx(0.01025))
    assert row.concurrency == approx(2.53 * 3.16525)  # Little's law: requests/s x seconds
    entry = parse_one("aiperf", json.dumps(samples.AIPERF_JSON, indent=1))
    (row,) = entry.rows
    assert (row.accept_length, row.drafted_per_round, row.concurrency) == (3, 4, 8)
    assert (entry.settings["model"], entry.settings["num_steps"]) == ("org/m", 4)


def test_batched_bench() -> None:
    entry = parse_one("llama_bench", samples.BATCHED)
    assert [(r.batch_size, r.round_time_s) for r in entry.rows] == [
        (1, approx(5 / 128)),
        (4, approx(0.075)),
    ]
    assert (entry.engine, entry.settings["algorithm"]) == ("llama.cpp", "none")
    assert entry.rows[0].extra["context_len"] == 1024 + 64
    assert [t.seconds for t in entry.timings] == [2, 8]
    wrong = parse("llama_bench", samples.BATCHED.replace("53.33", "83.33"))
    assert [len(e.rows) for e in wrong] == [1]


def test_sweep_bench_and_llama_bench() -> None:
    entry = parse_one("llama_bench", samples.SWEEP)
    assert [(r.extra["context_len"], r.round_time_s) for r in entry.rows] == [
        (64, approx(1 / 32)),
        (4160, approx(1 / 16)),
    ]
    llama, qwen = parse("llama_bench", samples.LLAMA_BENCH)
    assert [r.output_tps for r in llama.rows] == [80, 64]
    assert (llama.timings[0].seconds, qwen.rows[0].output_tps) == (approx(0.16), 50)


def test_prometheus_of_llama_server() -> None:
    entry = parse_one("prometheus", samples.LLAMA_PROM)
    (row,) = entry.rows
    assert (entry.engine, entry.settings["num_steps"]) == ("llama.cpp", 3)
    assert row.accept_length == approx(1 + 5900 / 3600)
    assert row.survival == approx((0.75, 19 / 36, 13 / 36))
    assert (row.batch_size, row.tpot_s) == (1, approx(190.5 / 9500))
    busier = "llamacpp:n_busy_slots_per_decode 2.5\n"
    assert row.output_tps == approx(9500 / 190.5)
    assert parse_one("prometheus", samples.LLAMA_PROM + busier).rows[0].output_tps is None


def test_prometheus_of_tensorrt_llm() -> None:
    entry = parse_one("prometheus", samples.TRTLLM_PROM)
    (row,) = entry.rows
    assert (entry.engine, row.accept_length, row.batch_size) == ("tensorrt-llm", 2.5, 12)
    assert row.tpot_s == approx(40.5 / 4000)
