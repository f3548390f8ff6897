"""Opening and recognising files: packed, piped, empty, binary, foreign, cut."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path

import benchmark_samples as benchmarks
import console_samples as console
import json_samples
import log_samples as logs
import prometheus_samples
import pytest
import result_samples as results
import zstandard

from specsim.errors import FormatError, InputError, SpecsimError
from specsim.logs import formats, read_file, require_usable
from specsim.logs.entry import CODES
from specsim.logs.format import detect_text, known_formats
from specsim.logs.source import open_source, split_lines

LOG = logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"])

FORMAT_OF = {
    "sglang_log": [
        LOG,
        logs.AB_PASTE,
        logs.SPEC_OFF,
        logs.PREFILL_ONLY,
        logs.STARTUP,
        logs.KV_BOUND,
        logs.WARNINGS,
    ],
    "vllm_log": [
        logs.VLLM,
        logs.VLLM_085,
        logs.VLLM_V0,
        logs.VLLM_FIRST,
        logs.VLLM_AB,
        logs.VLLM_UNUSED,
        logs.VLLM_STALLED,
        logs.VLLM_STARTUP,
    ],
    "trtllm_log": [results.TRT_LOG, results.TRT_OLD],
    "trtllm_stats": [
        results.json_lines(results.TRT_RECORD),
        results.json_lines(*json_samples.DP_RANKS),
    ],
    "prometheus": [
        results.SGLANG_PROM,
        results.VLLM_PROM,
        benchmarks.LLAMA_PROM,
        benchmarks.TRTLLM_PROM,
    ],
    "sglang_finish": [benchmarks.FINISH],
    "vllm_iterations": [logs.iteration_lines(3, 300.0, seconds=16)],
    "fpm": [results.json_lines(*json_samples.FPM)],
    "bench_json": [
        results.json_lines(results.SERVING_RECORD),
        results.json_lines(results.VLLM_RECORD),
        results.json_lines(results.ONE_BATCH_RECORD),
        results.json_lines(results.OFFLINE_RECORD),
        results.json_lines(*results.SPECULATIVE_RECORDS),
        results.json_lines(*results.HISTOGRAM_RECORDS),
        results.json_lines(json_samples.REQUEST_DRAFTS),
        *(results.json_lines(value) for value in json_samples.JSON),
        json_samples.MTP_BENCH,
        json_samples.NESTED,
    ],
    "table": [
        results.SERVING_TABLE,
        results.VLLM_QUEUED_TABLE,
        results.SEND_ONE,
        results.EVALSCOPE_CUT,
        benchmarks.UNDER_HEADINGS,
        benchmarks.ROUTED,
        benchmarks.TRTLLM_SERVING,
        benchmarks.JAX_GRID,
        benchmarks.AIPERF,
        benchmarks.AIPERF_CSV,
        benchmarks.GUIDELLM_CSV,
        benchmarks.GUIDELLM_CONSOLE,
        benchmarks.VLLM_SWEEP,
        benchmarks.EVALSCOPE_RICH,
        benchmarks.PEOPLES_TABLE,
        benchmarks.BESIDE,
        benchmarks.SWEEP_CSV,
        benchmarks.BATCHED,
        benchmarks.SWEEP,
        benchmarks.LLAMA_BENCH,
        benchmarks.LLAMA_BENCH_CSV,
    ],
    "nccl_tests": [results.NCCL_NEW, results.NCCL_OLD],
    "nsys": [results.NSYS_TEXT, results.NSYS_CSV],
    "chrome_trace": [results.trace_text(), results.trace_text(indent=2)],
    "llamacpp": [results.LLAMA_TOOL, results.LLAMA_SERVER, console.LLAMA_PERF],
    "launch": ["$ vllm serve org/m -tp 4 --max-num-seqs 8\n"],
    "console": [
        *console.CONSOLE,
        benchmarks.OFFLINE,
        benchmarks.BENCH_THROUGHPUT,
        benchmarks.TRTLLM_BENCH,
    ],
    "prometheus_api": prometheus_samples.API,
    "golden_acceptance": [results.GOLDEN],
    "yaml": [json_samples.YAML],
    "probe": ['{"schema": "specsim.probe/1", "date": ""}', '{\n "schema": "specsim.probe/1",\n'],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in FORMAT_OF.items() for text in texts]
)
def test_detection_by_content(name: str, text: str) -> None:
    for above in ("", "# a comment of the person who pasted it\n"):
        found = detect_text((above + text).encode())
        assert found is not None
        assert found.name == name


READERS = """
import sys
from specsim.logs import read_file
read_file(sys.argv[1])
print(*sorted(m for m in sys.modules if m.startswith("specsim.logs.formats.")))
"""


def test_a_log_imports_the_reader_of_its_format_only(tmp_path: Path) -> None:
    words = [sys.executable, "-c", READERS, write(tmp_path, LOG.encode())]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    ours = "specsim.logs.formats.sglang"
    assert done.stdout.split() == [ours, f"{ours}.lines"]


def test_every_format_is_tested() -> None:
    assert set(FORMAT_OF) == {f.name for f in known_formats()}


CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
TOY = CONTRIBUTING.read_text().partition("```python\n")[2].partition("```")[0]
"""The format that the page shows."""


def test_a_new_format_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write(
        tmp_path, b"loading\ntoy engine, tok/s: 812.5\ntoy engine, tok/s: 8x.5\n", "toy.log"
    )
    with pytest.raises(FormatError, match="in no format"):
        read_file(log)
    write(tmp_path, TOY.encode(), "toy.py")
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    (entry,) = read_file(log)
    require_usable([entry])
    assert (entry.format, entry.rows[0].output_tps) == ("toy_log", 812.5)
    assert entry.unread == {"damaged field": 1}


def write(tmp_path: Path, data: bytes, name: str = "file") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def packed(kind: str, data: bytes) -> bytes:
    if kind == "gzip":
        return gzip.compress(data, mtime=0)
    return zstandard.ZstdCompressor().compress(data) if kind == "zstd" else data


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd"])
def test_packed_files_whatever_their_name(kind: str, tmp_path: Path) -> None:
    (entry,) = read_file(write(tmp_path, packed(kind, LOG.encode()), "a.txt"))
    assert entry.windows.used == 8


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd"])
def test_standard_input(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(packed(kind, LOG.encode())))
    monkeypatch.setattr(sys, "stdin", stream)
    (entry,) = read_file("-")
    assert (entry.path, entry.windows.used) == ("-", 8)


def test_members_of_gzip_are_joined(tmp_path: Path) -> None:
    data = gzip.compress(LOG.encode()) + gzip.compress(LOG.encode())
    assert sum(e.windows.used for e in read_file(write(tmp_path, data))) == 16


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_packed_file_that_is_cut(kind: str, tmp_path: Path) -> None:
    # Incompressible lines, so that half of the packed bytes is about half of the text.
    body = logs.DECODE_SPEC["0.5.9-0.5.23"]
    text = "".join(
        logs.decode_lines(body.replace("30720", str(10_000 + 7919 * i % 90_000)), 1, start=i)
        for i in range(60_000)
    )
    data = packed(kind, text.encode())
    entries = read_file(write(tmp_path, data[: len(data) // 2]))
    assert 0 < sum(e.windows.used for e in entries) < 60_000
    assert "truncated" in entries[-1].codes


def test_zstd_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(FormatError, match=r"specsim-llm\[zstd\]"):
        read_file(write(tmp_path, packed("zstd", LOG.encode())))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_encodings_of_redirected_logs(encoding: str, tmp_path: Path) -> None:
    (entry,) = read_file(write(tmp_path, LOG.encode(encoding)))
    assert entry.windows.used == 8


def test_windows_line_ends(tmp_path: Path) -> None:
    (entry,) = read_file(write(tmp_path, LOG.replace("\n", "\r\n").encode()))
    assert (entry.windows.used, entry.rows[0].queue) == (8, 7)


def test_progress_bar_before_a_line(tmp_path: Path) -> None:
    text = "".join(f"  5%|▌    | 5/100\r{line}" for line in LOG.splitlines(keepends=True))
    (entry,) = read_file(write(tmp_path, text.encode()))
    assert entry.windows.used == 8


def test_cut_within_a_character(tmp_path: Path) -> None:
    data = (LOG + "[2026-03-04 05:06:59 TP0] café").encode()[:-1]
    (entry,) = read_file(write(tmp_path, data))
    assert entry.windows.used == 8


def test_late_first_line_is_found(tmp_path: Path) -> None:
    noise = '[2026-03-04 05:06:00] INFO:  1.2.3.4:5 - "POST /generate HTTP/1.1" 200 OK\n'
    (entry,) = read_file(write(tmp_path, (noise * 40_000 + LOG).encode()))
    assert entry.windows.used == 8


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "holds no data"),
        (gzip.compress(LOG.encode(), mtime=0)[:20], "ends early"),
        (bytes(range(256)) * 64, "is binary"),
        (b"\x7fELF" + bytes(4000), "is binary"),
        (b"The quick brown fox\njumps over the lazy dog\n" * 50, "in no format"),
        (b"2026-03-04 nginx: GET / 200\n" * 1000, "in no format"),
        (b'{"some": "json"}\n', "in no format"),
        (b"SQLite format 3\x00" + bytes(50), "SQLite"),
    ],
)
def test_files_that_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecsimError, match=message):
        read_file(write(tmp_path, data))


def test_names_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_file(tmp_path / "none.log")
    with pytest.raises(InputError, match="is a directory"):
        read_file(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (logs.PREFILL_ONLY, "6 prefill lines"),
        (logs.STARTUP, "algorithm EAGLE3"),
        (LOG.replace("#running-req: 24", "#running-req: 0"), "8 idle"),
        (LOG.replace("2880.00", "2880.0"), "8 lines unread"),
        (
            results.json_lines({**results.SERVING_RECORD, "completed": 0}),
            "no request completed",
        ),
    ],
)
def test_nothing_usable(text: str, message: str, tmp_path: Path) -> None:
    entries = read_file(write(tmp_path, text.encode()))
    with pytest.raises(FormatError, match=f"no calibration data.*{message}"):
        require_usable(entries)


def test_lines_longer_than_any_engine_writes() -> None:
    assert [len(line) for line in split_lines([b"x" * (40 << 20)] * 3 + [b"\nab"])] == [
        80 << 20,
        (40 << 20) + 1,
        2,
    ]


def test_source_gives_a_database_only_as_a_file(tmp_path: Path) -> None:
    data = gzip.compress(b"SQLite format 3\x00" + bytes(50))
    with pytest.raises(FormatError, match="unpack it"), open_source(write(tmp_path, data)):
        pass


def test_codes_are_those_of_the_contract() -> None:
    contract = (
        "capped prefill_mixed eager speculation_off zero_acceptance partial_drafting retraction "
        "accept_rate_definition bonus_excluded ranks_summed queue_dominated itl_per_chunk "
        "truncated acceptance_drift one_rank"
    )
    assert set(contract.split()) == set(CODES)
