"""Damaged files: no crash, no hang, and no number that the file does not say.

A few hundred cases per reader run here; ``SPECSIM_FUZZ=20000 pytest tests/readers/test_fuzz.py``
runs that many per reader. A failure names the seed of its case.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import benchmark_samples as benchmarks
import console_samples as console
import json_samples
import log_samples as logs
import mutate
import prometheus_samples
import pytest
import result_samples as results
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import document_of, parse

from specsim.errors import SpecsimError
from specsim.logs import LogEntry, read_file
from specsim.logs.entry import CODES
from specsim.logs.html_text import plain
from specsim.logs.windows import Columns, Windows

CASES = int(os.environ.get("SPECSIM_FUZZ", "160"))
SECONDS_PER_CASE = 5.0

Reader = Callable[[bytes], list[LogEntry]]


BODY = logs.DECODE_SPEC["0.5.9-0.5.23"]
SGLANG = logs.STARTUP + "".join(
    logs.decode_lines(BODY, 4, start=10 * i)
    + f"[2026-03-04 05:06:{10 * i + 5:02d} TP0] {logs.PREFILL['0.5.11-0.5.23']}\n"
    for i in range(4)
)
RANKS = "".join(
    logs.decode_lines(BODY, 1, f"[2026-03-04 05:06:{i:02d} DP{dp} TP0] ")
    for i in range(8)
    for dp in range(2)
)
TEXTS: dict[str, list[str]] = {
    "sglang_log": [SGLANG, RANKS, logs.AB_PASTE, logs.KV_BOUND, logs.SPEC_OFF],
    "vllm_log": [logs.VLLM_STARTUP + logs.VLLM, logs.VLLM_085, logs.VLLM_V0 * 2],
    "trtllm_log": [results.TRT_LOG, results.TRT_OLD],
    "trtllm_stats": [
        results.json_lines(*[results.TRT_RECORD] * 3),
        results.json_lines(*json_samples.DP_RANKS),
    ],
    "prometheus": [
        results.SGLANG_PROM,
        results.SGLANG_STREAMED,
        results.VLLM_PROM_TOTAL,
        benchmarks.LLAMA_PROM,
    ],
    "sglang_finish": [benchmarks.FINISH],
    "vllm_iterations": [logs.iteration_lines(3, 300.0, seconds=16)],
    "fpm": [results.json_lines(*json_samples.FPM)],
    "bench_json": [
        results.json_lines(results.SERVING_RECORD, results.VLLM_RECORD),
        json.dumps(results.VLLM_RECORD, indent=2),
        results.json_lines(results.ONE_BATCH_RECORD, results.OFFLINE_RECORD),
        results.json_lines(*results.SPECULATIVE_RECORDS),
        results.json_lines(*[results.HISTOGRAM_RECORDS[0]] * 3),
        results.json_lines(*[json_samples.REQUEST_DRAFTS] * 2),
        *(json.dumps(value, indent=1) for value in json_samples.JSON),
        json_samples.MTP_BENCH,
        json_samples.NESTED,
    ],
    "table": [
        results.SERVING_TABLE,
        results.VLLM_QUEUED_TABLE,
        results.SEND_ONE,
        results.EVALSCOPE_CUT,
        benchmarks.ROUTED,
        benchmarks.TRTLLM_SERVING,
        benchmarks.AIPERF,
        benchmarks.GUIDELLM_CSV,
        benchmarks.GUIDELLM_CONSOLE,
        benchmarks.VLLM_SWEEP,
        benchmarks.PEOPLES_TABLE,
        benchmarks.BESIDE,
        benchmarks.BATCHED,
        benchmarks.SWEEP,
        benchmarks.LLAMA_BENCH,
        benchmarks.PAIRS,
        benchmarks.LIST,
        benchmarks.THOUSANDS,
    ],
    "nccl_tests": [results.NCCL_NEW, results.NCCL_OLD],
    "nsys": [results.NSYS_TEXT, results.NSYS_CSV],
    "llamacpp": [results.LLAMA_TOOL, results.LLAMA_SERVER * 2, console.LLAMA_PERF],
    "prometheus_api": prometheus_samples.API,
    "console": [
        *console.BETWEEN_WORDS,
        benchmarks.OFFLINE,
        benchmarks.TRTLLM_BENCH,
    ],
    "golden_acceptance": [results.GOLDEN],
    "yaml": [json_samples.YAML],
    "chrome_trace": [results.trace_text(), results.trace_text(indent=1)],
}


def reader_of(name: str) -> Reader:
    piece = 500 if name == "chrome_trace" else 1 << 20
    return lambda data: parse(name, data, piece=piece)


SEEDS = {name: (reader_of(name), texts) for name, texts in TEXTS.items()}
SEEDS["page"] = (lambda data: parse("table", plain(data)), benchmarks.PAGES)


def seeds(count: int) -> range:
    """Seeds of a run: other ones each time, but in CI."""
    first = 0 if "CI" in os.environ else random.Random().randrange(1 << 40)
    return range(first, first + count)


def chosen(name: str, seed: int) -> tuple[str, random.Random]:
    """A sample of a reader, and the random numbers with which it is damaged."""
    rng = random.Random(seed)
    return rng.choice(SEEDS[name][1]), rng


def checked(entries: list[LogEntry]) -> dict[str, object]:
    """Return the document, having checked what must hold of any."""
    document = document_of(entries)
    for entry in entries:
        windows = entry.windows
        assert windows.read == windows.used + sum(windows.dropped.values())
        assert all(count > 0 for count in entry.unread.values())
        assert set(entry.codes) <= set(CODES)
        for row in entry.rows:
            assert row.accept_length is None or row.accept_length >= 1
            assert row.output_tps is None or row.output_tps >= 0
            assert all(0 <= s <= 1.0000001 for s in row.survival or ())
        for timing in entry.timings:
            assert timing.seconds > 0
    return document


def figures(document: dict[str, object]) -> tuple[set[float], set[float]]:
    """Numbers that were measured (not counts of lines), and those of the settings."""
    found: tuple[set[float], set[float]] = (set(), set())
    skip = ("windows", "unread_lines", "diagnoses", "prefill_batches", "count", "rank")
    stack: list[tuple[object, int]] = [(document, 0)]
    while stack:
        node, kind = stack.pop()
        if isinstance(node, dict):
            stack += [(v, 1 if k == "settings" else kind) for k, v in node.items() if k not in skip]
        elif isinstance(node, list):
            stack += [(v, kind) for v in node]
        elif isinstance(node, int | float) and not isinstance(node, bool):
            found[kind].add(float(node))
    return found


def written(data: bytes) -> set[float]:
    """Numbers that stand in a text."""
    return set(map(float, re.findall(rb"\d+(?:\.\d+)?", data)))


@lru_cache
def said_of(name: str, text: str) -> tuple[set[float], set[float]]:
    """Figures of an undamaged sample."""
    return figures(checked(SEEDS[name][0](text.encode())))


def faithful_case(name: str, seed: int) -> None:
    """Check that a reader says no number of a damaged file that the file does not say."""
    text, rng = chosen(name, seed)
    data = text.encode()
    said, said_settings = said_of(name, text)
    damaged = mutate.faithful(data, rng)
    ranks = re.compile(rb"\d DP\d TP0\] Decode batch")
    if len(ranks.findall(damaged)) < len(ranks.findall(data)):
        return  # nothing may be left that tells of the other rank
    if name == "llamacpp" and -1 < damaged.find(b"eval time") < damaged.find(b"draft:"):
        return  # timings of drafter and target have one form: their place tells them apart
    found, found_settings = figures(checked(SEEDS[name][0](damaged)))
    extra = found - said
    if name == "nsys":  # a kernel whose name is damaged is no all-reduce any more
        extra -= {float(f"{1e-9 * w:.6g}") for w in written(data)}
    if name == "console":  # a prompt is worked out of its prefill, and lines change places
        w = [x for x in written(damaged) if x > 0]
        extra -= {float(round(tps * s / n)) for tps in w for s in w for n in w}
    assert not extra, (seed, extra, damaged)
    # Where one line that states a setting is lost, another may state it.
    extra = found_settings - said_settings - written(data)
    assert not extra, (seed, extra, damaged)


def wild_case(name: str, seed: int) -> None:
    """Check that a reader comes to an end with a document that holds."""
    text, rng = chosen(name, seed)
    damaged = mutate.wild(text.encode(), rng)
    begun = time.perf_counter()
    try:
        with counted_windows() as windows:
            entries = SEEDS[name][0](damaged)
    except Exception as error:
        raise AssertionError((seed, damaged)) from error
    assert time.perf_counter() - begun < SECONDS_PER_CASE, (seed, damaged)
    checked(entries)
    if name == "sglang_log":
        assert_windows_stand_in_the_text(windows, damaged, seed)


def file_case(name: str, seed: int, path: Path) -> None:
    """Check that a damaged file is read, or refused in words."""
    text, rng = chosen(name, seed)
    path.write_bytes(mutate.wild(text.encode(), rng))
    try:
        checked(read_file(path))
    except SpecsimError:
        return
    except Exception as error:
        raise AssertionError((name, seed)) from error


@pytest.mark.parametrize("name", SEEDS)
def test_no_number_that_the_file_does_not_say(name: str) -> None:
    for seed in seeds(CASES // 2):
        faithful_case(name, seed)


@pytest.mark.parametrize("name", SEEDS)
def test_no_crash_and_no_hang(name: str) -> None:
    for seed in seeds(CASES - CASES // 2):
        wild_case(name, seed)


@contextmanager
def counted_windows() -> Iterator[list[tuple[Windows, float, float]]]:
    """Note what a reader counts as a window: its server, running requests, tokens per second."""
    noted: list[tuple[Windows, float, float]] = []
    count = Windows.count

    def noting(self: Windows, w: Columns, reason: Any) -> None:
        noted.extend((self, *pair) for pair in zip(w["running"], w["output_tps"], strict=True))
        count(self, w, reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Windows, "count", noting)
        yield noted


def assert_windows_stand_in_the_text(
    windows: list[tuple[Windows, float, float]], data: bytes, seed: int
) -> None:
    """Each window of a single rank must be one line of the file."""
    text = data.replace(b"|END", b"")
    # a file may be cut right after a number
    lines = [line + b"," for line in text.splitlines() if b"Decode batch" in line]
    for server, running, tps in windows:
        if len(server.ranks.named) > 1:  # they are summed
            continue
        wanted = [b"#running-req: %d," % running, b"gen throughput (token/s): %.2f," % tps]
        # Leading zeros, which damage may add, do not change a number.
        found = any(all(w in _plain(line) for w in wanted) for line in lines)
        assert found, (seed, running, tps, data)


def _plain(line: bytes) -> bytes:
    line = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", line)
    return re.sub(rb": 0+(?=\d)", b": ", line)


def test_damaged_files_of_any_kind(tmp_path: Path) -> None:
    for name in SEEDS:
        for seed in seeds(max(CASES // 8, 4)):
            file_case(name, seed, tmp_path / "file")


def test_damaged_databases(tmp_path: Path) -> None:
    from test_profiles import nsys_export

    whole, path = tmp_path / "whole.sqlite", tmp_path / "damaged.sqlite"
    nsys_export(whole)
    data = whole.read_bytes()
    for seed in range(max(CASES // 4, 20)):
        rng = random.Random(seed)
        path.write_bytes(data[:16] + mutate.wild(data[16:], rng))
        try:
            checked(read_file(path))
        except SpecsimError:
            continue
        except Exception as error:
            raise AssertionError(seed) from error


@given(st.sampled_from(sorted(SEEDS)), st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_bytes(name: str, data: bytes) -> None:
    checked(SEEDS[name][0](data))


@given(
    st.sampled_from(sorted(SEEDS)),
    st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=6)), max_size=6),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_any_insertions(name: str, where: list[tuple[int, bytes]], rng: random.Random) -> None:
    reader, texts = SEEDS[name]
    data = rng.choice(texts).encode()
    for at, piece in where:
        at %= len(data) + 1
        data = data[:at] + piece + data[at:]
    checked(reader(data))
