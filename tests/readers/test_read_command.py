"""``specsim read``: table, CSV, JSON, refusals."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import log_samples as logs
import pytest
import result_samples as results
from click.testing import CliRunner, Result
from parsing import checked_document

from specsim.cli.read import read_command
from specsim.errors import FormatError, InputError
from specsim.logs import read_file
from specsim.logs.document import CSV_COLUMNS, UNSTATED
from specsim.observations import COLUMNS

LOG = logs.STARTUP + logs.decode_lines(logs.DECODE_SPEC["0.5.9-0.5.23"])


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(read_command, list(arguments), input=stdin, env={"COLUMNS": "120"})


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(LOG)
    return str(path)


def test_table(log: str) -> None:
    result = run(log)
    assert result.exit_code == 0, result.output
    for text in ("sglang_log", "EAGLE3", "24.0", "2880.0", "2.40", "20.00", "8 read, 7 used"):
        assert text in result.output
    assert "1 ramp" in result.output
    assert "accept_rate_definition" in result.output


def test_json(log: str) -> None:
    result = run(log, "--json")
    document = json.loads(result.stdout)
    checked_document(result.stdout)
    (file,) = document["files"]
    assert list(file) == [
        *("path", "format", "engine", "engine_version", "settings", "concurrency", "batch_size"),
        *("output_tps", "accept_length", "survival", "tpot_s", "ttft_s", "round_time_s"),
        *("windows", "rows", "diagnoses", "unread_lines"),
    ]
    assert list(file["settings"])[:4] == ["algorithm", "topk", "num_steps", "num_draft_tokens"]
    assert (file["output_tps"], file["batch_size"], file["concurrency"]) == (2880, 24, 31)
    assert file["windows"] == {"read": 8, "used": 7, "dropped": {"ramp": 1}}
    assert file["rows"][0]["windows"] == file["windows"]
    assert (file["tpot_s"], file["survival"]) == (None, None)


def test_several_files_give_several_entries(log: str, tmp_path: Path) -> None:
    other = tmp_path / "paste.txt"
    other.write_text(logs.AB_PASTE)
    files = json.loads(run(log, str(other), "--json").stdout)["files"]
    assert [f["accept_length"] for f in files] == [2.4, 1.0, 2.75]
    assert [f["settings"].get("label") for f in files] == [None, "without eagle", "with eagle"]


def test_timings_are_in_the_document(tmp_path: Path) -> None:
    path = tmp_path / "x-TP-0.trace.json"
    path.write_text(results.trace_text())
    result = run(str(path), "--json")
    checked_document(result.stdout)
    timings = json.loads(result.stdout)["files"][0]["timings"]
    assert {t["phase"] for t in timings} == {"draft", "verify", "extend", "allreduce"}
    assert "allreduce" in run(str(path)).output


def test_csv(log: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run(log, "--csv").stdout)))
    assert set(rows[0]) <= set(COLUMNS)
    (row,) = rows
    assert (row["kind"], row["algorithm"], row["topk"]) == ("steady_decode", "EAGLE3", "1")
    assert (row["concurrency"], row["output_tps"], row["source"]) == ("24", "2880", "server.log")
    assert {*CSV_COLUMNS, *UNSTATED} == set(COLUMNS)


def test_standard_input() -> None:
    assert json.loads(run("-", "--json", stdin=LOG).stdout)["files"][0]["path"] == "-"


def test_output_file(log: str, tmp_path: Path) -> None:
    for option, start in (("--json", "{"), ("--csv", "kind,"), (None, log)):
        out = tmp_path / "out"
        result = run(log, "-o", str(out), *([option] if option else []))
        assert (result.exit_code, result.stdout) == (0, "")
        assert out.read_text().startswith(start)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 64,
        b"hello\n" * 99,
        logs.PREFILL_ONLY.encode(),
        LOG.encode()[:900] + b"\xc3",
    ],
)
def test_nothing_is_written_for_a_file_that_measures_nothing(data: bytes, tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "out.json"
    path.write_bytes(data)
    result = run(str(path), "--json", "-o", str(out))
    assert isinstance(result.exception, FormatError)
    assert result.stdout == ""
    assert [p.name for p in tmp_path.iterdir()] == ["log"]


def test_one_bad_file_of_two_refuses_both(log: str, tmp_path: Path) -> None:
    result = run(log, str(tmp_path / "none.log"), "--json")
    assert isinstance(result.exception, InputError)
    assert result.stdout == ""


def test_wrong_use(log: str, tmp_path: Path) -> None:
    assert isinstance(run(log, "--json", "--csv").exception, InputError)
    assert isinstance(run(log, "-o", str(tmp_path / "no" / "where")).exception, InputError)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ('schema = "specsim.profile/1"\nname = "mine"\n', "--profile"),
        ('schema = "specsim.setup/1"\n[hardware]\n', "--setup"),
        ('{"model_type": "qwen3", "hidden_size": 4096}\n', "--model"),
    ],
)
def test_a_file_of_another_option_is_told_by_it(tmp_path: Path, text: str, option: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(FormatError, match=f"{option} takes it"):
        read_file(path)
