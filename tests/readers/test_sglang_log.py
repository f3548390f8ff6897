"""SGLang server logs: every layout, the odd shapes, ranks, reasons."""

from __future__ import annotations

import log_samples as logs
import pytest
from parsing import parse

from specsim.logs import LogEntry

approx = pytest.approx

ALL_LAYOUTS = [
    *((f"plain {k}", v, 1.0) for k, v in logs.DECODE_PLAIN.items()),
    *((f"spec {k}", v, 2.4) for k, v in logs.DECODE_SPEC.items()),
    *((f"pd {k}", v, 2.4) for k, v in logs.DECODE_PD.items()),
    *((f"hybrid {k}", v, 2.4) for k, v in logs.DECODE_HYBRID.items()),
]
PREFIXES = {
    "sglang": "[" + logs.STAMP + " TP0] ",
    "ranks": "[" + logs.STAMP + " TP0 EP0] ",
    "no rank": "[" + logs.STAMP + "] ",
    "logger": logs.STAMP + " INFO 154867 [scheduler_metrics_mixin.py:287] ",
    "colour": "\x1b[32m[" + logs.STAMP + " TP0]\x1b[0m ",
    "docker": "sglang-1  | [" + logs.STAMP + " TP0] ",
    "kubernetes": "2026-03-04T05:06:07.123456Z stdout F [" + logs.STAMP + " TP0] ",
    "quote": "> [" + logs.STAMP + " TP0] ",
    "none": "",
}


def read(text: str) -> list[LogEntry]:
    return parse("sglang_log", text)


def only(text: str) -> LogEntry:
    (entry,) = read(text)
    return entry


@pytest.mark.parametrize(
    ("body", "tau"), [c[1:] for c in ALL_LAYOUTS], ids=[c[0] for c in ALL_LAYOUTS]
)
def test_each_layout(body: str, tau: float) -> None:
    entry = only(logs.decode_lines(body))
    (row,) = entry.rows
    figures = (row.batch_size, row.queue, row.output_tps, row.accept_length)
    assert figures == approx((24, 7, 2880, tau))
    assert row.concurrency == 31
    assert row.round_time_s == approx(tau * 24 / 2880)
    assert row.kv_usage == approx(0.12)
    assert (entry.windows.read, entry.windows.used, entry.windows.dropped) == (8, 8, {})
    assert not entry.unread
    assert (entry.settings.get("algorithm") == "none") == (tau == 1)


@pytest.mark.parametrize("name", [*logs.DECODE_SPEC])
def test_version_from_layout(name: str) -> None:
    assert only(logs.decode_lines(logs.DECODE_SPEC[name])).settings["version_range"] == name


