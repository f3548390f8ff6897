"""Metrics of servers, as they export them and as dashboards show them."""

from __future__ import annotations

import json
from typing import Any

import benchmark_samples as samples
import prometheus_samples as api
import pytest
import result_samples as results
from parsing import parse, parse_one

approx = pytest.approx


def test_sglang_prometheus() -> None:
    entry = parse_one("prometheus", results.SGLANG_PROM)
    (row,) = entry.rows
    assert (row.batch_size, row.output_tps, row.accept_length) == (20, 1500, 2.25)
    assert (row.queue, row.round_time_s) == (6, approx(2.25 * 20 / 1500))


def test_sglang_prometheus_relayed_and_idle() -> None:
    relayed = results.SGLANG_PROM.replace("sglang:", "sglang_")
    assert parse("prometheus", relayed)[0].rows[0].output_tps == 1500
    idle = results.SGLANG_PROM.replace("} 20.0", "} 0.0")
    assert parse("prometheus", idle)[0].rows[0].output_tps is None  # the gauge is stale


@pytest.mark.parametrize("cut", ["model_name=", "model_na"])
def test_a_sample_written_into_another_is_not_read(cut: str) -> None:
    """The queue's line ends in the middle of the accept length's: 6.0 is no accept length."""
    accept, queue = results.SGLANG_PROM.splitlines(keepends=True)[4:6]
    head, tail = accept.split(cut)
    rest = cut + queue.split(cut)[1]
    other = queue.split(cut)[0] + "\n" + rest
    broken = head + cut + rest.removeprefix(cut[:6]) + tail + other
    entry = parse_one("prometheus", results.SGLANG_PROM.replace(accept + queue, broken))
    assert entry.rows[0].accept_length is None
    assert sum(entry.unread.values()) >= 1


@pytest.mark.parametrize("cut", ["2.2 5", "2. 25", "2 .25", "2."])
def test_a_value_cut_in_two_by_a_blank_is_no_value_and_stamp(cut: str) -> None:
    """A stamp is milliseconds since 1970, so 13 digits: `2.25 1730000000000`."""
    line = results.SGLANG_PROM.splitlines(keepends=True)[4]
    assert line.endswith(" 2.25\n")
    read = parse("prometheus", results.SGLANG_PROM.replace(line, line[:-5] + cut + "\n"))
    assert [row.accept_length for entry in read for row in entry.rows] == [None]
    stamped = results.SGLANG_PROM.replace(line, line[:-1] + " 1730000000000\n")
    assert parse("prometheus", stamped)[0].rows[0].accept_length == approx(2.25)


def test_a_sample_above_a_value_without_a_name_is_not_read() -> None:
    """The value below is its own: what it has is another's."""
    torn = samples.LLAMA_PROM.replace("requests_processing 1\n", "requests_processing 190.5\n1\n")
    entry = parse_one("prometheus", torn)
    assert (entry.rows[0].batch_size, entry.unread) == (None, {"two lines in one": 1})


def test_vllm_prometheus_of_two_engines() -> None:
    entry = parse_one("prometheus", results.VLLM_PROM)
    (row,) = entry.rows
    assert row.accept_length == approx(1 + 220 / 200)
    assert row.survival == approx((0.7, 0.4))
    assert entry.settings["num_steps"] == 2
    assert "ranks_summed" in entry.codes


def test_counters_are_differenced() -> None:
    later = results.VLLM_PROM.replace("| 100.0", "| 300.0").replace("| 70.0", "| 230.0")
    entry = parse_one("prometheus", results.VLLM_PROM + later.replace("| 40.0", "| 100.0"))
    assert entry.rows[0].survival == approx((160 / 200, 60 / 200))


def test_engine_with_a_lost_counter_is_left_out() -> None:
    entry = parse_one("prometheus", results.VLLM_PROM.replace("| 100.0", "| 1x0.0", 1))
    assert entry.rows[0].accept_length == approx(2.1)
    assert entry.unread == {"damaged sample": 1, "a counter is missing": 1}


