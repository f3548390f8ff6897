"""llama-server's log as build 11434 prints it: requests, loads, drafting, setup facts."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import llama_server as made
import mutate
import pytest
from parsing import document_of, parse, parse_one

from specsim.calibrate.log_setup import Stated
from specsim.calibrate.logs import gather
from specsim.calibrate.sources import read_sources
from specsim.logs import LogEntry, LogRow
from specsim.logs.format import detect_text
from specsim.logs.formats.llamacpp.requests import line_time

approx = pytest.approx


def read(text: str) -> LogEntry:
    return parse_one("llamacpp", text, "server.log")


def only_row(text: str) -> LogRow:
    (row,) = read(text).rows
    return row


def assert_document(entries: list[LogEntry]) -> None:
    document_of(entries)


def chain(clients: int, depth: int = 3, accept: float = 0.7, until_s: float = 60.0) -> made.Server:
    server = made.Server(clients, clients, depth, accept, round_s=0.1)
    server.text = made.startup(clients, made.CHAIN.format(depth=depth))
    server.serve(until_s)
    return server


def test_time_stamp() -> None:
    assert line_time(b"0.06.794.351 I slot print_timing: id  0 | task 4 | x") == 6.794351
    assert line_time(b"Nov 29 20:00:00 host llama[7]: 12.00.000.001 W srv  x") == 720.000001
    assert line_time(b"slot print_timing: id  0 | task 4 | 1.00.000.000") is None


def test_times_per_token_are_of_all_but_the_first() -> None:
    # as printed: 3356.16 ms / 24 tokens is 145.92 ms per token, of 23
    line = (
        "0.04.000.000 I slot print_timing: id  0 | task 0 |        eval time =    3356.16 ms /"
        "    24 tokens (  145.92 ms per token,     6.85 tokens per second)\n"
    )
    row = only_row(line)
    assert row.tpot_s == approx(3.35616 / 23)
    assert row.accept_length == 1.0
    assert read(line.replace("145.92", "139.84").replace("6.85", "7.15")).rows[0].output_len == 24


def test_lines_of_both_conventions_are_not_of_one_server() -> None:
    newer = "       eval time =     230.00 ms /    24 tokens (   10.00 ms per token,   100.00 tokens per second)\n"  # noqa: E501
    older = "       eval time =     240.00 ms /    24 tokens (   10.00 ms per token,   100.00 tokens per second)\n"  # noqa: E501
    entry = read(newer * 2 + older)
    assert entry.unread == {"numbers contradict each other": 1}
    assert entry.rows[0].num_requests == 2


def test_one_slot_without_speculation() -> None:
    server = made.Server(1, 1, round_s=0.02, prefill_s=0.3, lengths=(40, 60))
    server.text = made.startup(1)
    server.serve(30.0)
    entry = read(server.text)
    (row,) = entry.rows
    assert entry.settings["algorithm"] == "none"
    assert (row.concurrency, row.accept_length, row.survival) == (1, 1.0, None)
    assert row.tpot_s == approx(0.02, rel=1e-3)
    assert row.ttft_s == approx(0.3, abs=0.002)
    # whole cycles: a first token, n - 1 rounds, a prefill and a wait
    n = row.output_len
    assert n is not None
    assert row.output_tps == approx(n / (0.3 + 0.02 * (n - 1) + 0.004), rel=0.01)
    # the window begins when the second request ends
    assert entry.windows.dropped == {"not finished": 1, "warm-up": 1, "ramp or drain": 1}
    assert entry.windows.read == entry.windows.used + 3


@pytest.mark.parametrize("clients", [2, 4, 8])
@pytest.mark.parametrize("depth", [0, 3])
def test_throughput_of_several_slots(clients: int, depth: int) -> None:
    server = made.Server(clients, clients, depth, 0.7, seed=clients)
    server.text = made.startup(clients, made.CHAIN.format(depth=depth) if depth else "")
    server.serve(150.0)
    row = only_row(server.text)
    assert row.concurrency == clients
    # Even spreading and the share of requests that were cut off leave about a percent.
    assert row.output_tps == approx(server.speed(20.0, 150.0), rel=0.03)
    assert row.batch_size == approx(clients, rel=0.02)
    assert row.output_tps_sem is not None
    assert 0 < row.output_tps_sem < 0.1 * (row.output_tps or 0.0)
    assert row.duration_s == approx(145.0, rel=0.1)


def test_requests_that_are_cut_off_do_not_bias_a_short_run() -> None:
    # 40 s of eight slots: each slot has one or two whole requests, and one that is cut off
    found = []
    for seed in range(6):
        server = made.Server(8, 8, 3, 0.7, seed=seed, lengths=(64, 128))
        server.text = made.startup(8, made.CHAIN.format(depth=3))
        server.serve(14.0)
        row = only_row(server.text)
        assert row.output_tps is not None
        begin = 14.0 - (row.duration_s or 0.0)
        found.append(row.output_tps / server.speed(begin, 14.0))
    assert sum(found) / len(found) == approx(1.0, abs=0.04)


def test_a_trimmed_log_gives_the_same_throughput() -> None:
    server = chain(4, until_s=150.0)
    keep = re.compile(
        r"eval time =|draft acceptance|acc per pos|n_slots|n_max|speculative impl|build"
    )
    trimmed = [line for line in server.text.splitlines(keepends=True) if keep.search(line)]
    whole, part = only_row(server.text), only_row("".join(trimmed))
    assert part.concurrency == whole.concurrency == 4
    assert part.output_tps == approx(whole.output_tps, rel=0.03)
    assert part.accept_length == whole.accept_length


def test_a_short_trimmed_log_gives_no_throughput_of_several_slots() -> None:
    # the requests that were cut off are not in it: those that ended are not all that ran
    timings = re.compile(r"eval time =|draft acceptance|acc per pos|n_slots|n_max|speculative impl")
    lines = chain(8, until_s=14.0).text.splitlines(keepends=True)
    row = only_row("".join(line for line in lines if timings.search(line)))
    assert (row.output_tps, row.concurrency) == (None, None)
    assert row.tpot_s is not None


def test_totals_tell_what_requests_that_were_cut_off_accepted() -> None:
    # Two slots; one ends twice, the other, which accepts nothing, is cut off: 100 rounds.
    server = made.startup(2, made.CHAIN.format(depth=1))
    ends, lines = (6.1, 11.1), made.Answer(1, 1, 99, 1.0, 1.0).launch_lines()
    for task, end_s in zip((2, 3), ends, strict=True):
        begin_s = end_s - 5.1
        answer = made.Answer(0, task, 101, begin_s, begin_s, first_s=begin_s + 0.1, got=101)
        answer.accepted = answer.drafted = answer.rounds = 50
        answer.positions = [50]
        lines += answer.launch_lines() + answer.timing_lines(end_s)
    lines += (
        "0.11.100.001 I spec common_specu: statistics     draft-simple: #calls(b,g,a) =    3    "
        "100    200, #gen drafts =    200, #acc drafts =   100, #gen tokens =    200, "
        "#acc tokens =   100, dur(b,g,a) = 0.094, 1480.029, 0.067 ms\n"
    )
    row = only_row(server + lines)
    # from 1.1 to 11.1 s: 2 x 100 tokens and a first one, and 100 of the other
    assert row.output_tps == approx(30.1, rel=0.02)
    without = only_row(server + lines[: lines.index("0.11.100.001 I spec")])
    assert (without.output_tps or 0) > 38.0


def test_without_time_stamps_several_slots_have_no_total() -> None:
    server = chain(2)
    bare = re.sub(r"(?m)^\d+\.\d\d\.\d{3}\.\d{3} ", "", server.text)
    row = only_row(bare)
    assert (row.output_tps, row.concurrency) == (None, None)
    assert row.tpot_s is not None
    assert row.accept_length == approx(only_row(server.text).accept_length, rel=0.05)


def test_loads_of_one_server_are_rows_of_their_own() -> None:
    server = made.Server(4, 1, round_s=0.05, lengths=(30, 40))
    server.text = made.startup(4)
    for clients in (1, 2, 4):
        server.clients = clients
        server.begin_s = server.serve(server.begin_s + 40.0, stops=False) + 5.0
    entry = read(server.text)
    assert [row.concurrency for row in entry.rows] == [1, 2, 4]
    speeds = [row.output_tps or 0.0 for row in entry.rows]
    assert speeds == sorted(speeds)
    assert entry.rows[2].output_tps == approx(server.speed(100.0, 130.0), rel=0.04)


def test_drafting() -> None:
    server = chain(2)
    entry = read(server.text)
    (row,) = entry.rows
    settings = entry.settings
    assert (settings["algorithm"], settings["num_steps"]) == ("STANDALONE", 3)
    assert (settings["topk"], settings["num_draft_tokens"]) == (1, 4)
    assert row.survival is not None
    assert row.accept_length == approx(1 + sum(row.survival))
    # p, p^2, p^3; the last rounds of a request draft less: a few percent of 30 rounds
    assert row.survival == approx((0.7, 0.49, 0.343), rel=0.12)
    assert row.round_time_s == approx((row.accept_length or 0) * (row.tpot_s or 0))
    assert row.accept_length_scope == "run"
    assert entry.codes == ()  # only the ends of requests draft less than 3


def test_drafts_that_are_cut_short_everywhere() -> None:
    server = chain(2)
    text = server.text.replace("n_max=3", "n_max=5")
    assert "partial_drafting" in read(text).codes


def test_an_end_of_text_within_accepted_drafts_cuts_no_round_off() -> None:
    # 10 rounds of 3 drafts, all accepted, are 40 tokens; the last 2 are behind the end of text
    line = "0.0{}.000.000 I slot print_timing: id  0 | task 0 | "
    text = made.startup(1, made.CHAIN.format(depth=3)) + (
        line.format(3) + "       eval time =     380.00 ms /    39 tokens "
        "(   10.00 ms per token,   100.00 tokens per second)\n"
        + line.format(3)
        + "draft acceptance = 1.00000 (   30 accepted /    30 generated), mean len =  4.00\n"
        + line.format(3)
        + "     acc per pos = (1.000, 1.000, 1.000)\n"
    )
    assert only_row(text).accept_length == approx(3.8)


def test_ngram_rounds_without_a_draft_count() -> None:
    drafting = made.Answer(0, 1, 41, 1.0, 1.0, first_s=1.2, got=41, accepted=20, drafted=25)
    drafting.rounds, drafting.positions = 5, [5, 5, 4, 3, 3]
    plain = made.Answer(0, 2, 21, 3.0, 3.0, first_s=3.2, got=21)
    text = made.startup(1, made.NGRAM.format(depth=5)) + drafting.launch_lines()
    text += drafting.timing_lines(2.0) + plain.launch_lines() + plain.timing_lines(4.0)
    entry = read(text)
    (row,) = entry.rows
    assert (entry.settings["algorithm"], entry.settings["num_steps"]) == ("NGRAM", 5)
    # 60 tokens after the first ones: 20 rounds of the one request, 20 of the other
    assert row.accept_length == approx(60 / 40)
    assert row.survival == approx((0.125, 0.125, 0.1, 0.075, 0.075))
    assert row.drafted_per_round == approx(25 / 40)
    assert "partial_drafting" in entry.codes


def test_setup_facts() -> None:
    extra = made.DRAFT + made.CHAIN.format(depth=2)
    extra += (
        "0.00.464.953 W spec common_specu: synthetic speculative acceptance is enabled for "
        "benchmarking; generated output is not valid\n"
    )
    answer = made.Answer(0, 0, 5, 1.0, 1.0, first_s=1.2, got=5)
    entry = read(made.startup(2, extra, build=11434) + answer.timing_lines(2.0))
    found = entry.settings
    assert entry.engine_version == "b11434"
    assert (found["model"], found["layers"], found["hidden"]) == ("smollm2-135m-f16.gguf", 30, 576)
    assert (found["file_type"], found["params"]) == ("F16", approx(134.52e6))
    assert (found["draft_file_type"], found["draft_layers"]) == ("Q4_1", 10)
    assert (found["threads"], found["kv_tokens"], found["max_running_requests"]) == (2, 1024, 2)
    assert found["synthetic_acceptance"] is True
    assert read(made.startup(2) + answer.timing_lines(2.0)).engine_version is None
    assert_document([entry])


def test_time_of_drafting() -> None:
    statistics = (
        "0.07.222.988 I spec common_specu: statistics     draft-simple: #calls(b,g,a) =    5     "
        "61    106, #gen drafts =    107, #acc drafts =    84, #gen tokens =    211, #acc tokens "
        "=   143, #mean acc len = 2.35, #acc rate/pos = (0.792, 0.557), dur(b,g,a) = 0.094, "
        "1480.029, 0.067 ms\n"
    )
    (timing,) = read(chain(2).text + statistics).timings
    assert (timing.phase, timing.count, timing.batch_size) == ("draft", 61, 2)
    assert timing.seconds == approx(1.480029 / 61)


def test_two_servers_in_one_file() -> None:
    entries = parse("llamacpp", chain(2).text + chain(4).text)
    assert [entry.rows[0].concurrency for entry in entries] == [2, 4]


def test_prompts_from_the_cache() -> None:
    server = chain(1)
    text = re.sub(r"/ +50 tokens \( *[\d.]+ ms per token, +[\d.]+", _cached, server.text)
    row = only_row(text)
    assert (row.input_len, row.extra["input_cached"]) == (50, 40)


def _cached(found: re.Match[str]) -> str:
    each = float(found[0].split("(")[1].split()[0]) * 5
    return f"/    10 tokens ({each:8.2f} ms per token, {1e3 / each:8.2f}"


def test_colours_of_a_terminal() -> None:
    text = re.sub(r"(?m)^(\S+) I ", "\x1b[34m\\1\x1b[0m \x1b[32mI \x1b[0m", chain(2).text)
    assert only_row(text) == only_row(chain(2).text)


def test_detection() -> None:
    found = detect_text(chain(2).text.encode())
    assert found is not None
    assert found.name == "llamacpp"


def test_logs_become_observations() -> None:
    plain = made.Server(4, 4)
    plain.text = made.startup(4)
    plain.serve(60.0)
    entries = [read(text) for text in (chain(2).text, chain(8).text, plain.text)]
    stated = Stated(model="smollm2-135m", gpu="h100-sxm", tp=1, engine_version="b11434")
    rows = gather(entries, stated).observations
    assert [row.load.concurrency for row in rows] == [2, 8, 4]
    assert [row.setting.label for row in rows] == ["topk=1 steps=3 tokens=4"] * 2 + ["none"]
    assert all(row.output_tps and row.survival for row in rows[:2])
    assert rows[2].output_tps == approx(plain.speed(20.0, 60.0), rel=0.03)
    assert rows[0].input_len == 50
    assert all(0.0 < row.weight <= 1.0 for row in rows)
    shorter = made.Server(8, 8, 3, 0.7)
    shorter.text = made.startup(8, made.CHAIN.format(depth=3))
    shorter.serve(14.0)
    (hasty,) = gather([read(shorter.text)], stated).observations
    assert hasty.weight < rows[1].weight


SETUP = """\
schema = "specsim.setup/1"
[hardware.gpu]
name = "two cores"
is_cpu = true
mem_bytes = 24e9
mem_bandwidth = 2.5e10
flops_bf16 = 1.3e11
[model]
id = "smollm2-135m"
[draft]
id = "smollm2-135m"
[engine]
name = "llama.cpp"
version = "b11434"
"""


def test_a_folder_may_give_the_setup_alone(tmp_path: Path) -> None:
    log, folder = tmp_path / "a.log", tmp_path / "server"
    log.write_text(chain(2).text)
    folder.mkdir()
    (folder / "setup.toml").write_text(SETUP)
    found = read_sources([str(folder), str(log)], Stated())
    assert found.setup.engine.name == "llama.cpp"
    assert found.name == folder.name
    (row,) = found.observations
    assert (row.load.concurrency, row.setting.label) == (2, "topk=1 steps=3 tokens=4")


def test_a_long_log_takes_no_long_time() -> None:
    server = chain(4, until_s=1500.0)
    begun = time.perf_counter()
    assert only_row(server.text).windows > 700
    assert time.perf_counter() - begun < 10.0


@pytest.mark.parametrize("seed", range(40))
def test_damage(seed: int) -> None:
    rng = random.Random(seed)
    data = mutate.wild(chain(3, until_s=15.0).text.encode(), rng)
    entries = parse("llamacpp", data, "server.log")
    assert_document(entries)
    for entry in entries:
        assert entry.windows.read == entry.windows.used + sum(entry.windows.dropped.values())
        assert all((row.accept_length or 1.0) >= 1.0 for row in entry.rows)
        assert all((row.output_tps or 0.0) >= 0.0 for row in entry.rows)
