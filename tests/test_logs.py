"""From what readers found to a setup and observations, and what is asked for when it is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specsim.calibrate.log_setup import Stated, library_id
from specsim.calibrate.logs import gather
from specsim.calibrate.problem import measured
from specsim.errors import CalibrationError, InputError
from specsim.library import LibraryName
from specsim.logs import LogEntry, LogRow, Timing, WindowCount
from specsim.logs.entry import Diagnosis
from specsim.server import setup_from_mapping

STATED = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, engine_version="0.5.9")


def server(
    *rows: LogRow, settings: dict[str, object] | None = None, path: str = "a.log"
) -> LogEntry:
    return LogEntry(path, "sglang_log", "sglang", None, settings or {}, rows)


def plain(batch: float, tps: float, **more: object) -> LogRow:
    return LogRow(batch_size=batch, concurrency=batch, output_tps=tps, windows=30, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "library", "id"),
    [
        ("NVIDIA GB300", "gpus", "gb300"),  # holds the letters of B300
        ("NVIDIA L40S", "gpus", "l40s"),  # and this one of L4 and L40
        ("NVIDIA H100 80GB HBM3", "gpus", "h100-sxm"),
        ("NVIDIA H100 PCIe", "gpus", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "gpus", "a100-sxm-40gb"),
        ("NVIDIA RTX 6000 Ada Generation", "gpus", "rtx-6000-ada"),
        ("/models/Qwen3-30B-A3B-FP8", "models", "qwen3-30b-a3b"),
        ("/data/hub/deepseek-ai--DeepSeek-V3.2", "models", "deepseek-v3.2"),
        ("meta-llama/Llama-3.1-8B-Instruct", "models", "llama-3.1-8b"),
        ("acme/secret-model", "models", None),
    ],
)
def test_what_a_log_names_is_matched_by_whole_words(
    said: str, library: LibraryName, id: str | None
) -> None:
    assert library_id(said, library) == id


CHAIN = {"algorithm": "EAGLE3", "topk": 1, "num_steps": 3, "num_draft_tokens": 4}


def test_a_log_fills_the_setup() -> None:
    entry = server(
        plain(4.0, 400.0, accept_length=2.4, kv_usage=0.1),
        settings={
            **CHAIN,
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "tp": 1,
            "kv_tokens": 400_000,
            "max_running_requests": 48,
            "attention_backend": "fa3",
            "kv_dtype": "fp8_e4m3",
        },
    )
    found = gather([entry], Stated(gpu="h100-sxm", engine_version="0.5.9"))
    engine = found.setup.engine
    assert found.setup.model.id == "llama-3.1-8b"
    assert (engine.kv_tokens, engine.max_running_requests) == (400_000, 48)
    assert (engine.attention_backend, engine.kv_dtype) == ("fa3", "fp8")
    assert found.setup.current is not None
    assert found.setup.current.key == (3, 1, 4)
    row = found.observations[0]
    assert row.context_len == pytest.approx(0.1 * 400_000 / 4)
    assert row.accept_length == 2.4


def test_what_is_missing_is_named_exactly() -> None:
    with pytest.raises(InputError) as caught:
        gather([server(plain(1.0, 100.0))], Stated(tp=1))
    message = str(caught.value)
    for flag in ("--model", "--gpu", "--engine-version"):
        assert flag in message
    assert "--tp" not in message
    assert "\n" not in message


def test_a_plain_log_beside_a_speculating_one_stays_plain() -> None:
    none = server(plain(1.0, 100.0), settings={"algorithm": "none", "scheduler": "overlap"})
    fast = server(plain(1.0, 150.0, accept_length=2.4), settings=CHAIN, path="b.log")
    found = gather([none, fast], STATED)
    algorithms = [o.setting.algorithm for o in found.observations]
    assert algorithms == ["none", "EAGLE3"]
    assert found.setup.current is not None
    assert found.setup.draft is not None


def test_a_speculating_row_without_its_setting_is_not_guessed() -> None:
    fast = server(plain(1.0, 150.0, accept_length=2.4))
    slow = server(plain(1.0, 100.0), settings={"algorithm": "none"})
    found = gather([slow, fast], STATED)
    assert len(found.observations) == 1
    assert any("--steps" in note for note in found.notes)
    said = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, engine_version="0.5.9", num_steps=3)
    assert len(gather([slow, fast], said).observations) == 2


def test_weights_follow_the_standard_error() -> None:
    sure = server(plain(1.0, 100.0, output_tps_sem=0.1))
    noisy = server(plain(1.0, 100.0, output_tps_sem=6.0))
    a = gather([sure], STATED).observations[0].weight
    b = gather([noisy], STATED).observations[0].weight
    assert a == pytest.approx(1.0, abs=0.01)
    # 6 % of scatter on a base of 3 %: variance 0.0009 of 0.0045
    assert b == pytest.approx(0.2, abs=0.01)


def test_a_steady_speculating_row_counts_its_round_not_its_throughput() -> None:
    """Windows without prefill hold more of the slow requests: 150 tok/s for 2.4 a round is 16 ms.

    They say 15.5 ms a round, at an accept length of their own of 2.33.
    """
    row = plain(1.0, 150.0, accept_length=2.4, round_time_s=0.0155)
    (made,) = gather([server(row, settings=CHAIN)], STATED).observations
    assert (made.output_tps, made.round_time_s, made.accept_length) == (150.0, 0.0155, 2.4)
    assert set(measured([made]).field) == {"round_s", "accept_length"}
    without = replace(made, accept_length=None)
    assert set(measured([without]).field) == {"output_tps", "round_s"}
    none = server(plain(1.0, 100.0, round_time_s=0.01), settings={"algorithm": "none"})
    (slow,) = gather([none], STATED).observations
    assert set(measured([slow]).field) == {"output_tps"}


def test_nccl_tests_become_the_allreduce() -> None:
    timings = tuple(
        Timing("allreduce", seconds, size_bytes=size, ranks=8)
        for size, seconds in ((1024, 20e-6), (65536, 40e-6), (1048576, 150e-6))
    )
    nccl = LogEntry("n.txt", "nccl_tests", timings=timings)
    stated = Stated(model="llama-3.1-70b", gpu="h100-sxm", tp=8, engine_version="0.5.9")
    found = gather([server(plain(1.0, 100.0)), nccl], stated)
    assert found.setup.hardware.allreduce == (
        (1024, 20e-6),
        (65536, 40e-6),
        (1048576, 150e-6),
    )


def test_dropped_windows_are_told() -> None:
    entry = LogEntry(
        "a.log",
        "sglang_log",
        "sglang",
        "0.5.9",
        {},
        (plain(1.0, 100.0),),
        WindowCount(10, 6, {"prefill": 3, "ramp": 1}),
    )
    notes = gather([entry], STATED).notes
    assert any("6 windows used, dropped: 3 prefill, 1 ramp" in note for note in notes)


def test_a_trace_gives_round_times() -> None:
    timings = (
        Timing("draft", 1e-3, batch_size=4),
        Timing("verify", 9e-3, batch_size=4),
        Timing("extend", 0.5e-3, batch_size=4),
    )
    trace = LogEntry("t.json", "chrome_trace", "sglang", "0.5.13", CHAIN, timings=timings)
    rows = gather([server(plain(1.0, 100.0)), trace], STATED).observations
    assert rows[-1].round_time_s == pytest.approx(10.5e-3)
    assert rows[-1].draft_time_s is None  # no drafter is named that it could be compared with
    named = replace(STATED, draft="eagle3")
    fast = server(plain(4.0, 300.0, accept_length=2.2), settings=CHAIN)
    rows = gather([server(plain(1.0, 100.0)), fast, trace], named).observations
    assert rows[-1].draft_time_s == pytest.approx(1e-3)
    assert rows[-1].concurrency == 4


def test_llama_server_sums_up_what_drafting_took() -> None:
    """Of the slots that had a draft due, on average: a row of its own, beside those of the load."""
    drafted = Timing("draft", 0.041, count=57, batch_size=3, name="draft-simple")
    settings = {"algorithm": "STANDALONE", "topk": 1, "num_steps": 5, "num_draft_tokens": 6}
    row = LogRow(kind="closed_loop", batch_size=4.0, concurrency=4.0, output_tps=59.0,
                 output_tps_sem=1.0, accept_length=3.2, windows=5)  # fmt: skip
    entry = LogEntry("l.log", "llamacpp", "llama.cpp", "main", settings, (row,), timings=(drafted,))
    stated = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, draft="eagle3")
    loaded, alone = gather([entry], stated).observations
    assert (loaded.concurrency, loaded.draft_time_s) == (4, None)
    assert (alone.kind, alone.concurrency, alone.draft_time_s) == ("steady_decode", 3, 0.041)
    assert measured([loaded, alone]).field == ("output_tps", "accept_length", "draft_s")
    lookup = replace(entry, settings=settings | {"algorithm": "NGRAM"})
    assert len(gather([lookup], stated).observations) == 1
    per_token = replace(entry, timings=(replace(drafted, name="draft eval"),))
    assert len(gather([per_token], stated).observations) == 1


def test_nothing_usable() -> None:
    with pytest.raises(CalibrationError, match="no usable"):
        gather([server()], STATED)


def test_a_given_setup_is_taken_as_it_is() -> None:
    base = setup_from_mapping(
        {
            "schema": "specsim.setup/1",
            "hardware": {"gpu": "a100-sxm"},
            "model": {"id": "llama-3.1-8b"},
            "engine": {"name": "sglang", "version": "0.5.9"},
        }
    )
    assert gather([server(plain(1.0, 100.0))], Stated(), base).setup is base


def test_trtllm_iterations_are_round_times_without_speculation() -> None:
    row = LogRow(batch_size=4.0, concurrency=4.0, round_time_s=0.008, windows=900)
    entry = LogEntry("t.log", "trtllm_log", "tensorrt-llm", "1.0", {}, (row,))
    found = gather([entry], Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1))
    (made,) = found.observations
    assert made.setting.algorithm == "none"
    assert (made.round_time_s, made.output_tps) == (0.008, None)
    assert any("does not say whether drafts" in note for note in found.notes)


def test_a_prompt_alone_in_an_iteration_is_a_ttft() -> None:
    """Of one client; a server that speculates extends its drafter over the prompt too."""
    row = LogRow(batch_size=4.0, concurrency=4.0, round_time_s=0.008, windows=900)
    prompt = Timing("prefill", 0.03, count=40, batch_size=1, prompt_tokens=900.0)
    entry = LogEntry("t.log", "trtllm_log", "tensorrt-llm", "1.0", {}, (row,), timings=(prompt,))
    stated = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, output_len=300.0)
    rounds, alone = gather([entry], stated).observations
    assert (alone.concurrency, alone.input_len, alone.output_len) == (1, 900.0, 300.0)
    assert (alone.ttft_s, alone.setting) == (0.03, rounds.setting)
    assert measured([rounds, alone]).field == ("round_s", "ttft_s")


def test_llamacpp_prints_a_time_per_token_not_a_throughput() -> None:
    """Its speed leaves the prompt out, a closed loop's throughput does not."""
    row = LogRow(kind="closed_loop", batch_size=1.0, concurrency=1.0, output_tps=100.0,
                 tpot_s=0.01, accept_length=1.0, windows=5)  # fmt: skip
    settings = {"algorithm": "none", "topk": 1, "num_steps": 0, "num_draft_tokens": 1}
    entry = LogEntry("l.log", "llamacpp", "llama.cpp", "main", settings, (row,))
    (made,) = gather([entry], Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1)).observations
    assert (made.tpot_s, made.output_tps) == (0.01, None)