def exposed(running: list[float], drafts: list[int], accepted: list[int]) -> tuple[str, Any]:
    """Text of prometheus_client's own registry, with a replica per number, and the registry."""
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    labels = ["engine", "model_name"]
    gauge = client.Gauge("vllm:num_requests_running", "running", labels, registry=registry)
    of = {
        name: client.Counter(f"vllm:spec_decode_num_{name}", name, labels, registry=registry)
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    }
    ttft = client.Histogram(
        "vllm:time_to_first_token_seconds", "TTFT", labels, registry=registry, buckets=(0.1, 1.0)
    )
    for i in range(len(running)):
        name = (str(i), 'org/"m"\\x')
        gauge.labels(*name).set(running[i])
        of["drafts"].labels(*name).inc(drafts[i])
        of["draft_tokens"].labels(*name).inc(3 * drafts[i])
        of["accepted_tokens"].labels(*name).inc(accepted[i])
        for seconds in (0.05, 0.15 * (i + 1)):
            ttft.labels(*name).observe(seconds)
    return client.generate_latest(registry).decode(), registry


def test_prometheus_as_its_own_client_writes_it() -> None:
    before, _ = exposed([0, 0], [10, 20], [12, 30])
    text, registry = exposed([7, 5], [100, 220], [150, 310])
    samples = [sample for metric in registry.collect() for sample in metric.samples]

    def total(name: str) -> float:
        return sum(s.value for s in samples if s.name == f"vllm:{name}")

    row = parse_one("prometheus", text).rows[0]
    drafts = total("spec_decode_num_drafts_total")
    assert row.batch_size == total("num_requests_running")
    assert row.accept_length == approx(1 + total("spec_decode_num_accepted_tokens_total") / drafts)
    assert row.drafted_per_round == approx(3)
    waits = total("time_to_first_token_seconds_sum"), total("time_to_first_token_seconds_count")
    assert row.ttft_s == approx(waits[0] / waits[1])
    both = parse_one("prometheus", before + text)  # counters are differences of the two
    assert both.unread == {}
    assert both.rows[0].accept_length == approx(1 + (138 + 280) / (90 + 200))


def test_prometheus_of_llama_server() -> None:
    entry = parse_one("prometheus", samples.LLAMA_PROM)
    (row,) = entry.rows
    assert (entry.engine, entry.settings["num_steps"]) == ("llama.cpp", 3)
    assert row.accept_length == approx(1 + 5900 / 3600)
    assert row.survival == approx((0.75, 19 / 36, 13 / 36))
    assert (row.batch_size, row.tpot_s) == (1, approx(190.5 / 9500))
    busier = "llamacpp:n_busy_slots_per_decode 2.5\n"
    assert row.output_tps == approx(9500 / 190.5)
    assert parse_one("prometheus", samples.LLAMA_PROM + busier).rows[0].output_tps is None


def test_prometheus_of_tensorrt_llm() -> None:
    entry = parse_one("prometheus", samples.TRTLLM_PROM)
    (row,) = entry.rows
    assert (entry.engine, row.accept_length, row.batch_size) == ("tensorrt-llm", 2.5, 12)
    assert row.tpot_s == approx(40.5 / 4000)


def test_sglang_counts_what_ended_requests_accepted() -> None:
    """40 requests of 10000 tokens, of which their prompts gave 40, in 4150 rounds."""
    entry = parse_one("prometheus", results.SGLANG_COUNTERS)
    assert [row.accept_length for row in entry.rows] == [approx(9960 / 4150)]
    beside = parse_one("prometheus", results.SGLANG_PROM + results.SGLANG_COUNTERS)
    assert [row.accept_length for row in beside.rows] == [
        2.25,
        approx(2.4),
    ]  # the last rounds', all
    later = results.SGLANG_COUNTERS.replace("9500.0", "9800.0").replace(" 30.0", " 31.0")
    both = parse_one("prometheus", results.SGLANG_COUNTERS + later.replace("4150.0", "4249.667"))
    assert both.rows[0].accept_length == approx(299 / 99.667)  # between the scrapes