@pytest.mark.parametrize("name", [*logs.PREFILL])
def test_prefill_layouts(name: str) -> None:
    line = "[2026-03-04 05:06:00 TP0] " + logs.PREFILL[name] + "\n"
    entry = only(line)
    assert entry.settings["prefill_batches"] == 1
    assert entry.settings["prefill_tokens_per_sequence"] == 1000
    assert entry.settings["cached_tokens_per_sequence"] == 200
    assert not entry.usable
    if name in ("0.4.0-0.4.2", "0.5.9", "0.5.10", "0.5.11-0.5.23"):
        assert entry.settings["version_range"] == name


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
def test_prefixes(prefix: str) -> None:
    entry = only(logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"], prefix=prefix))
    assert (entry.windows.used, entry.rows[0].output_tps) == approx((8, 2880))


def test_json_log() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    entry = only(f'{{"log":"[2026-03-04 05:06:00 TP0] {body}\\n","stream":"stdout"}}\n' * 5)
    assert (entry.windows.used, entry.rows[0].queue) == (5, 7)


@pytest.mark.parametrize(
    ("layout", "formula"),
    [
        ("0.5.3", "accept_len/(num_steps + 1)"),
        ("0.5.4-0.5.8", "accept_len/num_draft_tokens,"),
        ("0.5.9-0.5.23", "(accept_len - 1)/(num_draft_tokens - 1)"),
    ],
)
def test_accept_rate_definition(layout: str, formula: str) -> None:
    # 0.47 = 1.4/3 fits n = 4 by the new definition only: 2.4/0.47 = 5.1 is no whole number.
    entry = only(logs.decode_lines(logs.DECODE_SPEC[layout]))
    (message,) = [d.message for d in entry.diagnoses if d.code == "accept_rate_definition"]
    assert formula in message
    assert entry.settings["num_draft_tokens"] == 4
    assert entry.settings["inferred"] == ["num_draft_tokens"]


@pytest.mark.parametrize(
    ("prefill", "formula"),
    [
        ("0.5.9", "accept_len/num_draft_tokens,"),
        ("0.5.11-0.5.23", "(accept_len - 1)/(num_draft_tokens - 1)"),
    ],
)
def test_prefill_lines_tell_the_definition(prefill: str, formula: str) -> None:
    # 2.40 and 0.42 fit no whole number by either definition.
    body = logs.DECODE_SPEC["0.5.9-0.5.23"].replace("rate: 0.47", "rate: 0.42")
    text = f"[2026-03-04 05:06:00 TP0] {logs.PREFILL[prefill]}\n" + logs.decode_lines(body)
    (message,) = [d.message for d in only(text).diagnoses if d.code == "accept_rate_definition"]
    assert formula in message
    (message,) = [
        d.message
        for d in only(logs.decode_lines(body)).diagnoses
        if d.code == "accept_rate_definition"
    ]
    assert "does not tell which" in message


def test_startup() -> None:
    entry = only(logs.STARTUP + logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"]))
    expected = {
        "algorithm": "EAGLE3",
        "topk": 1,
        "num_steps": 3,
        "num_draft_tokens": 4,
        "tp": 4,
        "max_running_requests": 48,
        "cuda_graph_max_bs": 48,
        "kv_tokens": 300000,
        "context_len": 16384,
        "chunked_prefill_size": 4096,
        "mem_fraction_static": 0.85,
    }
    assert expected.items() <= entry.settings.items()
    assert entry.windows.dropped == {"ramp": 1}  # the first window after the start


def test_startup_from_0_5_14() -> None:
    entry = only(logs.STARTUP_NEW + logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"]))
    assert entry.settings["num_draft_tokens"] == 6
    assert entry.settings["cuda_graph_max_bs"] == 16


def test_no_speculation_by_arguments() -> None:
    text = logs.STARTUP.replace("'EAGLE3'", "None")
    assert only(text).settings["algorithm"] == "none"


def test_warnings() -> None:
    entry = only(logs.WARNINGS + logs.decode_lines(logs.DECODE_SPEC["0.5.4-0.5.8"]))
    assert entry.settings["max_running_requests"] == 48
    assert entry.settings["scheduler"] == "overlap"
    (message,) = [d.message for d in entry.diagnoses if d.code == "retraction"]
    assert "5 requests were retracted in 2 events" in message


@pytest.mark.parametrize(
    "line",
    [
        "Overlap scheduler is disabled because of using eagle speculative decoding.",
        "Spec v1 is used for eagle/eagle3/standalone speculative decoding because spec v2 "
        "currently only supports topk = 1.",
        "Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone speculative "
        "decoding.",
    ],
)
def test_sequential_scheduler(line: str) -> None:
    text = line + "\n" + logs.decode_lines(logs.DECODE_SPEC["0.5.4-0.5.8"])
    assert only(text).settings["scheduler"] == "sequential"


def test_adaptive_speculation() -> None:
    text = "Adaptive spec params updated: steps 3 -> 1 (ema_accept_len=1.20)\n"
    entry = only(text + logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"]))
    assert "partial_drafting" in entry.codes


def test_two_servers_in_one_paste() -> None:
    plain, eagle = read(logs.AB_PASTE)
    assert (plain.rows[0].output_tps, plain.label) == (88.5, "without eagle")
    assert plain.settings["algorithm"] == "none"
    assert (eagle.rows[0].output_tps, eagle.accept_length) == (55.0, 2.75)
    assert eagle.label == "with eagle"


def test_two_like_servers_in_one_paste() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    other = body.replace("2880.00", "1440.00").replace("#token: 30720", "#token: 900")
    later = "[2026-03-04 06:06:%02d TP0] "
    text = f"topk=1:\n{logs.decode_lines(body)}topk=4:\n{logs.decode_lines(other, prefix=later)}"
    assert [e.rows[0].output_tps for e in read(text)] == approx([2880, 1440])


def test_restart_begins_a_new_entry() -> None:
    lines = logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"])
    assert len(read(logs.STARTUP + lines + logs.STARTUP + lines)) == 2


def test_time_running_backwards_begins_a_new_entry() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    early = logs.decode_lines(body, prefix="[2026-03-04 01:06:%02d TP0] ")
    assert [e.windows.used for e in read(logs.decode_lines(body) + early)] == [8, 8]


def test_speculation_switched_off_or_failing() -> None:
    """No word of a drafter: both are told."""
    entry = only(logs.SPEC_OFF)
    assert [(r.cuda_graph, r.output_tps) for r in entry.rows] == [(False, 4000), (True, 5000)]
    assert entry.settings["num_draft_tokens"] == 7
    assert {"speculation_off", "zero_acceptance", "eager"} <= set(entry.codes)


def test_drafter_that_fails() -> None:
    body = logs.DECODE_SPEC["0.4.9-0.5.2"].replace("accept len: 2.40", "accept len: 1.02")
    assert "zero_acceptance" in only(logs.decode_lines(body)).codes


def test_prefill_only() -> None:
    entry = only(logs.PREFILL_ONLY)
    assert (entry.rows, entry.windows.read) == ((), 0)
    assert entry.settings["prefill_batches"] == 6


def test_kv_bound_and_cut() -> None:
    entry = only(logs.KV_BOUND)
    (row,) = entry.rows
    assert (row.batch_size, row.output_tps, row.windows) == (5, 400, 7)
    assert entry.unread == {"truncated": 1}
    messages = {d.code: d.message for d in entry.diagnoses}
    assert "5 of 9 requests run: the KV cache is 96 % full" in messages["capped"]
    assert "truncated" in messages


def test_default_cap() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"].replace("req: 24", "req: 48")
    body = body.replace("#queue-req: 7", "#queue-req: 52")
    (message,) = [d.message for d in only(logs.decode_lines(body)).diagnoses if d.code == "capped"]
    assert "48 of 100 requests run: the default cap" in message


def test_eager_above_a_batch() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    large = body.replace("req: 24", "req: 80").replace("graph: True", "graph: False")
    text = logs.decode_lines(body) + logs.decode_lines(large, start=20)
    (message,) = [d.message for d in only(text).diagnoses if d.code == "eager"]
    assert "above 24 running" in message


def test_windows_with_prefill_are_dropped() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    slow = body.replace("2880.00", "1000.00")
    prefill = "[2026-03-04 05:06:20 TP0] " + logs.PREFILL["0.5.11-0.5.23"] + "\n"
    text = logs.decode_lines(body) + prefill + logs.decode_lines(slow, 1, start=20)
    text += logs.decode_lines(body, start=30)
    entry = only(text)
    (row,) = entry.rows
    assert (row.output_tps, row.mixed, row.windows) == (approx(2880), False, 16)
    assert entry.windows.dropped == row.dropped == {"prefill": 1}
    assert "prefill_mixed" not in entry.codes  # 6 % of windows


def test_only_windows_with_prefill() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    prefill = "[2026-03-04 05:06:00 TP0] " + logs.PREFILL["0.5.9"] + "\n"
    text = "".join(prefill + logs.decode_lines(body, 1, start=i) for i in range(6))
    entry = only(text)
    (row,) = entry.rows
    assert (row.mixed, row.kind, row.output_tps) == (True, "closed_loop", approx(2880))
    assert row.round_time_s is None
    assert any("100 % of windows contain prefill" in d.message for d in entry.diagnoses)


def test_ramp_and_idle_windows_are_dropped() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    counts = [24] * 6 + [16] + [16] * 6 + [0]
    text = "".join(
        logs.decode_lines(body.replace("req: 24", f"req: {n}"), 1, start=i)
        for i, n in enumerate(counts)
    )
    entry = only(text)
    assert [r.batch_size for r in entry.rows] == [16, 24]
    assert entry.windows.dropped == {"ramp": 1, "idle": 1}


@pytest.mark.parametrize(("queue", "reason"), [(0, "idle"), (7, "stalled")])
def test_windows_slowed_by_idle_time_are_dropped(queue: int, reason: str) -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"].replace("#queue-req: 7", f"#queue-req: {queue}")
    text = logs.decode_lines(body, 20) + logs.decode_lines(
        body.replace("2880.00", "90.00"), 1, start=50
    )
    entry = only(text)
    assert (entry.rows[0].output_tps, entry.windows.dropped) == (approx(2880), {reason: 1})


def test_data_parallel_ranks_are_summed() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    text = "".join(
        logs.decode_lines(body, 1, f"[2026-03-04 05:06:{i:02d} DP{dp} TP{dp}] ")
        for i in range(10)
        for dp in range(4)
    )
    entry = only(text)
    (row,) = entry.rows
    assert (row.batch_size, row.output_tps, row.queue) == approx((96, 4 * 2880, 28))
    assert (row.accept_length, row.windows) == (approx(2.4), 10)
    assert "ranks_summed" in entry.codes


def test_missing_rank_drops_the_window() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    text = "".join(
        logs.decode_lines(body, 1, f"[2026-03-04 05:06:{i:02d} DP{dp} TP0] ")
        for i in range(10)
        for dp in range(2)
        if (i, dp) != (5, 1)
    )
    entry = only(text)
    assert entry.windows.dropped == {"rank_missing": 1}
    assert [r.output_tps for r in entry.rows] == approx([5760])


def test_tensor_parallel_copies_are_dropped() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    text = "".join(
        logs.decode_lines(body, 1, f"[2026-03-04 05:06:{i:02d} TP{tp}] ")
        for i in range(5)
        for tp in range(2)
    )
    entry = only(text)
    assert (entry.rows[0].output_tps, entry.windows.used) == (approx(2880), 5)
    assert entry.windows.dropped == {"duplicate_rank": 5}


def test_queue_of_an_unended_line_is_not_trusted() -> None:
    line = logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"], 1)
    assert only(line).rows[0].queue == 7
    assert only(line[:-1]).rows[0].queue is None
    assert only(line[:-1]).rows[0].output_tps == approx(2880)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("accept len: 2.40", "accept len: 0.40", "accept length below 1"),
        ("accept rate: 0.47", "accept rate: 1.47", "accept rate above 1"),
        ("token usage: 0.12", "token usage: 7.12", "token usage above 1"),
        ("2880.00", "2880.0", "damaged field"),
        ("#running-req: 24", "#running-req: 2x", "damaged field"),
        ("accept len: ", "accept lem: ", "damaged field"),
        ("#queue-req: 7", "", "truncated"),
        ("#token: 30720, ", "", "unlike its neighbours"),
        ("Decode batch", "Decode batch, #running-req: 24, #tokDecode batch", "two lines"),
    ],
)
def test_damaged_line_is_unread(old: str, new: str, reason: str) -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    good = logs.decode_lines(body)
    entry = only(
        good
        + logs.decode_lines(body.replace(old, new), 1, start=20)
        + good[:0]
        + logs.decode_lines(body, start=30)
    )
    assert sum(entry.unread.values()) == 1
    assert reason in next(iter(entry.unread))
    assert entry.windows.used == 16


def test_length_above_the_chain_is_unread() -> None:
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    text = logs.STARTUP + logs.decode_lines(body)
    text += logs.decode_lines(body.replace("2.40", "6.40"), 1, start=20)
    assert only(text).unread == {"accept length above num_steps + 1": 1}
