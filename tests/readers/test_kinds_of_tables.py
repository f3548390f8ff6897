"""Tables of people that a blind test found misread: each right reading is a row."""

from __future__ import annotations

from pathlib import Path

import pytest
import result_samples
from parsing import parse, parse_one, read

from specsim.errors import FormatError
from specsim.logs.format import require_usable
from specsim.logs.formats._benchmarks import column_of

LOADS = [(1, 92.7), (16, 1234.5)]


@pytest.mark.parametrize(
    "text",
    [
        "| clients | tok/s |\n|---|---|\n| 1 | 92,7 |\n| 16 | 1.234,5 |\n",
        "clients;tok/s\n1;92,7\n16;1234,5\n",
        "| clients | tok/s |\n|---|---|\n| 1 | 92,7 |\n| 16 | 1 234,5 |\n",
        "| clients | tok/s |\n|---|---|\n| 1 | 92.7 |\n| 16 | 1'234.5 |\n",
        "| clients | tok/s (total) |\n|---|---|\n| 1 | **92.7** (±0.3) |\n| 16 | 1,234.5 (±2) |\n",
        "| 并发数 | 吞吐 (tok/s) |\n|---|---|\n| 1 | 92.7 |\n| 16 | 1234.5 |\n",
        "concurrency   tok/s\n-----------   ------\n1               92.7\n16            1234.5\n",
        "   concurrency   tok/s\n0            1    92.7\n1           16  1234.5\n",
        "===========  ======\nconcurrency  tok/s\n===========  ======\n1            92.7\n"
        "16           1234.5\n===========  ======\n",
        "| | c=1 | c=16 |\n|---|---|---|\n| throughput (tok/s) | 92.7 | 1234.5 |\n",
        "| Metric | A | B |\n|---|---|---|\n| Output token throughput (tok/s) | 92.7 | 1234.5 |\n"
        "| Concurrency | 1 | 16 |\n",
        "| | tok/s | Note |\n|---|---|---|\n| 1 client | 92.7 | |\n| 16 clients | 1234.5 | |\n",
        "concurrency,output_tok_s\n1,92.7\n16,1234.5\n",
        "||clients||tok/s||\n|1|92.7|\n|16|1234.5|\n",
        '[{"concurrency": 1, "output_tokens_per_second": 92.7, "note": null},\n'
        ' {"concurrency": 16, "output_tokens_per_second": 1234.5, "note": "warm"}]\n',
        '{"clients": 1, "tps": 92.7}\n{"clients": 16, "tps": 1234.5}\n',
    ],
)
def test_tables_of_people(tmp_path: Path, text: str) -> None:
    rows = [row for entry in read(tmp_path, text) for row in entry.rows]
    assert [(row.concurrency, row.output_tps) for row in rows] == LOADS


def test_figures_in_rows_and_servers_in_columns(tmp_path: Path) -> None:
    text = (
        "| Metric | Baseline | EAGLE3 |\n|---|---|---|\n| Concurrency | 8 | 8 |\n"
        "| Output token throughput (tok/s) | 400.1 | 600.2 |\n| Mean TPOT (ms) | 18.0 | 12.0 |\n"
        "| Accept length | - | 2.7 |\n"
    )
    plain, drafting = read(tmp_path, text)
    assert (plain.settings["algorithm"], plain.rows[0].accept_length) == ("none", None)
    assert (drafting.settings["algorithm"], drafting.rows[0].accept_length) == ("EAGLE3", 2.7)
    assert (drafting.rows[0].tpot_s, drafting.rows[0].output_tps) == (pytest.approx(0.012), 600.2)


def test_a_speed_that_falls_with_clients_is_of_one_of_them(tmp_path: Path) -> None:
    text = "| users | TPS |\n|---|---|\n| 1 | 92.7 |\n| 4 | 90 |\n| 16 | 50 |\n"
    (entry,) = read(tmp_path, text)
    assert [row.concurrency for row in entry.rows] == [1]
    assert entry.unread == {"speed of one request or all": 2}
    text = "| users | ISL | TPS |\n|---|---|---|\n| 1 | 100 | 90 |\n| 16 | 30000 | 60 |\n"
    (entry,) = read(tmp_path, text)
    assert len(entry.rows) == 2


@pytest.mark.parametrize(
    ("head", "algorithm"), [("cuda graph", None), ("prefix cache", None), ("speculation", "none")]
)
def test_what_is_off(tmp_path: Path, head: str, algorithm: str | None) -> None:
    text = f"| {head} | clients | tok/s |\n|---|---|---|\n| off | 1 | 90 |\n| on | 1 | 99 |\n"
    off, on = read(tmp_path, text)
    assert (off.settings.get("algorithm"), on.settings.get("algorithm")) == (algorithm, None)


