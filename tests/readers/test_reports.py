"""What people paste when something is wrong: the right reading of each kind of report."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from parsing import document_of, parse_one

from specsim.logs import LogEntry

approx = pytest.approx


def decode(
    running: int,
    tps: float,
    accept: float | None,
    at: int = 0,
    rate: float | None = None,
    queue: int = 0,
    usage: float = 0.3,
    graph: str = "cuda graph: True, ",
    step_s: int = 4,
) -> str:
    """A decode line of SGLang 0.5.11 and later with 4 draft tokens, unless the rate says others."""
    rate = (accept - 1) / 3 if rate is None and accept else rate
    drafted = f"accept len: {accept:.2f}, accept rate: {rate:.2f}, " if accept else ""
    return (
        f"[2026-03-04 {5 + at * step_s // 3600:02d}:{at * step_s // 60 % 60:02d}:"
        f"{at * step_s % 60:02d} TP0] Decode batch, #running-req: {running}, #token: {900 + at}, "
        f"token usage: {usage:.2f}, {drafted}{graph}gen throughput (token/s): {tps:.2f}, "
        f"#queue-req: {queue}\n"
    )


def sglang(text: str) -> LogEntry:
    return parse_one("sglang_log", text)


def vllm_window(
    tps: float,
    accept: float | None,
    prompt: float = 0.0,
    running: int = 2,
    at: int = 0,
    engine: int = 0,
    tail: str = "",
    rates: Sequence[float] | None = None,
    tokens: float | None = None,
) -> str:
    """A throughput line and its drafting line, of 10 s, whose numbers agree; k = 3."""
    head = f"(APIServer pid=9) INFO 03-04 05:{at // 6:02d}:{at % 6}0 "
    text = (
        f"{head}[loggers.py:271] Engine {engine:03d}: Avg prompt throughput: {prompt:.1f} tokens/s,"
        f" Avg generation throughput: {tps:.1f} tokens/s, Running: {running} reqs, "
        f"Waiting: 0 reqs, GPU KV cache usage: 2.1%, Prefix cache hit rate: 0.0%{tail}\n"
    )
    if accept is None:
        return text
    emitted = 10 * tps if tokens is None else tokens
    rounds = emitted / accept
    rates = rates or [(accept - 1) / 3 * f for f in (1.2, 1.0, 0.8)]
    accepted = round(rounds * sum(rates))
    return text + (
        f"{head}[metrics.py:101] SpecDecoding metrics: Mean acceptance length: "
        f"{1 + accepted / rounds:.2f}, Accepted throughput: {accepted / 10:.2f} tokens/s, Drafted "
        f"throughput: {0.3 * rounds:.2f} tokens/s, Accepted: {accepted} tokens, Drafted: "
        f"{round(3 * rounds)} tokens, Per-position acceptance rate: "
        f"{', '.join(f'{r:.3f}' for r in rates)}, Avg Draft acceptance rate: "
        f"{100 * accepted / (3 * rounds):.1f}%\n"
    )


def vllm(text: str) -> LogEntry:
    return parse_one("vllm_log", text)


# --- every number of a row is of the same windows


@pytest.mark.parametrize("order", [1, -1])
def test_acceptance_is_that_of_the_windows_of_the_throughput(order: int) -> None:
    pure = [vllm_window(120.0, 2.0, at=i) for i in range(3)]
    filling = [vllm_window(90.0, 3.1, prompt=700.0, at=i) for i in range(3, 9)]
    text = "".join(pure + filling if order > 0 else [*filling, *pure])
    (row,) = vllm(text).rows
    assert (row.output_tps, row.accept_length) == (approx(120), approx(2.0, abs=0.005))
    assert row.round_time_s == approx(2.0 * 2 / 120, rel=0.005)
    assert row.survival == approx((0.4, 1 / 3, 0.267), abs=0.002)
    assert row.drafted_per_round == approx(3, rel=0.005)
    assert row.accept_rate == approx(1 / 3, rel=0.01)


def test_main_numbers_of_a_file_are_of_one_row() -> None:
    text = "".join(decode(4, 200.0, 3.0, at=i) for i in range(6))
    text += "".join(decode(16, 500.0, 2.0, at=i) for i in range(6, 10))
    (file,) = document_of([sglang(text)])["files"]
    assert (file["output_tps"], file["accept_length"]) == (200.0, 3.0)


@pytest.mark.parametrize("fast", [2, 5, 7])
def test_windows_with_many_accepted_drafts_are_not_idle(fast: int) -> None:
    """A lookup drafter copies by turns: windows of 30 ms rounds at 1.1 and at 4 tokens each."""
    lengths = [4.0 if i % 12 < fast else 1.1 for i in range(12)]
    text = "".join(decode(2, 2 * a / 0.03, a, at=i) for i, a in enumerate(lengths))
    entry = sglang(text)
    (row,) = entry.rows
    mean = sum(lengths) / 12
    assert entry.windows.dropped == {}
    assert (row.accept_length, row.output_tps) == approx((mean, 2 * mean / 0.03), rel=1e-3)
    assert row.round_time_s == approx(0.03, rel=1e-3)


def test_long_rounds_are_idle_time_at_any_accept_length() -> None:
    text = "".join(decode(2, 100.0 * a, a, at=i) for i, a in enumerate([1.2, 3.6] * 4))
    idle = decode(2, 100.0, 3.6, at=8)  # 3.6 times the round time, but the usual throughput
    assert sglang(text + idle).windows.dropped == {"idle": 1}


def test_rounds_in_which_a_lookup_finds_nothing_count() -> None:
    """Of 100 rounds/s of one request 20 draft, at 4.0 tokens each: 160 tok/s."""
    start = (
        "(APIServer pid=9) INFO 03-04 05:00:00 [utils.py:233] non-default args: {'model': 'a/b', "
        "'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 3}}\n"
    )
    window = [vllm_window(160.0, 4.0, running=1, at=i, rates=[1.0] * 3, tokens=800) for i in (0, 1)]
    (row,) = vllm(start + "".join(window)).rows
    assert row.accept_length == approx(1.6, rel=0.01)
    assert row.round_time_s == approx(0.01, rel=0.01)
    assert row.survival == approx((0.2, 0.2, 0.2), rel=0.01)
    assert row.drafted_per_round == approx(0.6, rel=0.01)


# --- prefill


def test_a_prompt_token_per_request_is_no_prefill() -> None:
    """A decode node computes the last token of a prompt; 800 tok/s of 400-token answers: 2 a s."""
    text = "".join(vllm_window(800.0, 2.5, prompt=2.0, at=i) for i in range(4))
    entry = vllm(text)
    assert (entry.rows[0].mixed, entry.windows.dropped) == (False, {})
    assert "prefill_mixed" not in entry.codes


@pytest.mark.parametrize(
    ("above", "tail"),
    [("", ", External prefix cache hit rate: 99.9%"), ("kv_role='kv_consumer'\n", "")],
)
def test_prompts_that_another_node_computes_are_no_prefill(above: str, tail: str) -> None:
    text = above + "".join(vllm_window(800.0, 2.5, 900.0, at=i, tail=tail) for i in range(4))
    assert not vllm(text).rows[0].mixed


def test_decoding_that_a_prefill_holds_up_is_not_idle() -> None:
    text = "".join(vllm_window(120.0, 2.0, at=i) for i in range(3))
    text += vllm_window(0.0, None, prompt=9000.0, at=3)
    assert vllm(text).windows.dropped == {"prefill": 1}


# --- accept lengths of 1, caps, drift, graphs, ranks


def server_args(**arguments: object) -> str:
    said = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"[2026-03-04 04:00:00] server_args=ServerArgs(model_path='a/b', {said})\n"


DRAFTER = server_args(speculative_algorithm="EAGLE3", speculative_num_steps=3)


@pytest.mark.parametrize(
    ("above", "rate", "expected"),
    [
        (DRAFTER, 0.0, {"zero_acceptance"}),
        (server_args(speculative_algorithm="DFLASH"), 0.25, {"zero_acceptance"}),
        (
            server_args(speculative_algorithm="EAGLE", speculative_batch_size_threshold=32),
            0.25,
            {"speculation_off"},
        ),
        # The bonus of 4 tokens is printed of a drafter that fails, too.
        ("", 0.25, {"zero_acceptance", "speculation_off"}),
        ("", 0.0, {"zero_acceptance", "speculation_off"}),
    ],
)
def test_accept_length_of_one(above: str, rate: float, expected: set[str]) -> None:
    entry = sglang(above + "".join(decode(4, 148.0, 1.0, at=i, rate=rate) for i in range(8)))
    assert expected == {"zero_acceptance", "speculation_off"} & set(entry.codes)
    assert entry.rows[0].accept_length == 1.0


def test_speculation_that_stops_at_a_batch_is_off_there() -> None:
    text = DRAFTER + "".join(decode(8, 400.0, 2.5, at=i) for i in range(6))
    text += "".join(decode(64, 900.0, 1.0, at=i) for i in range(6, 12))
    (message,) = [d.message for d in sglang(text).diagnoses if d.code == "speculation_off"]
    assert "at 64 running" in message


def waiting(batches: Sequence[int], usage: float = 0.1) -> str:
    return "".join(
        decode(b, 26.0 * b, 2.8, at=i, queue=2, usage=usage) for i, b in enumerate(batches)
    )


@pytest.mark.parametrize(
    ("batches", "usage", "capped"),
    [
        ([4, 6, 8, 10, 12, 14], 0.1, False),  # the load rises
        ([8], 0.1, False),  # one window
        ([24, 24, 24, 24, 8, 8, 8, 8, 8, 8], 0.1, False),  # it ran more before
        ([8] * 6, 0.1, True),
        ([8], 0.97, True),  # a full cache shows at once
    ],
)
def test_a_cap_is_a_batch_that_stays(batches: list[int], usage: float, capped: bool) -> None:
    assert ("capped" in sglang(waiting(batches, usage)).codes) == capped


def test_a_stated_cap_shows_in_one_window() -> None:
    assert "capped" in sglang(server_args(max_running_requests=8) + waiting([8, 8])).codes


def lengths_of(first: float, last: float, count: int) -> list[float]:
    return [first + (last - first) * i / (count - 1) for i in range(count)]


@pytest.mark.parametrize("count", [12, 300, 5000])
@pytest.mark.parametrize(("first", "last"), [(3.4, 1.9), (1.8, 2.6)])
def test_acceptance_that_drifts_is_told(first: float, last: float, count: int) -> None:
    lengths = lengths_of(first, last, count)
    text = "".join(decode(16, 16 * a / 0.05, a, at=i, step_s=9) for i, a in enumerate(lengths))
    entry = sglang(text)
    (message,) = [d.message for d in entry.diagnoses if d.code == "acceptance_drift"]
    eighth = (last - first) / 8
    told = [float(n) for n in re.findall(r"\d\.\d\d", message)]
    assert told == approx([first + eighth, last - eighth], abs=0.06)
    assert "stays at 50.0 ms" in message
    (row,) = entry.rows
    assert row.accept_length_sem is not None
    if count == 300:  # successive windows are no independent draws
        assert row.accept_length_sem > 3 * abs(last - first) / 300**0.5 / 12**0.5


@pytest.mark.parametrize(
    "lengths",
    [
        [2.4, 2.5] * 20,
        [1.1, 4.0, 1.1, 1.1, 4.0, 4.0, 1.1] * 4,
        lengths_of(2.4, 2.5, 40),  # 4 %
        [2.4] * 40,
    ],
)
def test_no_drift(lengths: list[float]) -> None:
    text = "".join(decode(16, 16 * a / 0.05, a, at=i) for i, a in enumerate(lengths))
    assert "acceptance_drift" not in sglang(text).codes


def test_another_load_is_no_drift() -> None:
    steps = [(4, 3.0)] * 20 + [(32, 2.0)] * 20
    text = "".join(decode(b, b * a / 0.05, a, at=i) for i, (b, a) in enumerate(steps))
    assert "acceptance_drift" not in sglang(text).codes


@pytest.mark.parametrize("device", ["cuda", "npu", "cpu", "musa", "xpu"])
@pytest.mark.parametrize("state", [True, False])
def test_graph_of_any_device(device: str, state: bool) -> None:
    text = "".join(decode(24, 640.0, 2.7, at=i, graph=f"{device} graph: {state}, ") for i in (0, 1))
    entry = sglang(text)
    assert entry.rows[0].cuda_graph is state
    assert ("eager" in entry.codes) is not state


@pytest.mark.parametrize(
    "more",
    [
        "fwd occupancy: 97.12%, fwd+idle occupancy: 98.00%, ",
        "est uncap acc len: 3.20 [3.10, 3.30], ",
        "#gpu token: 10, gpu token usage: 0.30, #cpu token: 5, cpu token usage: 0.10, ",
    ],
)
def test_fields_of_late_versions(more: str) -> None:
    text = "".join(decode(24, 640.0, 2.7, at=i).replace("cuda", more + "cuda") for i in range(5))
    entry = sglang(text)
    assert (entry.windows.used, entry.unread) == (5, {})


def tailless(text: str) -> str:
    lines = (line.partition(", #queue")[0] for line in text.splitlines())
    return "".join(line.replace("cuda graph: True, ", "") + "\n" for line in lines)


@pytest.mark.parametrize("end", ["\n", ""])
def test_lines_without_graph_and_queue(end: str) -> None:
    lengths = [3.05, 3.07, 3.09] * 2
    text = tailless("".join(decode(1, 19.3 * a, a, at=i) for i, a in enumerate(lengths)))
    entry = sglang(text.rstrip("\n") + end)
    (row,) = entry.rows
    assert (row.queue, row.cuda_graph, entry.unread) == (None, None, {})
    assert (row.accept_length, row.output_tps) == approx((3.07, 19.3 * 3.07), rel=2e-3)
    assert entry.settings["num_draft_tokens"] == 4


def test_a_line_without_its_end_among_whole_ones_is_cut() -> None:
    text = "".join(decode(8, 640.0, 2.7, at=i) for i in range(5))
    entry = sglang(text + tailless(decode(8, 64.0, 2.7, at=5)) + decode(8, 640.0, 2.7, at=6))
    assert (entry.unread, entry.windows.used) == ({"truncated": 1}, 6)


@pytest.mark.parametrize("rank", [1, 3])
def test_one_engine_of_a_data_parallel_deployment(rank: int) -> None:
    text = "".join(vllm_window(43.0, 2.8, running=1, at=i, engine=rank) for i in range(6))
    ranked = "".join(decode(1, 43.0, 2.8, at=i) for i in range(6)).replace("TP0", f"DP{rank} TP0")
    for entry in (vllm(text), sglang(ranked)):
        assert (entry.rows[0].output_tps, entry.windows.dropped) == (approx(43.0), {})
        (message,) = [d.message for d in entry.diagnoses if d.code == "one_rank"]
        assert f"rank {rank} " in message
        assert f"at least {rank + 1}" in message


V0 = (
    "INFO 03-04 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.000, "
    "System efficiency: 0.250, Number of speculative tokens: 3, Number of accepted tokens: 0, "
    "Number of draft tokens: {drafted}, Number of emitted tokens: {rounds}.\n"
)


def test_v0_acceptance_of_zero() -> None:
    entry = vllm(V0.format(drafted=1500, rounds=500) + V0.format(drafted=3000, rounds=1000))
    assert entry.rows[0].accept_length == 1.0
    assert "zero_acceptance" in entry.codes


def test_acceptance_of_zero_without_positions() -> None:
    entry = vllm("SpecDecoding metrics: Draft acceptance rate: 0.0%, Accepted: 0 tokens, "
        "Drafted: 80 tokens\n")  # fmt: skip
    assert (entry.rows[0].accept_length, entry.settings.get("num_steps")) == (1.0, None)
    assert "zero_acceptance" in entry.codes