def test_a_coarse_share_of_the_pool_is_no_context() -> None:
    settings: dict[str, object] = {"algorithm": "none", "kv_tokens": 400_000}
    one = server(plain(1.0, 100.0, kv_usage=0.0005), settings=settings)
    many = server(plain(64.0, 3000.0, kv_usage=0.2), settings=settings)
    said = Stated(model="llama-3.1-8b", gpu="h100-sxm", tp=1, engine_version="0.5.9",
                  input_len=900, output_len=200)  # fmt: skip
    alone, full = (gather([e], said).observations[0].context_len for e in (one, many))
    # a step of 4000 tokens says next to nothing of one request of a thousand
    assert alone == pytest.approx(1000, rel=0.02)
    # of 64 requests it is 62 tokens each, against the 300 that stated lengths are trusted to
    assert full == pytest.approx(0.2 * 400_000 / 64, rel=0.02)
    unsaid = gather([one], STATED).observations[0].context_len
    assert unsaid == pytest.approx(200)


def test_lengths_that_a_benchmark_states_are_the_workload() -> None:
    log = server(plain(8.0, 650.0, accept_length=2.8), settings=CHAIN)
    client = LogRow(
        kind="closed_loop", concurrency=8.0, output_tps=640.0, input_len=2048.0, output_len=1024.0
    )
    table = LogEntry("a.log", "sglang_bench_serving_table", "sglang", rows=(client,))
    workload = gather([log, table], STATED).setup.workload
    assert (workload.input_len.mean, workload.output_len.mean) == (2048, 1024)
    said = gather([log, table], replace(STATED, input_len=100.0)).setup.workload
    assert (said.input_len.mean, said.output_len.mean) == (100, 1024)