@pytest.mark.parametrize("lost", range(5))
def test_a_lost_counter_of_ended_requests_is_no_accept_length(lost: int) -> None:
    lines = results.SGLANG_COUNTERS.splitlines(keepends=True)
    entry = parse_one("prometheus", "".join(lines[:lost] + lines[lost + 1 :]))
    assert entry.rows == ()
    twice = parse_one("prometheus", "".join([*lines, lines[lost].replace("0.0", "1.0")]))
    assert (twice.rows, sum(twice.unread.values())) == ((), 1)


def test_more_rounds_than_tokens_are_no_accept_length() -> None:
    entry = parse_one("prometheus", results.SGLANG_COUNTERS.replace("4150.0", "9961.0"))
    assert (entry.rows, entry.unread) == ((), {"numbers contradict each other": 1})


def test_the_scheduler_is_measured() -> None:
    """One that waits for each forward begins or ends its stages without one."""
    overlaps = parse_one("prometheus", results.SGLANG_COUNTERS)
    assert overlaps.settings["scheduler"] == "overlap"
    waits = results.SGLANG_COUNTERS.replace('"full"', '"partial"', 1).replace('"full"', '"none"')
    assert "scheduler" not in parse_one("prometheus", waits).settings


def test_range_of_prometheus_api() -> None:
    """Counters between two moments, gauges at its end."""
    entry = parse_one("prometheus_api", api.RANGE)
    assert (entry.engine, entry.settings["num_steps"]) == ("vllm", 3)
    (row,) = entry.rows
    assert (row.batch_size, row.output_tps, row.accept_length) == (8, approx(600), approx(2.5))
    assert row.survival == approx((0.75, 0.5, 0.25))
    assert (row.windows, row.round_time_s) == (4, approx(8 * 2.5 / 600))


def test_windows_around_a_damaged_sample_of_a_range_are_left_out() -> None:
    """A counter that is in one of two moments did not count all its life between them."""
    entry = parse_one("prometheus_api", api.RANGE.replace('"18000"', '"18;000"', 1))
    (row,) = entry.rows
    assert (row.output_tps, row.accept_length, row.windows) == (approx(600), approx(2.5), 2)
    assert entry.unread == {"damaged sample": 1}


def test_loads_of_a_range_are_rows() -> None:
    """A mean over both is of no load."""
    result = api.vllm([8.0] * 5) + api.vllm([16.0] * 5)
    later = [{**of, "values": [[t + 75, v] for t, v in of["values"]]} for of in result[8:]]
    entry = parse_one("prometheus_api", api.answer(result[:8]) + api.answer(later))
    assert [row.batch_size for row in entry.rows] == [8, 16]
    assert [row.output_tps for row in entry.rows] == approx([600, 600])


def test_gauges_of_a_range() -> None:
    (row,) = parse_one("prometheus_api", api.SGLANG_RANGE).rows
    said = (row.batch_size, row.output_tps, row.accept_length, row.round_time_s)
    assert said == (16, approx(1200), approx(2.4), approx(16 * 2.4 / 1200))


def test_a_moment_of_prometheus_api() -> None:
    """Counters since the start: they tell acceptance, and no speed."""
    result = [{**of, "value": of["values"][-1]} for of in api.vllm([8.0] * 5)]
    for of in result:
        del of["values"]
    (row,) = parse_one("prometheus_api", api.answer(result, "vector")).rows
    assert (row.batch_size, row.accept_length, row.output_tps) == (
        8,
        approx(1 + 22000 / 15400, rel=0.1),
        None,
    )


def test_an_expression_of_prometheus_has_no_name() -> None:
    result = [{"metric": {"engine": "0"}, "values": [[1762938000, "600"]]}]
    entry = parse_one("prometheus_api", api.answer(result))
    assert entry.unread == {"the result of an expression has no name": 1}


@pytest.mark.parametrize(
    "result",
    [
        None,
        [1],
        [{"metric": 1}],
        [{"metric": {"__name__": "vllm:x"}, "values": [[1]]}],
        [{"metric": {"__name__": "vllm:x"}, "values": [["a", 1]]}],
    ],
)
def test_damaged_answers_of_prometheus(result: object) -> None:
    text = json.dumps({"data": {"resultType": "matrix", "result": result}})
    assert sum(parse_one("prometheus_api", text).unread.values()) == 1
