"""Kinds of input that a blind test found misread: each right reading is a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.engine.command import parse_command
from specsim.errors import FormatError
from specsim.logs import LogEntry, read_file
from specsim.logs.read import require_usable


def read(tmp_path: Path, text: str) -> list[LogEntry]:
    path = tmp_path / "input"
    path.write_text(text)
    entries = read_file(path)
    require_usable(entries)
    return entries


TIMINGS = """slot print_timing: id  0 | task 7 |
prompt eval time =     200.00 ms /    20 tokens (   10.00 ms per token,   100.00 tokens per second)
       eval time =    4000.00 ms /   100 tokens (   40.00 ms per token,    25.00 tokens per second)
      total time =    4200.00 ms /   120 tokens
draft acceptance rate = 0.75000 (   60 accepted /    80 generated)
"""


def test_a_log_whose_lines_name_its_program_is_no_launch_command(tmp_path: Path) -> None:
    journal = "".join(
        f"Jan 02 03:04:05 host llama-server[12]: {line}\n" for line in TIMINGS.splitlines() * 2
    )
    (entry,) = read(tmp_path, journal)
    assert (entry.format, entry.rows[0].output_tps) == ("llamacpp", 25)
    started = "INFO 01-02 03:04:05 [api_server.py:18] vLLM API server version 0.24.0\n"
    with pytest.raises(FormatError, match="vllm_log"):
        read(tmp_path, started)
    with pytest.raises(FormatError, match="no command"):
        read(tmp_path, "Jan 02 03:04:05 host llama-server[12]: stopped\n")


@pytest.mark.parametrize("quantiles", [(10, 50), (1, 5, 50), (25, 50, 99)])
def test_percentiles_are_no_accept_lengths(tmp_path: Path, quantiles: tuple[int, ...]) -> None:
    record = {"avg_latency": 3.1, "percentiles": {str(q): 2.5 for q in quantiles}}
    for indent in (None, 4):
        with pytest.raises(FormatError):
            read(tmp_path, json.dumps(record, indent=indent) + "\n")


SERVED = {
    "backend": "sglang",
    "duration": 100.0,
    "completed": 150,
    "total_input_tokens": 150_000,
    "total_output_tokens": 60_000,
    "output_throughput": 600.0,
    "max_concurrency": None,
    "concurrency": 12.5,
    "mean_ttft_ms": 200.0,
    "mean_itl_ms": 20.0,
}


@pytest.mark.parametrize(("rate", "clients"), [("trace", 12.5), (float("inf"), 150)])
def test_a_trace_is_not_sent_at_once(tmp_path: Path, rate: Any, clients: float) -> None:
    (entry,) = read(tmp_path, json.dumps({**SERVED, "request_rate": rate}) + "\n")
    assert (entry.rows[0].concurrency, entry.rows[0].request_rate) == (clients, None)


def test_one_batch_without_speculation(tmp_path: Path) -> None:
    record = {"batch_size": 4, "input_len": 100, "output_len": 50, "latency": 1.1}
    record |= {"output_throughput": 200.0, "last_ttft": 0.1, "acc_length": -1}
    (entry,) = read(tmp_path, json.dumps(record) + "\n")
    assert (entry.rows[0].output_tps, entry.rows[0].accept_length) == (200, None)
    assert not entry.unread


@pytest.mark.parametrize(
    ("command", "key", "value"),
    [
        ("vllm serve org/m --max-num-seqs 4 > log 2>&1 &", "max_running_requests", 4),
        ("vllm serve org/m --max-num-seqs 4 2> log", "max_running_requests", 4),
        ("trtllm-serve org/m --tp_size 2 --extra_llm_api_options x.yaml", "algorithm", None),
        ("vllm serve org/m --config x.yaml", "algorithm", None),
        ("vllm serve org/m", "algorithm", "none"),
    ],
)
def test_what_a_command_says(command: str, key: str, value: object) -> None:
    launch = parse_command(command)
    assert launch is not None
    assert launch.settings.get(key) == value


LOADS = [(1, 92.7), (16, 1234.5)]


@pytest.mark.parametrize(
    "text",
    [
        "| clients | tok/s |\n|---|---|\n| 1 | 92,7 |\n| 16 | 1.234,5 |\n",
        "clients;tok/s\n1;92,7\n16;1234,5\n",
        "| clients | tok/s |\n|---|---|\n| 1 | 92,7 |\n| 16 | 1 234,5 |\n",
        "| clients | tok/s |\n|---|---|\n| 1 | 92.7 |\n| 16 | 1'234.5 |\n",
        "| clients | tok/s (total) |\n|---|---|\n| 1 | **92.7** (±0.3) |\n| 16 | 1,234.5 (±2) |\n",
        "| 并发数 | 吞吐 (tok/s) |\n|---|---|\n| 1 | 92.7 |\n| 16 | 1234.5 |\n",
        "concurrency   tok/s\n-----------   ------\n1               92.7\n16            1234.5\n",
        "   concurrency   tok/s\n0            1    92.7\n1           16  1234.5\n",
        "===========  ======\nconcurrency  tok/s\n===========  ======\n1            92.7\n"
        "16           1234.5\n===========  ======\n",
        "| | c=1 | c=16 |\n|---|---|---|\n| throughput (tok/s) | 92.7 | 1234.5 |\n",
        "| Metric | A | B |\n|---|---|---|\n| Output token throughput (tok/s) | 92.7 | 1234.5 |\n"
        "| Concurrency | 1 | 16 |\n",
        "| | tok/s | Note |\n|---|---|---|\n| 1 client | 92.7 | |\n| 16 clients | 1234.5 | |\n",
        "concurrency,output_tok_s\n1,92.7\n16,1234.5\n",
    ],
)
def test_tables_of_people(tmp_path: Path, text: str) -> None:
    rows = [row for entry in read(tmp_path, text) for row in entry.rows]
    assert [(row.concurrency, row.output_tps) for row in rows] == LOADS


def test_figures_in_rows_and_servers_in_columns(tmp_path: Path) -> None:
    text = (
        "| Metric | Baseline | EAGLE3 |\n|---|---|---|\n| Concurrency | 8 | 8 |\n"
        "| Output token throughput (tok/s) | 400.1 | 600.2 |\n| Mean TPOT (ms) | 18.0 | 12.0 |\n"
        "| Accept length | - | 2.7 |\n"
    )
    plain, drafting = read(tmp_path, text)
    assert (plain.settings["algorithm"], plain.rows[0].accept_length) == ("none", None)
    assert (drafting.settings["algorithm"], drafting.rows[0].accept_length) == ("EAGLE3", 2.7)
    assert (drafting.rows[0].tpot_s, drafting.rows[0].output_tps) == (pytest.approx(0.012), 600.2)


def test_a_speed_that_falls_with_clients_is_of_one_of_them(tmp_path: Path) -> None:
    text = "| users | TPS |\n|---|---|\n| 1 | 92.7 |\n| 4 | 90 |\n| 16 | 50 |\n"
    (entry,) = read(tmp_path, text)
    assert [row.concurrency for row in entry.rows] == [1]
    assert entry.unread == {"speed of one request or all": 2}


@pytest.mark.parametrize(
    ("head", "algorithm"), [("cuda graph", None), ("prefix cache", None), ("speculation", "none")]
)
def test_what_is_off(tmp_path: Path, head: str, algorithm: str | None) -> None:
    text = f"| {head} | clients | tok/s |\n|---|---|---|\n| off | 1 | 90 |\n| on | 1 | 99 |\n"
    off, on = read(tmp_path, text)
    assert (off.settings.get("algorithm"), on.settings.get("algorithm")) == (algorithm, None)


def result(dur: float, n: int, out: int, title: str = "Serving", more: str = "") -> str:
    lines = {
        "Backend:": "engine" if more else "sglang",
        "Max request concurrency:": 4,
        "Successful requests:": n,
        "Benchmark duration (s):": f"{dur:.2f}",
        "Total generated tokens:": out,
        "Request throughput (req/s):": f"{n / dur:.2f}",
        "Output token throughput (tok/s):": f"{out / dur:.2f}",
    }
    body = "".join(f"{name:<40} {value}\n" for name, value in lines.items())
    return f"============ {title} Benchmark Result ============\n{body}{'=' * 50}\n"


def test_a_slow_rate_has_few_digits(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, "## EAGLE3\n" + result(140.0, 40, 20480))
    assert (entry.rows[0].output_tps, entry.label, entry.unread) == (146.29, "EAGLE3", {})


def test_offline_throughput_in_the_console(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, result(80.0, 1000, 256_000, "Offline Throughput", "engine"))
    assert (entry.format, entry.rows[0].output_tps) == ("sglang_bench_offline", 3200)


STARTED = "[2026-01-02 03:04:00] server_args=ServerArgs(speculative_algorithm=None, tp_size=1)\n"


def windows(minute: int) -> str:
    return "".join(
        f"[2026-01-02 03:{minute:02d}:{4 * i:02d} TP0] Decode batch, #running-req: 8, #token: {i}, "
        "token usage: 0.10, cuda graph: True, gen throughput (token/s): 400.00, #queue-req: 0\n"
        for i in range(6)
    )


@pytest.mark.parametrize("between", ["", "Traceback (most recent call last):\n  boom\n"])
def test_a_server_that_was_started_again(tmp_path: Path, between: str) -> None:
    entries = read(tmp_path, STARTED + windows(5) + between + STARTED + windows(9))
    assert [(e.rows[0].accept_length, e.label) for e in entries] == [(1, ""), (1, "")]


def test_log_lines_in_a_table(tmp_path: Path) -> None:
    text = "".join(f"| {line} |\n" for line in windows(5).splitlines())
    assert read(tmp_path, text)[0].rows[0].output_tps == pytest.approx(400)


def test_transfers_in_a_throughput_line_of_vllm(tmp_path: Path) -> None:
    text = "".join(
        f"INFO 01-02 03:04:{i}0 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 80.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, KV fetch: 1 "
        "waiting to start, 0 in progress, 1 completed waiting, GPU KV cache usage: 2.1%, Prefix "
        "cache hit rate: 0.0%\n"
        for i in range(5)
    )
    (entry,) = read(tmp_path, text)
    assert (entry.rows[0].output_tps, entry.unread) == (80, {})
