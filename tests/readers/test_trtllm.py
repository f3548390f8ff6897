"""Iterations of TensorRT-LLM, in its log and in its statistics."""

from __future__ import annotations

import json
import re

import json_samples
import pytest
import result_samples as results
from parsing import parse, parse_one

approx = pytest.approx


def test_trtllm_iteration_log() -> None:
    entry = parse_one("trtllm_log", results.TRT_LOG)
    (row,) = entry.rows
    # 9 requests; num_generation_tokens is 16 because CUDA graphs are padded.
    assert (row.batch_size, row.round_time_s, row.windows) == (9, approx(0.006), 5)
    assert row.kv_usage == approx(0.125)
    assert row.output_tps is None  # tokens per request and round are not in this log


def test_trtllm_old_line_has_no_batch() -> None:
    old, new = parse("trtllm_log", results.TRT_OLD)
    assert (old.rows[0].batch_size, old.rows[0].round_time_s) == (None, approx(0.004))
    assert (new.rows[0].batch_size, new.rows[0].round_time_s) == (7, approx(0.004))


def test_trtllm_prefill_and_ranks() -> None:
    prefill = results.TRT_LOG.replace("'num_ctx_requests': 0", "'num_ctx_requests': 2", 1)
    entry = parse_one("trtllm_log", prefill)
    assert entry.windows.dropped == {"prefill": 1}
    log = results.TRT_LOG.splitlines(keepends=True)
    double = "".join(line + line.replace("rank = 0", "rank = 1") for line in log)
    entry = parse_one("trtllm_log", double)
    assert entry.windows.dropped == {"duplicate_rank": 5}
    assert entry.rows[0].windows == 5


def test_trtllm_statistics() -> None:
    damaged = {"kvCacheStats": results.TRT_RECORD["kvCacheStats"] | {"maxNumBlocks": 9}}
    again = [results.TRT_RECORD, results.TRT_RECORD | damaged, results.TRT_RECORD]
    assert parse("trtllm_stats", results.json_lines(*again))[0].settings["kv_tokens"] == 32_000
    entry = parse_one("trtllm_stats", results.json_lines(*[results.TRT_RECORD] * 3))
    (row,) = entry.rows
    assert (row.batch_size, row.round_time_s, row.queue) == (16, approx(0.008), 2)
    assert (row.output_tps, row.accept_length) == (approx(2000), 1)
    assert entry.settings["algorithm"] == "none"


def test_trtllm_prompts_that_ran_alone() -> None:
    """Five or more of them; those in a batch with others stay dropped and uncounted."""
    alone = {"numContextRequests": 1, "numCtxTokens": 800, "numGenRequests": 0}
    record = results.TRT_RECORD | {"inflightBatchingStats": alone, "iterLatencyMS": 30.0}
    joined = results.TRT_RECORD | {"inflightBatchingStats": alone | {"numGenRequests": 3}}
    few, many = (
        parse("trtllm_stats", results.json_lines(results.TRT_RECORD, joined, *[record] * n))[0]
        for n in (4, 5)
    )
    assert few.timings == ()
    (timing,) = many.timings
    assert (timing.phase, timing.count, timing.prompt_tokens) == ("prefill", 5, 800.0)
    assert timing.seconds == approx(0.03)
    assert many.windows.dropped == {"prefill": 6}
    log = results.TRT_LOG.splitlines(keepends=True)[0]
    step = log.replace("'num_ctx_requests': 0", "'num_ctx_requests': 1")
    step = re.sub(r"'num_generation_tokens': \d+", "'num_generation_tokens': 0", step)
    step = re.sub(r"'num_ctx_tokens': \d+", "'num_ctx_tokens': 640", step)
    again = [re.sub(r"iter = \d+", f"iter = {i}", step, count=1) for i in range(1, 7)]
    entry = parse_one("trtllm_log", "".join(again))
    assert [t.prompt_tokens for t in entry.timings] == [640.0]
    for wrong in (("'num_generation_tokens': 0", "'num_generation_tokens': 3"),
                  ("'num_ctx_requests': 1", "'num_ctx_requests': 2")):  # fmt: skip
        entry = parse_one("trtllm_log", "".join(line.replace(*wrong) for line in again))
        assert entry.timings == ()


def test_trtllm_statistics_with_drafts() -> None:
    stats = {"numDraftTokens": 48, "numAcceptedTokens": 24, "numRequestsWithDraftTokens": 16}
    record = {**results.TRT_RECORD, "specDecodingStats": stats}
    entry = parse_one("trtllm_stats", results.json_lines(record))
    assert (entry.rows[0].accept_length, entry.rows[0].output_tps) == (2.5, approx(5000))


def test_iterations_of_data_parallel_attention_are_summed() -> None:
    text = "".join(json.dumps(record) + "\n" for record in json_samples.DP_RANKS)
    entry = parse_one("trtllm_stats", text)
    (row,) = entry.rows
    assert (row.batch_size, row.round_time_s, row.windows) == (13, approx(0.009), 3)
    assert row.accept_length == 1 + 18 / 12
    assert entry.settings["kv_tokens"] == 64_000
    lost = parse_one("trtllm_stats", text[: text.rindex('{"iter"')])
    assert (lost.rows[0].windows, lost.unread) == (2, {"ranks are missing": 1})