def labelled(label: str, settings: dict[str, object], path: str = "a.log") -> LogEntry:
    entry = server(plain(8.0, 650.0, accept_length=2.8), settings=settings, path=path)
    return replace(entry, label=label)


def test_a_setting_is_not_that_of_another_heading() -> None:
    unsaid = labelled("k = 5", {})
    found = gather([labelled("k = 3", dict(CHAIN)), unsaid], STATED)
    assert [o.setting.num_steps for o in found.observations] == [3]
    assert any("a speculating row without its setting" in note for note in found.notes)
    other_file = replace(unsaid, path="b.log", label="")
    found = gather([labelled("k = 3", dict(CHAIN)), other_file], STATED)
    assert [o.setting.num_steps for o in found.observations] == [3, 3]


def test_a_setting_that_other_logs_say_differently_is_unknown() -> None:
    five = {**CHAIN, "num_steps": 5, "num_draft_tokens": 6}
    entries = [
        labelled("", settings, path)
        for settings, path in ((dict(CHAIN), "a"), (five, "b"), ({}, "c"))
    ]
    found = gather(entries, STATED)
    assert [o.setting.num_steps for o in found.observations] == [3, 5]


def test_a_drafter_that_nothing_names_is_said_to_be_assumed() -> None:
    settings = {key: value for key, value in CHAIN.items() if key != "algorithm"}
    notes = gather([labelled("", settings)], STATED).notes
    assert any("EAGLE3 drafting assumed" in note for note in notes)


