"""Kinds of input that a blind test found misread: each right reading is a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parsing import read

from specsim.engine.command import parse_command
from specsim.errors import FormatError

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


def vllm_window(second: int, tps: float, length: float | None = None, pid: str = "") -> list[str]:
    head = f"{pid}INFO 01-02 03:04:{second:02d} "
    lines = [
        f"{head}[loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
        f"throughput: {tps:.1f} tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: "
        "2.1%, Prefix cache hit rate: 0.0%\n"
    ]
    if length:
        rounds = round(10 * tps / length)
        accepted = round(rounds * (length - 1))
        lines.append(
            f"{head}[metrics.py:101] SpecDecoding metrics: Mean acceptance length: {length:.2f}, "
            f"Accepted throughput: {accepted / 10:.2f} tokens/s, Drafted throughput: "
            f"{rounds / 5:.2f} tokens/s, Accepted: {accepted} tokens, Drafted: {2 * rounds} tokens,"
            f" Per-position acceptance rate: {0.5 * (length - 1):.3f}, {0.5 * (length - 1):.3f}, "
            f"Avg Draft acceptance rate: {50 * (length - 1):.1f}%\n"
        )
    return lines


@pytest.mark.parametrize(
    "margin", ["{}-1  | ", "\x1b[36m{}-1 | \x1b[0m", "[pod/{}-1/server] "], ids=repr
)
def test_services_that_stand_in_one_another(tmp_path: Path, margin: str) -> None:
    spec, base = margin.format("spec"), margin.format("base")
    text = "".join(
        "".join(spec + line for line in vllm_window(10 * i, 80.0, 1.6))
        + "".join(base + line for line in vllm_window(10 * i, 50.0))
        for i in range(5)
    )
    drafting, plain = read(tmp_path, text)
    assert (drafting.rows[0].output_tps, drafting.rows[0].accept_length) == (80, 1.6)
    assert (plain.rows[0].output_tps, plain.rows[0].accept_length) == (50, None)
    assert ("spec-1" in drafting.label, "base-1" in plain.label) == (True, True)


def test_services_without_a_measurement(tmp_path: Path) -> None:
    text = f"a-1 | {STARTED}b-1 | GET /\n" * 4
    with pytest.raises(FormatError, match="service"):
        read(tmp_path, text)


@pytest.mark.parametrize("margin", ["> ", ">> ", "> > "])
def test_quoted_results(tmp_path: Path, margin: str) -> None:
    for text in ("| clients | tok/s |\n|---|---|\n| 1 | 92.7 |\n", result(80.0, 40, 7416)):
        quoted = "".join(f"{margin}{line}\n" for line in text.splitlines())
        assert read(tmp_path, quoted)[0].rows[0].output_tps == pytest.approx(92.7)


@pytest.mark.parametrize(
    ("arguments", "lines", "steps"),
    [
        ("'tensor_parallel_size': 2", None, 0),
        ("'speculative_config': {}", None, None),
        ("'tensor_parallel_size': 2", 1.6, 2),
    ],
)
def test_arguments_of_vllm_without_speculation(
    tmp_path: Path, arguments: str, lines: float | None, steps: int | None
) -> None:
    text = f"INFO 01-02 03:00:00 [utils.py:2] non-default args: {{'model': 'm', {arguments}}}\n"
    text += "".join("".join(vllm_window(10 * i, 80.0, lines)) for i in range(5))
    (entry,) = read(tmp_path, text)
    assert entry.settings.get("num_steps") == steps
    assert entry.rows[0].accept_length == (lines or (1 if steps == 0 else None))


def scrape(model: str, rounds: int, accepted: int, pod: str = "") -> str:
    labels = f'engine="0",model_name="{model}"' + (f',pod="{pod}"' if pod else "")
    names = {"num_drafts": rounds, "num_draft_tokens": 2 * rounds, "num_accepted_tokens": accepted}
    return "".join(f"vllm:spec_decode_{k}_total{{{labels}}} {v}\n" for k, v in names.items())


def test_metrics_of_two_servers(tmp_path: Path) -> None:
    one, other = read(tmp_path, scrape("a", 100, 150) + scrape("b", 50, 25))
    assert (one.rows[0].accept_length, other.rows[0].accept_length) == (2.5, 1.5)
    assert (one.settings["model"], other.settings["model"]) == ("a", "b")
    (both,) = read(tmp_path, scrape("a", 100, 150, "x") + scrape("a", 300, 150, "y"))
    assert both.rows[0].accept_length == 1.75


def test_metrics_of_a_prefill_server_are_none_of_decoding(tmp_path: Path) -> None:
    text = "".join(
        f'sglang:{name}{{model_name="a",engine_type="{role}"}} {value}\n'
        for role, running, tps in (("decode", 16, 3200.0), ("prefill", 4, 0.0))
        for name, value in (("num_running_reqs", running), ("gen_throughput", tps))
    )
    (entry,) = read(tmp_path, text)
    assert (entry.rows[0].batch_size, entry.rows[0].output_tps) == (16, 3200)


def test_llama_bench_as_sql(tmp_path: Path) -> None:
    row = (
        "INSERT INTO llama_bench (model_type, n_prompt, n_gen, n_depth, avg_ts, stddev_ts) "
        "VALUES ('llama 8B', '0', '128', '0', '{}', '0.5');\n"
    )
    (entry,) = read(tmp_path, "CREATE TABLE IF NOT EXISTS llama_bench (\n);\n\n" + row.format(50.0))
    assert (entry.rows[0].output_tps, entry.settings["model"]) == (50, "llama 8B")


def test_one_batch_of_a_process(tmp_path: Path) -> None:
    record = {"batch_size": 8, "input_len": 100, "output_len": 50, "median_decode_latency": 0.02}
    (entry,) = read(tmp_path, json.dumps(record | {"median_decode_throughput": 400.0}) + "\n")
    (row,) = entry.rows
    assert (row.output_tps, row.round_time_s, row.accept_length) == (400, 0.02, 1)
    assert entry.settings["algorithm"] == "none"


def test_summary_of_evalscope(tmp_path: Path) -> None:
    said = {
        "Time taken for tests (s)": 100.0,
        "Number of concurrency": 4,
        "Succeed requests": 40,
        "Output token throughput (tok/s)": 200.0,
        "Average output tokens per request": 500.0,
        "Average decoded tokens per iter": 2.4,
    }
    table = "".join(f"| {name:<36} | {value:>9} |\n" for name, value in said.items())
    header = f"| {'Key':<36} | {'Value':>9} |\n|{'=' * 38}|{'=' * 11}|\n"
    for text in (json.dumps(said, indent=4), header + table):
        (row,) = read(tmp_path, text + "\n")[0].rows
        assert (row.concurrency, row.output_tps, row.accept_length) == (4, 200, 2.4)


def test_a_trace_that_is_a_bare_list(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "user_annotation", "name": "step[TARGET_VERIFY bs=8]"}
    events = [event | {"pid": 1, "tid": 1, "ts": 2e4 * i, "dur": 15e3} for i in range(9)]
    (entry,) = read(tmp_path, json.dumps(events))
    assert [(t.phase, t.batch_size, t.count) for t in entry.timings] == [("verify", 8, 9)]


def test_seconds_in_which_a_server_waits_are_no_host_time(tmp_path: Path) -> None:
    def line(i: int, each: int) -> str:
        return (
            f"INFO 01-02 03:04:{i // each:02d} [loggers.py:300] Iteration({i}): 0 context requests,"
            " 0 context tokens, 8 generation requests, 32 generation tokens, iteration elapsed "
            "time: 20.00 ms, GPU KV cache usage: 10.0%\n"
        )

    (entry,) = read(tmp_path, "".join(line(i, 40) for i in range(400)))
    assert entry.rows[0].round_time_s == pytest.approx(0.025)
    with pytest.raises(FormatError, match="too few"):
        read(tmp_path, "".join(line(i, 2) for i in range(40)))