PLAIN, EAGLE = [(1, 92.7), (16, 1234.5)], [(1, 160.0), (16, 1500.0)]


@pytest.mark.parametrize(
    ("text", "accept", "steps"),
    [
        (
            "| bs | baseline tok/s | EAGLE-3 tok/s | EAGLE-3 accept len |\n|---|---|---|---|\n"
            "| 1 | 92.7 | 160 | 2.9 |\n| 16 | 1,234.5 | 1,500 | 2.9 |\n",
            2.9,
            None,
        ),
        (
            "| bs | no spec tok/s | EAGLE3 tok/s | accept length |\n|---|---|---|---|\n"
            "| 1 | 92.7 | 160 | 2.9 |\n| 16 | 1234.5 | 1500 | 2.9 |\n",
            2.9,
            None,
        ),
        (
            "clients\tEAGLE3\ttok/s\n1\toff\t92.7\n16\toff\t1234.5\n1\ton\t160\n16\ton\t1500\n",
            None,
            None,
        ),
        (
            "Output throughput (tok/s):\n\n| Setup | c=1 | c=16 |\n|---|---|---|\n"
            "| w/o spec | 92.7 | 1234.5 |\n| EAGLE3 k=3 | 160.0 | 1500 |\n",
            None,
            3,
        ),
        (
            "| tok/s | 1 client | 16 clients |\n|---|---|---|\n"
            "| baseline | 92.7 | 1234.5 |\n| with eagle-3 (k=3) | 160.0 | 1500 |\n",
            None,
            3,
        ),
    ],
)
def test_two_servers_in_one_table(
    tmp_path: Path, text: str, accept: float | None, steps: int | None
) -> None:
    """Side by side, one below the other, with the loads in columns."""
    plain, drafts = read(tmp_path, text)
    assert [(row.concurrency, row.output_tps) for row in plain.rows] == PLAIN
    assert [(row.concurrency, row.output_tps) for row in drafts.rows] == EAGLE
    assert (plain.settings["algorithm"], drafts.settings["algorithm"]) == ("none", "EAGLE3")
    assert {row.accept_length for row in drafts.rows} == {accept}
    assert {row.accept_length for row in plain.rows} <= {None, 1.0}
    assert drafts.settings.get("num_steps") == steps


def test_times_of_two_servers_in_one_table(tmp_path: Path) -> None:
    text = (
        "| c | base tok/s | MTP tok/s | base TPOT (ms) | MTP TPOT (ms) | p99.9 TTFT (ms) |\n"
        "|---|---|---|---|---|---|\n| 4 | 100 | 200 | 40 | 20 | 900 |\n"
    )
    plain, drafts = read(tmp_path, text)
    assert (plain.rows[0].tpot_s, drafts.rows[0].tpot_s) == (0.04, 0.02)
    assert plain.rows[0].ttft_s is None


def test_records_that_nobody_knows_are_none(tmp_path: Path) -> None:
    """Neither without a load, nor where a speed of each client falls."""
    with pytest.raises(FormatError, match="not a result that is known"):
        require_usable(read(tmp_path, '{"tps": 92.7}\n{"tps": 93.0}\n'))
    entries = read(tmp_path, '{"clients": 1, "tps": 90.0}\n{"clients": 16, "tps": 40.0}\n')
    assert [row.output_tps for entry in entries for row in entry.rows] == [90.0]


def test_a_time_that_falls_with_more_clients_is_of_all(tmp_path: Path) -> None:
    """No 8 requests take a seventh of the time that one takes for a token of its own."""
    (entry,) = read(tmp_path, "bs,ms/token\n1,10.8\n8,1.6\n")
    assert [row.batch_size for row in entry.rows] == [1]
    assert entry.unread == {"speed of one request or all": 1}


def test_a_throughput_says_its_unit_in_its_head_or_its_cells(tmp_path: Path) -> None:
    said = "| clients | throughput |\n|---|---|\n| 8 | 512{} |\n"
    (entry,) = read(tmp_path, said.format(" tok/s"))
    assert entry.rows[0].output_tps == 512
    with pytest.raises(FormatError, match=r"1 lines unread \(damaged row\)"):
        read(tmp_path, said.format(""))


def test_a_head_of_a_thousand_words_is_none() -> None:
    assert column_of("a " * 3000 + "tok/s") is None


@pytest.mark.parametrize(("failed", "rows"), [(0, 1), (1, 1), (123, 0)])
def test_a_run_with_many_failed_requests_is_another_load(failed: int, rows: int) -> None:
    text = result_samples.SERVING_TABLE
    assert text.count("Successful requests:") == 1
    more = text.replace("Successful requests:", f"Failed requests: {failed}\nSuccessful requests:")
    entries = parse("table", more)
    assert sum(len(entry.rows) for entry in entries) == rows
    assert entries[-1].unread == ({} if rows else {"many requests failed": 1})


