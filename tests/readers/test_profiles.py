"""Profiler traces, Nsight Systems, nccl-tests."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import result_samples as results
from parsing import parse, parse_one

from specsim.errors import FormatError
from specsim.logs import Timing, read_file

approx = pytest.approx


def by_phase(timings: tuple[Timing, ...]) -> dict[str, Timing]:
    return {t.phase: t for t in timings}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
def test_trace_in_chunks_of_any_size(indent: int | None, size: int) -> None:
    text = results.trace_text(indent=indent)
    (entry,) = parse("chrome_trace", text, "run-TP-3.trace.json", piece=size)
    found = by_phase(entry.timings)
    assert (found["verify"].seconds, found["verify"].batch_size) == (approx(8e-3), 16)
    assert (found["extend"].seconds, found["extend"].count) == (approx(2e-3), 3)
    # A draft span names no batch: it is that of the verification that follows.
    assert (found["draft"].seconds, found["draft"].batch_size) == (approx(1e-3), 16)
    assert found["allreduce"].seconds == approx(12.5e-6)
    assert found["allreduce"].batch_size == 16
    assert found["allreduce"].rank == 3
    assert (entry.engine, entry.unread) == ("sglang", {})


def test_trace_that_is_cut_or_damaged() -> None:
    data = results.trace_text().encode()
    cut = parse_one("chrome_trace", data[:-300])
    assert cut.codes == ("truncated",)
    assert by_phase(cut.timings)["extend"].count == 2
    broken = data.replace(b'"dur": 8000.0', b'"dur": 80"00.0', 1)
    entry = parse_one("chrome_trace", broken)
    assert entry.unread == {"damaged event": 1}
    assert by_phase(entry.timings)["verify"].count == 2
    assert by_phase(entry.timings)["extend"].count == 3


def test_vllm_trace() -> None:
    name = "execute_context_0(0)_generation_8(32)"
    event = f'{{"ph":"X","cat":"gpu_user_annotation","name":"{name}","pid":0,"ts":1,"dur":7000}}'
    entry = parse_one("chrome_trace", f'{{"traceEvents":[{event}]}}'.encode())
    (timing,) = entry.timings
    assert (timing.phase, timing.batch_size, timing.seconds) == ("verify", 8, approx(7e-3))
    assert entry.engine == "vllm"


@pytest.mark.parametrize("text", [results.NSYS_TEXT, results.NSYS_CSV])
def test_kernel_summary(text: str) -> None:
    entry = parse_one("nsys", text)
    found = by_phase(entry.timings)
    assert (found["allreduce"].seconds, found["allreduce"].count) == (approx(9e-6), 1000)
    assert found["kernel"].seconds == approx(29e-6)
    assert found["kernel"].name.startswith("void flash_fwd_kernel<float")


def test_kernel_summary_with_grid_columns() -> None:
    text = results.NSYS_TEXT.replace("4000.0  nccl", "4000.0     8    1    1   256    1    1  nccl")
    entry = parse_one("nsys", text)
    assert by_phase(entry.timings)["allreduce"].name.startswith("nccl")


def test_kernel_summary_that_contradicts_itself() -> None:
    entry = parse_one("nsys", results.NSYS_CSV.replace("20000000", "29000000"))
    assert entry.unread == {"numbers contradict each other": 1}
    assert len(entry.timings) == 1


def nsys_export(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        db.execute("CREATE TABLE NVTX_EVENTS (start INT, end INT, text TEXT, textId INT)")
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, demangledName INT)"
        )
        db.executemany(
            "INSERT INTO StringIds VALUES (?, ?)",
            [
                (1, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"),
                (2, "gemm"),
                (3, "step[VERIFY bs=4]"),
            ],
        )
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)",
            [(0, 9000, 1), (10, 9010, 1), (0, 50_000, 2)],
        )
        db.execute("INSERT INTO NVTX_EVENTS VALUES (0, 6000000, NULL, 3)")
    db.close()


def test_nsys_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    nsys_export(path)
    (entry,) = read_file(path)
    found = by_phase(entry.timings)
    assert (found["allreduce"].seconds, found["allreduce"].count) == (approx(9e-6), 2)
    assert (found["verify"].seconds, found["verify"].batch_size) == (approx(6e-3), 4)


def test_nsys_sqlite_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    nsys_export(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(FormatError, match=r"SQLite|no table"):
        read_file(path)


def test_nccl_new_layout() -> None:
    entry = parse_one("nccl_tests", results.NCCL_NEW)
    assert [(t.size_bytes, t.seconds) for t in entry.timings] == [
        (65536, approx(50e-6)),
        (1048576, approx(400e-6)),
    ]
    assert {t.ranks for t in entry.timings} == {4}
    assert entry.settings["gpu"] == "NVIDIA GeForce RTX 4090"


def test_nccl_old_layout() -> None:
    entry = parse_one("nccl_tests", results.NCCL_OLD)
    assert [t.seconds for t in entry.timings] == approx([20e-6, 100e-6])
    assert entry.timings[0].ranks == 2  # bus and algorithm bandwidth are equal


def test_nccl_size_column_of_another_unit() -> None:
    # A pasted table whose size column is twice what bandwidth and time say: sizes are kept as
    # they stand, and the factor is told.
    first, second, *rest = results.NCCL_OLD.splitlines(keepends=True)
    middle = second.replace("1048576", "1048577")
    text = "".join([first, second, middle, *rest])
    text = text.replace(" 65536 ", "131072 ").replace("1048576", "2097152")
    entry = parse_one("nccl_tests", text.replace("1048577", "2097153"))
    assert [t.size_bytes for t in entry.timings] == [131072, 2097152, 2097153]
    assert entry.settings["size_over_algbw_times_time"] == approx(2, rel=0.01)


def test_nccl_row_that_contradicts_itself() -> None:
    entry = parse_one("nccl_tests", results.NCCL_NEW.replace("   400.00", "   900.00"))
    assert len(entry.timings) == 1
    assert entry.unread == {"numbers contradict each other": 1}


def test_nccl_cut() -> None:
    entry = parse_one("nccl_tests", results.NCCL_NEW[: results.NCCL_NEW.index("   390.00")])
    assert len(entry.timings) == 1
    assert entry.unread_lines == 1
