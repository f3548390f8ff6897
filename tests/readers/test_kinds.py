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
