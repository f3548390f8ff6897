"""vLLM server logs: every generation of lines, the odd shapes, engines, reasons."""

from __future__ import annotations

import log_samples as logs
import pytest
from parsing import parse

from specsim.logs import LogEntry

approx = pytest.approx


def read(text: str) -> list[LogEntry]:
    return parse("vllm_log", text)


def only(text: str) -> LogEntry:
    (entry,) = read(text)
    return entry


def test_engine_and_drafting_lines() -> None:
    entry = only(logs.VLLM)
    (row,) = entry.rows
    assert (row.batch_size, row.concurrency, row.output_tps) == approx((12, 15, 600))
    assert row.accept_length == approx(2.6)
    assert row.survival == approx((0.8, 0.5, 0.3))
    assert row.round_time_s == approx(2.6 * 12 / 600)
    assert row.drafted_per_round == approx(3)
    assert row.accept_rate == approx(400 / 750)
    assert row.kv_usage == approx(0.415)
    assert (entry.windows.read, entry.windows.used) == (6, 6)
    assert entry.settings["num_steps"] == 3
    assert entry.settings["num_draft_tokens"] == 4  # the root included
    assert not entry.unread


@pytest.mark.parametrize(
    "tail",
    [
        "",
        ", GPU KV cache usage: 41.5%",
        ", Preemptions: 2, GPU KV cache usage: 41.5%, Prefix cache hit rate: 20.0%",
        ", Deferred: 1 reqs, KV fetch: 3 reqs, GPU KV cache usage: 41.5%",
        ", GPU KV cache usage: 41.5%, Prefix cache hit rate: 20.0%, MM cache hit rate: 1.0%",
        ", CPU KV cache usage: 41.5%",
    ],
)
@pytest.mark.parametrize("head", ["Engine 000: ", "8 Engines Aggregated: ", ""])
def test_engine_line_variants(head: str, tail: str) -> None:
    line = (
        f"{head}Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 600.0 tokens/s, "
        f"Running: 12 reqs, Waiting: 3 reqs{tail}\n"
    )
    entry = only("started\n" + line * 3)
    (row,) = entry.rows
    assert (row.batch_size, row.queue, row.output_tps) == (12, 3, 600)
    assert not entry.unread
    assert ("ranks_summed" in entry.codes) == head.startswith("8")
    assert ("retraction" in entry.codes) == ("Preemptions" in tail)


@pytest.mark.parametrize(("text", "corrected"), [(logs.VLLM_085, True), (logs.VLLM_092, False)])
def test_bonus_token(text: str, corrected: bool) -> None:
    # Both versions drafted 250 chains and accepted 400 drafts: 2.60 tokens per round.
    entry = only(text)
    assert entry.accept_length == approx(2.6)
    assert ("bonus_excluded" in entry.codes) == corrected


def test_v0_counters_are_cumulative() -> None:
    later = logs.VLLM_V0.replace("16000", "32000").replace("11400", "22800")
    entry = only(logs.VLLM_V0 + later.replace("9600", "19200"))
    assert entry.accept_length == approx(11400 / 4000)
    assert entry.settings["num_steps"] == 4
    assert "accept_rate_definition" in entry.codes


def test_first_lines_give_no_length() -> None:
    entry = only(logs.VLLM_FIRST)
    assert entry.accept_length is None
    assert entry.rows[0].accept_rate == approx(0.5)
    assert entry.windows.dropped == {"idle": 1}
    assert entry.usable


def test_two_servers_in_one_paste() -> None:
    plain, mtp = read(logs.VLLM_AB)
    assert (plain.rows[0].output_tps, plain.settings["algorithm"]) == (300, "none")
    assert (plain.label, plain.accept_length) == ("without mtp", 1)
    assert (mtp.rows[0].output_tps, mtp.accept_length) == (120, approx(1.95))
    assert mtp.settings["num_steps"] == 1
    assert "prefill_mixed" in plain.codes
    assert "prefill_mixed" in mtp.codes


def test_unused_positions() -> None:
    entry = only(logs.VLLM_UNUSED)
    assert entry.accept_length == approx(1.9)
    assert len(entry.survival or ()) == 8
    (message,) = [d.message for d in entry.diagnoses if d.code == "zero_acceptance"]
    assert "positions 3 to 8" in message
    assert "num_speculative_tokens 2" in message


def test_stalled_scheduler() -> None:
    entry = only(logs.VLLM_STALLED)
    (row,) = entry.rows
    assert (row.batch_size, row.concurrency, row.output_tps) == (1, 1, 6)
    assert {"capped", "queue_dominated"} <= set(entry.codes)
    assert entry.settings["algorithm"] == "none"