def test_one_rank_of_several_is_not_the_server() -> None:
    rank = replace(
        server(plain(8.0, 650.0, accept_length=2.8), settings={**CHAIN, "dp": 4}),
        diagnoses=(Diagnosis("one_rank", "only rank 3"),),
    )
    with pytest.raises(CalibrationError, match="one data-parallel rank's row"):
        gather([rank], STATED)


def bench(label: str, tps: float, **more: object) -> LogEntry:
    lengths = {"input_len": 2048.0, "output_len": 1000.0, "kind": "closed_loop", "num_requests": 40}
    entry = server(plain(1.0, tps, **(lengths | more)), settings={"tp": 1})
    return replace(entry, label=label)


def test_blocks_of_two_servers_are_not_fitted_as_one() -> None:
    with pytest.raises(InputError, match="two servers in one setting, 'FP8' and 'NVFP4'"):
        gather([bench("FP8", 66.0), bench("NVFP4", 76.0)], STATED)
    with pytest.raises(InputError, match="two servers"):
        gather([bench("org/a, run 1", 66.0), bench("org/b, run 1", 66.5)], STATED)
    again = gather([bench("morning", 66.0), bench("evening", 67.0)], STATED)
    assert len(again.observations) == 2


def test_a_context_that_a_benchmark_sets_is_taken() -> None:
    entry = server(plain(1.0, 100.0, extra={"context_len": 4160.0}, round_time_s=0.01))
    assert gather([entry], STATED).observations[0].context_len == 4160
