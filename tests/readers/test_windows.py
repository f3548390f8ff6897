"""From windows to rows: means, standard errors, accounts; fast and strict parsing agree."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import log_samples as logs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import parse

from specsim.logs.columns import group_starts
from specsim.logs.durations import Durations
from specsim.logs.formats.sglang.lines import parse_decode_line
from specsim.logs.levels import level_rows
from specsim.logs.windows import PREFILL, PREFILL_RAMP, Windows

approx = pytest.approx


def counted(
    tps: np.ndarray,
    running: np.ndarray | float = 16.0,
    accept: np.ndarray | float = 2.5,
    reason: np.ndarray | int = 0,
    into: Windows | None = None,
    **options: Any,
) -> Windows:
    """Windows that are judged already."""
    n = len(tps)
    full = lambda value: np.broadcast_to(np.asarray(value, dtype=float), (n,)).copy()  # noqa: E731
    windows = into or Windows(lambda name: (None, ()), **options)
    columns = {
        "time_s": np.arange(n, dtype=float),
        "running": full(running),
        "queue": full(math.nan),
        "usage": full(0.5),
        "output_tps": full(tps),
        "emitted": full(running) * full(accept),
        "rounds": full(running),
        "graph": full(1.0),
        "prefill": np.isin(full(reason), (PREFILL, PREFILL_RAMP)).astype(float),
    }
    windows.count(columns, full(reason).astype(int))
    return windows


def autoregressive(rng: np.random.Generator, n: int, rho: float, sd: float) -> np.ndarray:
    noise = rng.normal(0, sd * math.sqrt(1 - rho**2), n)
    series = np.empty(n)
    series[0] = rng.normal(0, sd)
    for i in range(1, n):
        series[i] = rho * series[i - 1] + noise[i]
    return series


def test_throughput_of_equal_rounds_is_tokens_over_time() -> None:
    # Two windows of 40 rounds each, at 1 000 and 3 000 tokens/s: 2 tokens in 1/1000 + 1/3000 s.
    windows = counted(np.array([1000.0, 3000.0]))
    (row,), _ = level_rows(windows)
    assert row.output_tps == approx(1500)
    assert row.round_time_s == approx(2.5 * 16 * (1 / 1000 + 1 / 3000) / 2)


def test_throughput_of_equal_times_is_the_plain_mean() -> None:
    windows = counted(np.array([1000.0, 3000.0]), equal_time=True)
    (row,), _ = level_rows(windows)
    assert row.output_tps == approx(2000)


def test_a_round_time_is_that_of_the_windows_that_it_is_from() -> None:
    """Beside the throughput of the windows without prefill stands their own accept length."""
    tps, accept = np.array([1600.0, 1600.0, 900.0, 900.0]), np.array([2.0, 2.0, 3.0, 3.0])
    windows = counted(tps, accept=accept, reason=np.array([0, 0, 1, 1]), equal_time=True)
    (row,), _ = level_rows(windows)
    assert (row.output_tps, row.accept_length) == (approx(1600), approx(2.0))
    assert row.round_time_s == approx(2.0 * 16 / 1600)


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_standard_error_knows_autocorrelation(rho: float) -> None:
    # Over 300 series the spread of their means must be the mean stated error. The error of a
    # standard deviation from 300 values is 4 %; 15 % also covers the bias of lag 1 at n = 200.
    rng = np.random.default_rng(7)
    means, errors = [], []
    for _ in range(300):
        windows = counted(3000 + autoregressive(rng, 200, rho, 60.0))
        (row,), _ = level_rows(windows)
        means.append(row.output_tps)
        errors.append(row.output_tps_sem)
    assert np.mean(errors) == approx(np.std(means), rel=0.15)


def test_quantisation_bounds_the_error_from_below() -> None:
    windows = counted(np.full(25, 3000.0), tps_quantum=0.1)
    (row,), _ = level_rows(windows)
    assert row.output_tps_sem == approx(0.1 / math.sqrt(12) / 5)
    assert row.accept_length_sem == approx(0.01 / math.sqrt(12) / 5)


def test_one_window_has_no_error() -> None:
    windows = counted(np.array([3000.0]))
    (row,), _ = level_rows(windows)
    assert (row.output_tps_sem, row.accept_length_sem) == (None, None)


def test_neighbouring_batches_are_one_level() -> None:
    running = np.array([48.0, 47.0, 48.0, 47.0, 24.0, 24.0, 25.0, 3.0, 4.0])
    windows = counted(running * 60, running)
    rows, _ = level_rows(windows)
    assert [r.batch_size for r in rows] == approx([3, 4, 73 / 3, 47.5])


@given(
    st.lists(
        st.tuples(st.integers(1, 200), st.floats(1, 1e5), st.floats(1, 8), st.integers(0, 7)),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, 59),
)
@settings(max_examples=100, deadline=None)
def test_account_is_complete_and_batching_does_not_matter(
    drawn: list[tuple[int, float, float, int]], cut: int
) -> None:
    running, tps, accept, reason = (np.array(column) for column in zip(*drawn, strict=True))
    whole = counted(tps, running, accept, reason)
    parts = counted(tps[:cut], running[:cut], accept[:cut], reason[:cut])
    counted(tps[cut:], running[cut:], accept[cut:], reason[cut:], into=parts)
    rows, count = level_rows(whole)
    assert count.read == len(drawn)
    assert count.read == count.used + sum(count.dropped.values())
    rows_, count_ = level_rows(parts)
    assert count_ == count
    for row, row_ in zip(rows, rows_, strict=True):
        assert row_.output_tps == approx(row.output_tps, rel=1e-9)
        assert row_.output_tps_sem == (
            None if row.output_tps_sem is None else approx(row.output_tps_sem, rel=1e-4)
        )


@given(st.permutations(range(4)), st.integers(2, 20))
def test_ranks_are_grouped_in_any_order(order: list[int], ticks: int) -> None:
    slots = np.array(list(order) * ticks)
    starts = group_starts(slots, np.repeat(np.arange(ticks, dtype=float), 4), 4)
    assert starts.tolist() == list(range(0, 4 * ticks, 4))


DIGITS = st.integers(0, 99)


@st.composite
def decode_line(draw: st.DrawFn) -> str:
    """A decode line with fields of any version in any order."""
    fields = [
        f"#running-req: {draw(st.integers(0, 10**6))}",
        f"#token: {draw(st.integers(0, 10**9 - 1))}",
        f"token usage: 0.{draw(DIGITS):02d}",
        f"gen throughput (token/s): {draw(st.integers(0, 10**6))}.{draw(DIGITS):02d}",
        f"cuda graph: {draw(st.booleans())}",
        f"accept len: {draw(st.integers(1, 20))}.{draw(DIGITS):02d}",
        f"accept rate: 0.{draw(DIGITS):02d}",
    ]
    chosen = [f for f in fields if "running" in f or "through" in f or draw(st.booleans())]
    chosen = [*draw(st.permutations(chosen)), f"#queue-req: {draw(st.integers(0, 10**6))}"]
    mark = draw(st.sampled_from([".", ","]))
    tail = draw(st.sampled_from(["", ", ", ","]))
    count = draw(st.sampled_from(["", " [7]", " [123456]", " 40"]))
    second = draw(st.integers(0, 59))
    return (
        f"[2026-03-04 05:06:{second:02d} TP0] Decode batch{count}{mark} {', '.join(chosen)}{tail}\n"
    )


@given(decode_line())
@settings(max_examples=300)
def test_the_pattern_of_a_line_reads_what_the_strict_parser_read(line: str) -> None:
    data = line.encode()
    printed, layout = parse_decode_line(data)
    assert layout.read([data]) == printed
    after = data[data.index(b"Decode") :]
    for key, column in ((b"#token: ", "tokens"), (b"cuda graph: ", "graph"), (b"len: ", "accept")):
        value = re.split(rb"[,\n]", after.partition(key)[2])[0]
        assert printed[column][0] == value


@given(decode_line(), st.integers(0, 300), st.binary(min_size=1, max_size=3), st.integers(0, 3))
@settings(max_examples=300)
def test_the_pattern_takes_no_line_that_the_strict_parser_refuses(
    line: str, at: int, piece: bytes, dropped: int
) -> None:
    good = line.encode()
    _, layout = parse_decode_line(good)
    at %= len(good)
    # a line has but one end: what a further one cuts off is another line
    bad = good[:at] + piece.replace(b"\n", b"") + good[at + dropped :]
    found = layout.read([bad])
    if found is not None:
        again, _ = parse_decode_line(bad)
        assert found == again


def test_result_does_not_depend_on_how_lines_are_batched() -> None:
    rng = random.Random(3)
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    lines = []
    for i in range(9000):
        text = body.replace("2880.00", f"{2800 + rng.randrange(200)}.{rng.randrange(100):02d}")
        lines.append(f"[2026-03-04 05:{i // 60 % 60:02d}:{i % 60:02d} TP0] {text}\n")
        if rng.random() < 0.2:
            lines.append(f"[2026-03-04 05:06:00 TP0] {logs.PREFILL['0.5.9']}\n")
        if rng.random() < 0.01:
            lines.append(lines[-1][:60] + "\n")
    whole = parse("sglang_log", "".join(lines))
    noisy = [noise for line in lines for noise in (line, "INFO: something else\n")]
    (again,) = parse("sglang_log", "".join(noisy))[:1]
    assert whole[0].rows == again.rows
    assert whole[0].windows == again.windows


def test_durations() -> None:
    values = np.random.default_rng(1).lognormal(-5, 0.3, 2000)
    durations = Durations()
    for value in [*values, 9.0]:
        durations.add(float(value))
    # A bin is 1 % wide, so a quantile is within 1 %.
    assert durations.quantile(0.5) == approx(np.median(values), rel=0.01)
    assert durations.quantile(0.1) == approx(np.quantile(values, 0.1), rel=0.01)
    assert durations.typical < np.mean([*values, 9.0])  # which is a stall
