"""What the arguments of a launch command say, and what they leave unsaid; the table of flags."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_engine_command import NONE, one

from specsim.calibrate.log_setup import Known, Stated, build_setup
from specsim.cli.main import run
from specsim.cli.uncalibrated import read_launch
from specsim.engine import engine_named, engine_names
from specsim.engine.command import launches_in, parse_command
from specsim.engine.flags import flag_named, flag_words, flags_of
from specsim.errors import InputError
from specsim.server import Setup
from specsim.server.system import assemble

# --- what is said and left unsaid


def test_words_that_no_flag_takes_are_named() -> None:
    assert one("vllm serve a/b tensor-parallel-size 2").unknown == ("tensor-parallel-size", "2")


def said_setup(command: str) -> tuple[Setup, list[str]]:
    launch = one(command)
    known = Known(dict(launch.settings), launch.engine, engine_named(launch.engine).newest)
    drafts = launch.settings["algorithm"] != "none"
    return build_setup(known, Stated(gpu="h200-sxm"), (), drafts=drafts), known.notes


@pytest.mark.parametrize(
    ("command", "model", "draft", "kv_bytes"),
    [
        ("vllm serve Qwen/Qwen3-32B --quantization fp8", "fp8", "", 2.0),
        ("vllm serve Qwen/Qwen3-32B -q bitsandbytes --kv-cache-dtype nvfp4", "nf4", "", 0.5625),
        ("sglang serve --model Qwen/Qwen3-32B-AWQ --quantization awq_marlin", "awq", "", 2.0),
        (
            "sglang serve --tp 8 --model deepseek-ai/DeepSeek-R1 --quantization fp8",
            "fp8-block",
            "",
            2.0,
        ),
        (
            "llama-server -m /m/Qwen3-32B-Q4_K_M.gguf -md /m/Qwen3-0.6B-Q8_0.gguf "
            "--draft-max 8 -ctk q8_0 -ctv q8_0",
            *("q4_k_m", "Qwen3-0.6B-Q8_0", 1.0625),
        ),
        ("llama-server -hf bartowski/Qwen3-32B-GGUF:Q6_K", "q6_k", "", 2.0),
        ("mlx_lm.server --model mlx-community/Qwen3-32B-4bit", "mlx-4bit", "", 2.0),
    ],
)
def test_weights_are_what_a_command_says(
    command: str, model: str, draft: str, kv_bytes: float
) -> None:
    setup, _ = said_setup(command)
    target = assemble(setup).cost.target
    assert (target.quantisation, target.kv_dtype_bytes) == (model, kv_bytes)
    assert draft in str(setup.draft.id if setup.draft else "")


def test_weights_of_unknown_size_are_said() -> None:
    _, notes = said_setup("vllm serve Qwen/Qwen3-8B -q compressed-tensors")
    assert any("weights in bf16: compressed-tensors does not say" in note for note in notes)


def test_log_lines_below_a_command_are_not_its_arguments() -> None:
    launch = one(
        "python -m sglang.launch_server --model-path a/b --tp 8 --max-running-requests 16\n\n"
        "[2026-06-14 09:30:00 TP0] Decode batch, #running-req: 8, #token: 31200\n"
    )
    assert launch.settings == {**NONE, "model": "a/b", "tp": 8, "max_running_requests": 16}


def test_two_servers_in_one_text() -> None:
    plainly = "vllm serve a/b -tp 1"
    text = f"{plainly}\n\nwith the drafter:\n{plainly} --spec-method mtp --spec-tokens 2"
    plain, drafting = launches_in(text)
    assert plain.settings["algorithm"] == "none"
    assert drafting.settings["num_steps"] == 2


def test_unknown_arguments_are_named_once() -> None:
    launch = one("sglang serve --model a/b --frobnicate 3 --frobnicate 4 --tp 2")
    assert launch.unknown == ("--frobnicate",)
    assert "not understood" in launch.notes[0]
    assert launch.settings["tp"] == 2


def test_what_is_not_modelled_is_kept_by_name() -> None:
    launch = one("vllm serve a/b --enable-dbo --cpu-offload-gb 10")
    assert launch.settings["unmodelled"] == ["--enable-dbo", "--cpu-offload-gb"]
    assert launch.notes == ("not modelled: --enable-dbo, --cpu-offload-gb",)


def test_replicas_are_not_attention_by_request() -> None:
    assert one("sglang serve --model a/b --tp 2 --dp 4").settings["replicas"] == 4
    assert "dp" not in one("vllm serve a/b -tp 2 -dp 4").settings


def test_a_variable_that_is_nowhere_set_is_no_value() -> None:
    launch = one("vllm serve a/b -tp $GPUS")
    assert "tp" not in launch.settings
    assert "-tp $GPUS" in launch.notes[0]


def test_dialects_say_so() -> None:
    launch = one("mlx_lm.server --model a/b --draft-model c/d --num-draft-tokens 4")
    assert (launch.engine, launch.settings["num_steps"]) == ("llama.cpp", 4)
    assert "MLX is read as llama.cpp" in launch.notes[0]
    fork = one("/opt/ik_llama.cpp/build/bin/llama-server -m a.gguf")
    assert fork.dialect == "ik_llama.cpp"


@pytest.mark.parametrize("text", ["", "ls -l", "grep vllm log.txt", "docker run redis:7", "# vllm"])
def test_other_commands_are_none(text: str) -> None:
    assert parse_command(text) is None


def test_an_open_quotation_is_an_error() -> None:
    with pytest.raises(InputError, match="not closed"):
        parse_command('vllm serve a/b --speculative-config \'{"method"')
    with pytest.raises(InputError, match="not JSON"):
        parse_command("vllm serve a/b --speculative-config {method: mtp}")


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(tail: str) -> None:
    try:
        found = list(launches_in("vllm serve a/b " + tail))
    except InputError:
        return
    assert all(launch.engine in engine_names() for launch in found)


def test_files_beside_a_script_are_read(tmp_path: Path) -> None:
    (tmp_path / "extra.yml").write_text(
        "speculative_config:\n  decoding_type: MTP\n  max_draft_len: 2\n"
    )
    script = tmp_path / "run.sh"
    script.write_text("trtllm-serve a/b --extra_llm_api_options extra.yml --tp_size 2\n")
    assert read_launch(str(script)).settings["num_steps"] == 2
    with pytest.raises(InputError, match="launches no engine"):
        read_launch("ls -l")
    with pytest.raises(InputError, match=r"compose.yaml'?: is no file that is there"):
        read_launch("compose.yaml")


def test_predict_takes_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = "predict --gpu h100-sxm --solver analytic --concurrency 1 --json -- "
    command = (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 1 --max-num-seqs 16 "
        "--spec-method eagle3 --spec-model a/b --spec-tokens 3"
    )
    assert run([*words.split(), *command.split()]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["num_steps"] for row in document["rows"]} == {0, 3}
    assert run(["predict", "--gpu", "h100-sxm", "--command", "ls"]) == 2
    assert run(["predict", "--command", command, "--profile", "x"]) == 2


# --- the table


@pytest.mark.parametrize("engine", engine_names())
def test_names_have_one_row_per_release(engine: str) -> None:
    for flag in flags_of(engine):
        kinds = ("number", "text", "list", "largest", "json", "file", "switch", "optional", "repo")
        assert flag.kind in kinds or flag.kind.startswith(("=", "is:", "map:"))
        for name in flag.names:
            assert flag_named(engine, name) is not None


def test_flags_follow_the_release() -> None:
    assert flag_words("sglang", "0.5.13", "cuda_graph_max_bs", 8)[0] == "--cuda-graph-max-bs"
    assert flag_words("sglang", "0.5.14", "cuda_graph_max_bs", 8)[0] == "--cuda-graph-max-bs-decode"
    assert flag_words("sglang", "0.5.20", "scheduler", "sequential") == [
        "--disable-overlap-schedule"
    ]
    assert flag_words("sglang", "0.5.20", "cuda_graph_max_bs") == []


@pytest.mark.parametrize(
    ("words", "odd"),
    [
        ("sglang serve --model-path m --tp nan", "--tp nan"),
        ("sglang serve --model-path m --speculative-num-steps -1", "--speculative-num-steps -1"),
        ("sglang serve --model-path m --max-running-requests 1O", "--max-running-requests 1O"),
        (
            'vllm serve m --speculative-config \'{"method": "mtp", "num_speculative_tokens": -3}\'',
            "speculative_config.num_speculative_tokens -3",
        ),
        ("vllm serve m -tp 4 -dcp x", "-dcp x"),
        ("vllm serve m -tp 4 -pp two", "-pp two"),
        ("vllm serve m --max-num-seqs --enforce-eager", "--max-num-seqs without a value"),
        ("vllm serve m --cuda-graph-sizes all", "--cuda-graph-sizes all"),
        ("trtllm-serve m --tp_size four", "--tp_size four"),
        ("llama-server -m m.gguf -np many", "-np many"),
    ],
)
def test_numbers_that_are_none_are_named(words: str, odd: str) -> None:
    launch = parse_command(words)
    assert launch is not None
    assert launch.unknown == (odd,)
    assert launch.settings.get("num_steps") in (None, 0)


def test_a_long_run_of_blanks_takes_no_longer() -> None:
    began = time.process_time()
    launch = parse_command("x" + " " * 200_000 + "= 1\nvllm serve a/b -tp 2")
    assert launch is not None
    assert launch.settings["tp"] == 2
    assert time.process_time() - began < 5  # minutes, when each blank was looked at anew
