"""The commands of decisions: what they print, their documents, their complaints."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest

from specsim.errors import InputError, UnknownNameError


def run(name: str, *words: str) -> None:
    """Call a command as the command line would, errors raised."""
    command: click.Command = getattr(import_module(f"specsim.cli.{name}"), f"{name}_command")
    command.main(list(words), standalone_mode=False)


def printed(capsys: pytest.CaptureFixture[str], name: str, *words: str) -> str:
    run(name, *words)
    return capsys.readouterr().out


FEW = ("--max-draft-tokens", "8", "--max-steps", "3", "--max-topk", "2")


def test_recommend_says_what_to_launch(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "recommend", "--concurrency", "1,30,100", *FEW, "--schedule")
    flat = " ".join(text.split())
    assert "no speculation" in text
    assert "--speculative-num-steps 2" in text
    assert "SGLANG_ENABLE_SPEC_V2=True" in text
    assert "tok/s per GPU" in text
    assert "the simplest of" in flat
    assert "Best table (sglang 0.5.9" in text
    full = printed(capsys, "recommend", "--concurrency", "30", *FEW, "--full")
    assert "a simpler setting is kept unless another is faster with 75 %" in " ".join(full.split())


def test_the_last_sentence_is_of_the_largest_load_that_meets_the_targets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--concurrency", "1,5,100", *FEW, "--slo", "tpot=20ms")
    plain = printed(capsys, "recommend", *words)
    assert "\nAt 5 clients " in plain
    assert "gain: over no speculation" in " ".join(plain.split())
    priced = printed(capsys, "recommend", *words, "--gpu-hour-price", "2")
    assert "At 5 clients" in priced
    assert "of your money per million output tokens" in " ".join(priced.split())
    assert "gain: over" not in " ".join(priced.split())  # there is no such column


def test_choices_that_were_never_measured_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--concurrency", "1,30", *FEW)
    assert "Not measured" not in printed(capsys, "recommend", *words)
    changed = printed(capsys, "recommend", *words, "--set", "accept_length=2.6")
    flat = " ".join(changed.split())
    assert "Not measured here, as far as is known: topk=1 steps=3; specsim plan" in flat
    unmeasured = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
    nothing = printed(capsys, "recommend", *words, *unmeasured)
    assert "Not measured" not in nothing  # what it rests on says so of all
    assert "nothing was measured on this server" in " ".join(nothing.split())


@pytest.mark.parametrize(
    "words",
    [
        ("breakeven", "--steps", "3"),
        ("plan",),
        ("compare", "--engine", "sglang,vllm"),
        ("recommend", *FEW),
        ("predict", "--steps", "3", "--solver", "analytic"),
        ("schedule", "--max-steps", "2", "--load", "ramp:1..4@20s", "--repeats", "1"),
    ],
    ids=lambda words: words[0],
)
def test_documents_say_what_words_say_of_the_grounds(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    server = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
    loads = () if words[0] == "schedule" else ("--concurrency", "1,8")
    document = json.loads(printed(capsys, *words, *server, *loads, "--json"))
    told = " ".join(printed(capsys, *words, *server, *loads).split())
    ground = "nothing was measured on this server"
    assert ground in told
    assert any(ground in note for note in document["notes"])


def test_the_launch_of_a_mix_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "recommend", "--mix", "1:0.7,30:0.3", *FEW)
    assert "One setting for the mix: topk=1 steps=2, overlap" in text
    launches = [line for line in text.splitlines() if line.endswith("(sglang 0.5.9):")]
    assert launches[0].startswith("topk=1 steps=2")
    assert launches[1].startswith("no speculation")


def test_no_flag_is_recommended_that_only_makes_it_even(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A higher cap takes topk=1 steps=2 from -5 % to 0 % here: no reason to launch it."""
    words = ("--topk", "2", "--steps", "2", "--input-len", "2000", "--output-len", "300")
    text = printed(capsys, "predict", *words, "--solver", "analytic", "--json")
    for flag in json.loads(text)["verdict"]["free"]:
        assert flag["gain_with"] >= 0.005


def test_recommend_as_json_is_stable(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--concurrency",
        "1,30",
        *FEW,
        "--json",
        "--gpu-hour-price",
        "2",
        "--mix",
        "1:0.25,30:0.75",
    )
    first = printed(capsys, "recommend", *words)
    assert first == printed(capsys, "recommend", *words)
    document: dict[str, Any] = json.loads(first)
    assert document["mix"]["weights"] == {"1": 0.25, "30": 0.75}
    assert document["loads"][0]["choice"]["tokens_per_money"] > 0


def test_breakeven_without_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    """vllm#47277: 98.7 ms a round of one draft, 37.7 ms a step."""
    text = printed(capsys, "breakeven", "--steps", "1", "--round-ms", "98.7", "--step-ms", "37.7")
    assert "2.62" in text
    assert "unreachable" in text