@pytest.mark.parametrize(
    "line",
    [
        "- bs=4: 105 tok/s -> 150 tok/s",  # which of them?
        "- bs=1: up to 140 tok/s",
        "- bs=1: ~100-110 tok/s",
        "- bs=8: 105 ± 3 tok/s",
        "- bs=8: 5 x 9 tok/s",
        "- bs=1: 2000 tok/s input",
        "- bs=16 prefill: 9000 tok/s",
        "- bs=8: 80.2 tok/s each",
        "- prefill: 9000 tok/s at bs=8",
        "[input] clients: 8, throughput: 9000 tok/s",
        "- c=1: 95 tok/s, c=8: 600 tok/s",
        "- bs=1: 105 tok/s for 1024 in / 256 out",
        "- bs=1: 10; 5 tok/s",
        "- concurrency 1: p50 TPOT 8.1 ms/tok",
        "We saw 512 tok/s at concurrency 8",
    ],
)
def test_a_line_of_a_list_that_may_mean_something_else(line: str) -> None:
    entry = parse_one("table", f"{line}\n")
    bullet = line.startswith("-") and "TPOT" not in line
    assert (entry.rows, entry.unread_lines) == ((), int(bullet))


@pytest.mark.parametrize(("share", "length"), [("2.9", 2.9), ("0.72", None), ("72%", None)])
def test_what_a_list_accepts(share: str, length: float | None) -> None:
    """Below 1 it is a share of drafts; a length counts the token of the target."""
    (row,) = parse_one("table", f"- bs=1: 105 tok/s (accept {share})\n").rows
    assert (row.output_tps, row.accept_length) == (105, length)


@pytest.mark.parametrize(
    "text",
    [
        '{"1": {"tok/s": 95.0}, "2": {"tok/s": 94.0}}',  # loads, or runs?
        '{"128": {"tok/s": 95.0}, "1024": {"tok/s": 90.0}}',  # lengths, more likely
        '{"seed": {"1": {"tok/s": 95.0}, "7": {"tok/s": 95.5}}}',
        '{"c4": {"tok/s": 95.0}}',  # a dataset
        '{"gpu0": {"tok/s": 95.0}, "gpu1": {"tok/s": 96.0}}',
        '{"concurrency_8": {"p50": {"tok/s": 600.5}, "p99": {"tok/s": 500.5}}}',
        '{"concurrency_8": {"input": {"tok/s": 9000.0}}}',
        '{"concurrency_8": {"prefill": {"tok/s": 9000.0}}}',
        '{"concurrency_8": {"per_user": {"tok/s": 75.0}}}',
        '{"targets": {"c=8": {"tok/s": 600.0}, "c=16": {"tok/s": 900.0}}}',
        '{"input_tok/s": {"1": 2000.0, "8": 9000.0}}',
        '{"request_rate": {"1": {"tok/s": 95.0}, "8": {"tok/s": 600.5}}}',
        '{"concurrency": [1, 8], "tok/s": [95.0]}',
    ],
)
def test_a_key_that_may_be_no_load(text: str) -> None:
    assert not [row for entry in parse("bench_json", f"{text}\n") for row in entry.rows]


@pytest.mark.parametrize("damage", ["- concurrency: 4\n  tok/s: |\n", "tok/s: 5.5\n", "\ttp: 4\n"])
def test_yaml_with_anything_else_in_it_is_not_read(damage: str) -> None:
    """Else what is below a lost line would go to the row above it."""
    text = f"- concurrency: 1\n  tok/s: 95.5\n{damage}- concurrency: 8\n  tok/s: 600.5\n"
    entry = parse_one("yaml", text)
    assert (entry.rows, entry.unread_lines) == ((), 1)


TABLE, LISTED = "\n| clients | tok/s |\n|---|---|\n| 1 | 2105 |\n", "- bs=1: 2105 tok/s\n"


@pytest.mark.parametrize("figures", [TABLE, LISTED])
@pytest.mark.parametrize(
    ("above", "read"),
    [
        ("Prefill", False),
        ("## Prefill throughput (tok/s)", False),
        ("**Prompt processing:**", False),
        ("pp tok/s", False),
        ("Prefill\n\n### Decode", True),
        ("Chunked prefill", True),
        ("Prefill and decode", True),
        ("prompts of 1k", True),
    ],
)
def test_figures_under_prompts_are_not_of_answers(above: str, read: bool, figures: str) -> None:
    entry = parse_one("table", f"{above}\n{figures}")
    assert [row.output_tps for row in entry.rows] == [2105.0] * read
    assert read or entry.unread == {"speed of prompts, not of answers": 1}
