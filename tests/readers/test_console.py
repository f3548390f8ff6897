"""What programs print in sentences: benchmarks of one batch, and chats with one model."""

from __future__ import annotations

import console_samples as samples
import pytest
from parsing import parse, parse_one

from specsim.logs.unread import CONTRADICTION, MISSING

approx = pytest.approx


def test_one_batch_of_sglang() -> None:
    """The warm-up is no measurement."""
    entry = parse_one("console", samples.ONE_BATCH)
    assert (entry.engine, entry.settings["algorithm"]) == ("sglang", "none")
    said = [(r.batch_size, r.output_tps, r.round_time_s, r.ttft_s, r.input_len) for r in entry.rows]
    assert said == [(8, 1001.25, 0.00799, 0.51, 1024), (16, 1777.78, 0.009, 1.02, 1024)]
    assert not entry.unread


def test_one_batch_that_contradicts_itself() -> None:
    text = samples.ONE_BATCH.replace("0.00900 s", "0.00800 s")
    assert parse_one("console", text).unread == {CONTRADICTION: 1}


def test_a_run_without_its_end_lends_nothing_to_the_next() -> None:
    """Its prefill is of 8 requests, not of the 16 that come after it."""
    broken = samples.ONE_BATCH.replace("Decode.  median latency: 0.00799", "Decode.  xx: 0.00799")
    row = parse_one("console", broken).rows[0]
    assert (row.batch_size, row.ttft_s, row.input_len) == (16, 1.02, 1024)
    later = broken.replace("Prefill. latency: 1.02000", "Prefill. xx: 1.02000")
    row = parse_one("console", later).rows[0]
    assert (row.batch_size, row.ttft_s, row.input_len) == (16, None, None)


def test_latency_of_vllm() -> None:
    """Batch, lengths and speculation stand in the command; the prompt is part of the time."""
    entry = parse_one("console", samples.LATENCY)
    assert entry.engine == "vllm"
    said = {"algorithm": "NGRAM", "num_steps": 4, "tp": 2, "model": "org/m"}
    assert said.items() <= entry.settings.items()
    (row,) = entry.rows
    assert (row.concurrency, row.input_len, row.output_len) == (8, 512, 256)
    assert row.output_tps == approx(8 * 256 / 2.0481734012)
    assert row.kind == "closed_loop"


def test_latency_without_its_command() -> None:
    entry = parse_one("console", samples.LATENCY.partition("Warming")[2])
    assert (entry.rows, entry.unread) == ((), {MISSING: 1})


@pytest.mark.parametrize(
    ("text", "tps", "engine"),
    [
        (samples.LLAMA_CLI, 41.7, "llama.cpp"),
        (samples.OLLAMA, 68.85, None),
    ],
)
def test_a_chat_is_one_request(text: str, tps: float, engine: str | None) -> None:
    """Whether it drafts nobody says."""
    entry = parse_one("console", text)
    (row,) = entry.rows
    assert (row.concurrency, row.output_tps, entry.engine) == (1, tps, engine)
    assert "algorithm" not in entry.settings


def test_what_a_chat_says_of_its_prompt() -> None:
    row = parse_one("console", samples.OLLAMA).rows[0]
    assert (row.input_len, row.output_len, row.ttft_s) == (26, 298, approx(0.130079))


@pytest.mark.parametrize("old", [False, True])
def test_llama_clis_timings(old: bool) -> None:
    text = samples.LLAMA_PERF
    entry = parse_one(
        "llamacpp", text.replace("perf_context_print", "print_timings") if old else text
    )
    (row,) = entry.rows
    assert (row.concurrency, row.output_tps, row.output_len) == (1, 40.0, 256)
    assert "algorithm" not in entry.settings


def test_a_line_of_ollama_that_broke_is_no_rate_of_answers() -> None:
    text = samples.OLLAMA.replace("prompt eval rate:", "prompt\neval rate:")
    (row,) = parse_one("console", text).rows
    assert (row.output_tps, row.output_len) == (68.85, 298)


def test_the_line_under_an_answer_of_lm_studio() -> None:
    """The share of drafts is no accept length: how many rounds there were, it does not say."""
    rows = [row for e in parse("console", samples.LM_STUDIO_LINE) for row in e.rows]
    said = [(r.concurrency, r.output_tps, r.output_len, r.ttft_s, r.accept_length) for r in rows]
    assert said == [(1, 82.31, 512, 0.31, None), (1, 95.02, 498, 0.33, None)]
    assert (rows[0].accept_rate, rows[1].accept_rate) == (None, 301 / 412)


@pytest.mark.parametrize("line", ["82.3 tok/sec • 512 token", "82.3 tok/sec", "82.3 tok/sec • 51"])
def test_a_cut_line_of_lm_studio(line: str) -> None:
    assert not parse_one("console", line).rows