def test_breakeven_of_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "breakeven", "2,4,16", "--concurrency", "1,100")
    assert "unreachable" in text
    document = json.loads(
        printed(capsys, "breakeven", "2,4,16", "--concurrency", "1,100", "--json")
    )
    points = document["settings"][0]["points"]
    assert points[1]["breakeven_accept_length"] is None
    assert points[1]["reachable"] is False
    assert points[0]["breakeven_accept_length"] > points[0]["expected_accept_length"]


def test_compare_two_scenarios(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, sets in (("today", "[]"), ("faster", '["allreduce.latency=*0.5"]')):
        (tmp_path / f"{name}.toml").write_text(
            f'schema = "specsim.scenario/1"\ndescription = "{name}"\nset = {sets}\n'
        )
    files = [str(tmp_path / "today.toml"), str(tmp_path / "faster.toml")]
    text = printed(capsys, "compare", *files, "--concurrency", "1,30")
    assert "A: today" in text
    assert "B: faster" in text
    document = json.loads(printed(capsys, "compare", *files, "--concurrency", "1", "--json"))
    assert document["schema"] == "specsim.comparison/1"
    assert all(row["change"]["value"] > 0 for row in document["rows"])
    assert document["best"][0]["second"]["output_tps"] > document["best"][0]["first"]["output_tps"]


def test_compare_engines_and_drafters_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    described = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--concurrency", "1,30")
    words = (*described, "--engine", "sglang,vllm")
    text = printed(capsys, "compare", *words)
    assert "A: llama-3.1-8b on 1x h100-sxm (sglang)" in text
    assert "B: llama-3.1-8b on 1x h100-sxm (vllm)" in text
    assert len([line for line in text.splitlines() if line.split()[:1] in (["1"], ["30"])]) == 2
    document = json.loads(printed(capsys, "compare", *words, "--json"))
    engines = [{load["choice"]["engine"] for load in one["loads"]} for one in document["servers"]]
    assert engines == [{"sglang"}, {"vllm"}]
    with pytest.raises(InputError, match="more than 12"):
        run("compare", *described, "--engine", ",".join(["vllm"] * 13))


def test_plan_ranks_or_says_that_nothing_is_worth_it(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, "plan", "--concurrency", "1,30", "--json"))
    assert document["schema"] == "specsim.plan/1"
    cuts = [m["regret_cut"] for m in document["measurements"]]
    assert cuts[0] > cuts[-1]
    text = printed(capsys, "plan", "--concurrency", "30", "--set", "accept_length=1.02")
    assert "No measurement would change the choice" in text


def test_sweep_writes_and_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "grid.csv"
    words = ("--grid", "topk=1,2", "--grid", "steps=1-3", "--concurrency", "1,30")
    more = ("--vary", "allreduce.latency=*0.5,*2", "-o", str(path))
    assert "wrote" in printed(capsys, "sweep", *words, *more)
    size = len(path.read_text().splitlines())
    assert "wrote 0 cells" in printed(capsys, "sweep", *words, *more)
    assert len(path.read_text().splitlines()) == size
    assert "wrote" in printed(capsys, "sweep", *words, *more, "--grid", "tokens=6")


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_sweep_to_parquet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import pandas as pd

    path = tmp_path / "grid.parquet"
    printed(capsys, "sweep", "2,2,7", "--concurrency", "1", "-o", str(path))
    assert len(pd.read_parquet(path)) == 2
    assert not path.with_suffix(".partial.csv").exists()


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_needs_pyarrow(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pyarrow"):
        run("sweep", "2,2,7", "-o", str(tmp_path / "grid.parquet"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("recommend", "--slo", "tpot"), InputError),
        (("recommend", "--mix", "1-2"), InputError),
        (("recommend", "--mix", "1:1,30:3"), InputError),
        (("recommend", "--set", "gpu=h999"), UnknownNameError),
        (("recommend", "--max-draft-tokens", "1"), InputError),
        (("breakeven", "--round-ms", "3"), InputError),
        (("compare", "kimi-k2.5-int4-8x-rtx-pro-6000"), InputError),
        (("sweep",), InputError),
        (("sweep", "2,2,7", "-o", "x.txt"), InputError),
        (("sweep", "--grid", "depth=1"), UnknownNameError),
        (("sweep", "--grid", "steps=a"), InputError),
        (("sweep", "--grid", "topk=2"), InputError),
        (("sweep", "2,2,7", "--vary", "tp"), InputError),
        (("sweep", "2,2,7", "--jobs", "0"), InputError),
        (("plan", "--concurrency", "0"), InputError),
    ],
)
def test_complaints(words: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        run(*words)