def test_startup() -> None:
    entry = only(logs.VLLM_STARTUP + logs.VLLM)
    expected = {
        "algorithm": "EAGLE3",
        "topk": 1,
        "num_steps": 3,
        "num_draft_tokens": 4,
        "max_running_requests": 64,
        "context_len": 8192,
        "tp": 2,
        "kv_tokens": 210000,
        "draft": "org/draft",
    }
    assert expected.items() <= entry.settings.items()
    assert entry.engine_version == "0.11.0"
    assert entry.windows.dropped == {"ramp": 1}


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        (
            "Using FLASHINFER attention backend out of potential backends: ['FLASHINFER']",
            "FLASHINFER",
        ),
        ("Using AttentionBackendEnum.FLASH_ATTN backend.", "FLASH_ATTN"),
        ("Using Triton MLA backend on V1 engine.", "TRITON_MLA"),
        ("Using Flash Attention backend on V1 engine.", "FLASH_ATTN"),
        ("Using backend FLASH_ATTN for vit attention", None),
        ("Using FLASHINFLR attention backend out of potential backends: []", None),
    ],
)
def test_the_attention_backend_is_told(line: str, backend: str | None) -> None:
    """As 0.11.0, 0.11.2, 0.12.0 and 0.24.0 say it; not the vision encoder's, nor a torn one."""
    entry = only(logs.VLLM_STARTUP + f"INFO 06-01 10:00:20 [cuda.py:352] {line}\n" + logs.VLLM)
    assert entry.settings.get("attention_backend") == backend


def test_throughput_lines_alone_do_not_exclude_speculation() -> None:
    line = logs.ENGINE % 0
    assert only(line).settings.get("algorithm") is None
    whole = 'INFO: "GET /metrics HTTP/1.1" 200 OK\n'
    assert only(line + whole + line + whole).settings["algorithm"] == "none"


def test_engines_are_summed() -> None:
    text = "".join(
        (logs.ENGINE + logs.SPEC_LINE).replace("Engine 000", f"Engine 00{e}") % (i, i)
        for i in range(0, 50, 10)
        for e in range(2)
    )
    entry = only(text)
    (row,) = entry.rows
    assert (row.batch_size, row.output_tps, row.queue) == approx((24, 1200, 6))
    assert row.accept_length == approx(2.6)
    assert "ranks_summed" in entry.codes


def test_partial_drafting() -> None:
    # 250 rounds of at most 3 drafts, but 600 drafted: 2.4 a round.
    line = logs.SPEC_LINE % 0
    line = line.replace("750 tokens", "600 tokens").replace("75.00", "60.00")
    entry = only((logs.ENGINE % 0) + line.replace("53.3%", "66.7%"))
    assert "partial_drafting" in entry.codes
    assert entry.rows[0].drafted_per_round == approx(2.4)


def test_idle_and_ramp() -> None:
    idle = logs.ENGINE.replace("Running: 12", "Running: 0") % 50
    small = logs.ENGINE.replace("Running: 12", "Running: 4").replace("600.0", "300.0")
    text = "".join((logs.ENGINE + logs.SPEC_LINE) % (i, i) for i in range(0, 30, 10))
    text += small % 30 + small % 40 + idle
    entry = only(text)
    assert entry.windows.dropped == {"idle": 1, "ramp": 1}
    assert [r.batch_size for r in entry.rows] == [4, 12]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Mean acceptance length: 2.60", "Mean acceptance length: 2.90"),
        ("Accepted: 400", "Accepted: 40"),
        ("Accepted: 400", "Accepted: 4000"),
        ("0.800", "0.100"),
        ("0.800, ", "0.800 "),
        ("Avg Draft acceptance rate: 53.3%", "Avg Draft acceptance rate: 33.3%"),
        (", Avg Draft acceptance rate: 53.3%", ", Avg Draft acc"),
    ],
)
def test_damaged_drafting_line_is_unread(old: str, new: str) -> None:
    line = (logs.SPEC_LINE % 0).replace(old, new)
    assert line != logs.SPEC_LINE % 0
    entry = only(logs.VLLM + line)
    assert sum(entry.unread.values()) == 1
    assert entry.accept_length == approx(2.6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("600.0 tokens/s", "600 tokens/s"),
        ("Running: 12 reqs", "Running: 12 r"),
        ("usage: 41.5%", "usage: 341.5%"),
        ("Waiting: 3 reqs", "Waiting: 3"),
        ("hit rate: 20.0%", "hit rat"),
    ],
)
def test_damaged_throughput_line_is_unread(old: str, new: str) -> None:
    line = (logs.ENGINE % 0).replace(old, new)
    entry = only(logs.VLLM + line)
    assert sum(entry.unread.values()) == 1
    assert entry.windows.read == 6
