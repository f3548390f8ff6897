"""Hostile logs: bombs, lines of endless kinds, escape sequences, numbers that cannot be."""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from log_samples import STARTUP
from parsing import checked_document
from result_samples import SERVING_RECORD, json_lines
from test_fuzz import SEEDS, checked

from specsim.cli.main import run
from specsim.errors import SpecsimError
from specsim.logs import read_file
from specsim.logs.document import log_json


def told_by(tmp_path: Path, text: str) -> dict[str, Any]:
    """What ``read --json`` says of a log."""
    file = tmp_path / "log\x1b[31m"
    file.write_text(text, encoding="utf-8")
    (entry,) = read_file(file)
    document = checked_document(log_json([entry]))
    return dict(document["files"][0])


@pytest.mark.parametrize("key", ["mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms"])
def test_no_time_is_negative(tmp_path: Path, key: str) -> None:
    whole = told_by(tmp_path, json_lines(SERVING_RECORD))
    damaged = told_by(tmp_path, json_lines({**SERVING_RECORD, key: -SERVING_RECORD[key]}))
    assert whole["unread_lines"] == 0
    for row in damaged["rows"]:
        assert all(row[name] is None or row[name] >= 0 for name in ("ttft_s", "tpot_s"))


def test_no_accept_length_above_what_the_setting_can_emit(tmp_path: Path) -> None:
    """Three steps and four draft tokens emit at most four."""
    for length, kept in ((3.99, True), (4.2, False), (642.0, False)):
        lines = STARTUP + "".join(
            f"[2026-03-04 05:06:{i:02d} TP0] Decode batch, #running-req: 3, #token: 900, "
            f"token usage: 0.10, accept len: {length:.2f}, accept rate: 0.50, cuda graph: True, "
            "gen throughput (token/s): 100.00, #queue-req: 0, \n"
            for i in range(8)
        )
        told = told_by(tmp_path, lines)
        assert told["settings"]["num_draft_tokens"] == 4
        assert (told["accept_length"] is not None) is kept
        assert (told["unread_lines"] == 0) is kept


def test_escape_sequences_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    red = "\x1b]0;red\x07\x1b[31m"
    file = tmp_path / f"{red}.log".replace("/", "")
    record = {**SERVING_RECORD, "backend": red, "tag": red, "dataset_name": red}
    file.write_text(f"{red}\n{json_lines(record)}", encoding="utf-8")
    for form in ((), ("--json",), ("--csv",)):
        assert run(("read", str(file), *form)) == 0
        told = "".join(capsys.readouterr())
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", told)


def gz(path: Path, piece: bytes, times: int) -> Path:
    """A member of a gzip file, repeated: its decompressed size costs no time to make."""
    path.write_bytes(gzip.compress(piece * (4_000_000 // len(piece))) * times)
    return path


BOMBS = {
    "one line": b"a",
    "text": b"[2026-03-04 05:06:07] INFO: - GET /health HTTP/1.1 200 OK\n",
    "log": b"[2026-03-04 05:06:07] Decode batch, #running-req: 3, #token: 4, token usage: 0.10, "
    b"gen throughput (token/s): 10.00, #queue-req: 0, \n",
    "json": b'{"a":[',
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOMBS)
def test_a_file_that_unpacks_to_a_gigabyte(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    bomb = gz(tmp_path / "log.gz", BOMBS[kind], 250)
    assert bomb.stat().st_size < 5e6
    began = time.process_time()
    assert run(("read", str(bomb))) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert time.process_time() - began < 20
    assert "200 times its size" in told or "in no format" in told


KINDS = {
    "decode": "[2026-03-04 05:06:07] Decode batch, #running-req: 3, x{0}: 3, #token: 4, "
    "gen throughput (token/s): 10.00, #queue-req: 0, \n",
    "metrics": 'vllm:num_requests_running{{engine="{0}"}} 3\n',
    "kernels": '1.0,1200,3,400.0,400.0,100,900,1.0,"ncclDevKernel_AllReduce_x{0}"\n',
    "steps": '{{"ph":"X","cat":"user_annotation","name":"step[DECODE bs={1}]","pid":0,"ts":1.5,'
    '"dur":5.25}},\n',
}
HEADS = {
    "kernels": "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),"
    "StdDev (ns),Name\n",
    "steps": '{"traceEvents":[\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_memory_and_time_of_a_log_whose_lines_are_all_of_another_kind(
    tmp_path: Path, kind: str
) -> None:
    """4 MB: it takes what an ordinary log takes, or one line says that it takes too long."""
    rng = random.Random(7)
    line, file = KINDS[kind], tmp_path / "log"
    lines = (line.format(f"{rng.randrange(1 << 30):x}", i) for i in range(4_000_000 // len(line)))
    file.write_text(HEADS.get(kind, "") + "".join(lines), encoding="utf-8")
    code = (
        "import sys, time; from specsim.cli.main import run;"
        f"print(run(['read', {str(file)!r}, '--json']));"
        # ru_maxrss would be the parent's: Linux keeps it over fork and exec
        "peak = next(int(l.split()[1]) for l in open('/proc/self/status') if 'VmHWM' in l);"
        "print(peak, time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, code_said, used = done.stdout.splitlines()
    kilobytes, seconds = map(float, used.split())
    assert kilobytes < 250_000
    assert seconds < 20
    assert code_said in ("0", "2")
    assert done.stderr.count("\n") <= 1
    assert "bug" not in done.stderr


NUMBERS = ("9" * 5000, "9" * 400, "1e308", "1e-320", "-5", "0")


@pytest.mark.parametrize("name", SEEDS)
def test_numbers_that_no_engine_prints(name: str) -> None:
    """In the place of any: Python refuses 4,300 digits, and floats end at 308."""
    reader, texts = SEEDS[name]
    for text in texts:
        places = list(re.finditer(r"\d+(?:\.\d+)?", text))
        for place in places[:: max(len(places) // 8, 1)]:
            for number in NUMBERS:
                damaged = text[: place.start()] + number + text[place.end() :]
                with suppress(SpecsimError):
                    checked(reader(damaged.encode()))


def test_servers_that_start_again_and_again(tmp_path: Path) -> None:
    """Nothing waits to be read where one start follows another, or a prefill comes last."""
    lines = "".join(
        f"[2026-03-04 05:06:{i:02d} TP0] Decode batch, #running-req: 3, #token: 900, "
        "token usage: 0.10, cuda graph: True, gen throughput (token/s): 100.00, #queue-req: 0, \n"
        for i in range(8)
    )
    prefill = "[2026-03-04 05:06:09 TP0] Prefill batch, #new-seq: 1, #new-token: 9, "
    text = STARTUP + lines + STARTUP + STARTUP + lines + prefill + "#cached-token: 0, \n" + STARTUP
    file = tmp_path / "log"
    file.write_text(text, encoding="utf-8")
    assert [len(entry.rows) for entry in read_file(file)][:1] == [1]


def test_metrics_of_nothing_that_is_known(tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    file.write_text("# TYPE llamacpp:other_total counter\nllamacpp:other_total 9500\n" * 3)
    assert [entry.rows for entry in read_file(file)] == [()]
