"""Launch lines: whole commands, which say what they were made from when they are read back."""

from __future__ import annotations

import itertools
import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from specsim.cli.main import run
from specsim.decide.launch import launches_of
from specsim.profile import Profile, load_profile
from specsim.profile.uncalibrated import uncalibrated_profile
from specsim.question import Question
from specsim.server import setup_from_mapping
from specsim.setting import SpecSetting

RELEASES = (
    ("sglang", "0.5.9", (1, 3, 4)),
    ("sglang", "0.5.23", (4, 3, 16)),
    ("vllm", "0.11.0", (1, 3, 4)),
    ("vllm", "0.33.0", (1, 5, 6)),
    ("tensorrt-llm", "main", (1, 3, 4)),
    ("tensorrt-llm", "main", (2, 3, 7)),
)


def server(engine: str, version: str, **more: object) -> Profile:
    return uncalibrated_profile(
        setup_from_mapping(
            {
                "schema": "specsim.setup/1",
                "hardware": {"gpu": "h100-sxm", "gpu_count": 2, "link": "nvlink4"},
                "model": {"id": "llama-3.1-8b"},
                "draft": {"id": "eagle3"},
                "engine": {"name": engine, "version": version, "tp": 2, **more},
            }
        )
    )


def words_of(command: str) -> list[str]:
    return shlex.split(command.replace("\\\n", ""))


@pytest.mark.parametrize(
    ("engine", "kv_dtype", "written"),
    [
        *((engine, kv_dtype, "") for engine in ("sglang", "vllm") for kv_dtype in ("auto", "bf16")),
        ("sglang", "fp8", "fp8_e4m3"),
        ("vllm", "fp8", "fp8"),
        ("sglang", "nvfp4", "nvfp4"),
    ],
)
def test_the_type_of_the_cache_is_as_the_engine_writes_it(
    engine: str, kv_dtype: str, written: str
) -> None:
    """What an engine takes by itself is not said: SGLang knows no ``auto_e4m3``."""
    profile = server(engine, "0.5.23" if engine == "sglang" else "0.33.0", kv_dtype=kv_dtype)
    plan = profile.system().plan(SpecSetting.of(1, 3, algorithm="EAGLE3"))
    (launch,) = launches_of(profile, [plan], Question())
    said = dict(itertools.pairwise(words_of(launch.command)))
    assert said.get("--kv-cache-dtype", "") == written


@pytest.mark.parametrize(("engine", "version", "numbers"), RELEASES)
def test_a_line_says_all_of_it(engine: str, version: str, numbers: tuple[int, int, int]) -> None:
    topk, steps, tokens = numbers
    profile = server(engine, version, mem_fraction_static=0.8, max_running_requests=64)
    plan = profile.system().plan(SpecSetting("EAGLE3", topk, steps, tokens))
    (launch,) = launches_of(
        profile, [plan], Question(model_path="org/model", draft_model="org/drafter")
    )
    assert not launch.missing
    words = words_of(launch.command)
    said = dict(itertools.pairwise(words))
    start = {"sglang": "--model-path", "vllm": "serve", "tensorrt-llm": "trtllm-serve"}[engine]
    assert said[start] == "org/model"
    parallel = {"sglang": "--tp-size", "vllm": "--tensor-parallel-size"}.get(engine, "--tp_size")
    assert said[parallel] == "2"
    assert {"0.8", "64"} <= set(words)
    told = launch.command + "".join(launch.files.values())
    assert "org/drafter" in told
    if engine == "sglang":
        numbers_said = ("--speculative-num-steps", "--speculative-eagle-topk")
        assert [said[flag] for flag in numbers_said] == [str(steps), str(topk)]
    elif engine == "vllm":
        config = json.loads(said["--speculative-config"])
        assert config["num_speculative_tokens"] == steps
        assert not any("async" in word for word in words)  # refused, or the default
    else:
        assert said["--extra_llm_api_options"] == "extra.yml"
        assert f"max_draft_len: {steps}" in launch.files["extra.yml"]
        assert ("use_dynamic_tree: true" in launch.files["extra.yml"]) == (topk > 1)


def test_a_line_read_back_says_what_it_was_made_from() -> None:
    """By the parser of launch commands, where it is installed."""
    parse_command = pytest.importorskip("specsim.engine.command").parse_command
    for engine, version, (topk, steps, tokens) in RELEASES:
        profile = server(engine, version, mem_fraction_static=0.8)
        plan = profile.system().plan(SpecSetting("EAGLE3", topk, steps, tokens))
        (launch,) = launches_of(
            profile, [plan], Question(model_path="org/model", draft_model="org/drafter")
        )
        found = parse_command(launch.command, lambda name, of=launch: of.files.get(name))
        assert not found.unknown
        said = found.settings
        assert (said["tp"], said["num_steps"], said["num_draft_tokens"]) == (2, steps, tokens)
        assert said.get("topk", 1) == topk


def test_a_draft_model_of_llama_cpp() -> None:
    profile = server("llama.cpp", "b7000")
    plan = profile.system().plan(SpecSetting("STANDALONE", 1, 5, 6))
    (launch,) = launches_of(
        profile, [plan], Question(model_path="target.gguf", draft_model="draft.gguf")
    )
    said = dict(itertools.pairwise(words_of(launch.command)))
    assert said["-m"] == "target.gguf"
    assert "draft.gguf" in said.values()


def test_paths_that_nobody_knows_stop_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell stops and says what is missing; with it, the command gets one quoted word."""
    monkeypatch.chdir(tmp_path)
    words = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm")
    few = ("--concurrency", "1", "--max-steps", "2")
    assert run(["recommend", *words, *few, "--launch", "serve.sh"]) == 0
    assert "Set DRAFTER" in capsys.readouterr().out
    (tmp_path / "vllm").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "vllm").chmod(0o755)

    def launched(**env: str) -> subprocess.CompletedProcess[str]:
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin", **env}
        return subprocess.run(
            ["/bin/sh", "serve.sh"], env=path, capture_output=True, text=True, check=False
        )

    stopped = launched()
    assert stopped.returncode != 0
    assert "DRAFTER" in stopped.stderr
    told = launched(DRAFTER="a path/drafter").stdout
    assert '"model": "a path/drafter"}' in told
    assert told.startswith("serve\nmeta-llama/")


def test_a_line_is_told_what_the_command_was_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Model and drafter by the names that the engine has for them; speculation is tried if off."""
    drafting = (
        '--speculative-config {"method":"eagle3","model":"org/e3","num_speculative_tokens":3}'
    )
    for more, drafter in ((drafting.split(), "org/e3"), ([], '"$DRAFTER"')):
        command = ["vllm", "serve", "RedHatAI/Qwen3-8B-FP8-dynamic", *more]
        words = ["recommend", "--gpu", "h100-sxm", "--concurrency", "1", "--", *command]
        assert run(words) == 0
        out = capsys.readouterr().out
        assert "vllm serve RedHatAI/Qwen3-8B-FP8-dynamic" in out
        assert drafter in out
        assert "steps=" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("vllm --model Qwen/Qwen3-32B-FP8", "serve Qwen/Qwen3-32B-FP8"),
        ("sglang --model Qwen/Qwen3-32B", "--model-path Qwen/Qwen3-32B"),
        ("vllm --model llama-3.1-8b --quantization fp8", "Llama-3.1-8B --quantization fp8"),
        ("sglang --model Qwen/Qwen3-32B --quantization fp8", "Qwen/Qwen3-32B --quantization fp8"),
        ("vllm --model Qwen/Qwen3-32B --quantization awq", "serve $MODEL"),
        ("sglang --model qwen3-32b --quantization int4", "--model-path $MODEL"),
        ("sglang --model gpt-oss-120b --quantization mxfp4-experts", "--model-path openai/gpt-oss"),
        ("llama.cpp --model org/Qwen3-32B-GGUF:Q6_K", "-hf org/Qwen3-32B-GGUF:Q6_K"),
        ("llama.cpp --model qwen3-32b --quantization q6_k", "-m $MODEL"),
    ],
)
def test_a_line_loads_the_weights_that_were_asked_about(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the user calls the model, and a scheme that its name does not say."""
    few = "--gpu h200 --tp 1 --concurrency 1 --max-steps 1 --max-topk 1 --json"
    assert run(["recommend", "--engine", *words.split(), *few.split()]) == 0
    (line, *_) = json.loads(capsys.readouterr().out)["launch"]
    assert said in " ".join(words_of(line["command"]))


@pytest.mark.parametrize(
    ("algorithm", "named"), [("MTP", "draft-mtp"), ("EAGLE3", "draft-eagle3"), ("DFLASH", "")]
)
def test_llama_cpp_takes_the_way_of_drafting_by_its_type(algorithm: str, named: str) -> None:
    """``--mtp`` and the like are of its download tool, and the server stops at them."""
    profile = server("llama.cpp", "main")
    plan = profile.system().plan(SpecSetting.of(1, 3, algorithm=algorithm))
    asked = Question(model_path="org/m-GGUF", draft_model="org/d-GGUF:Q8_0")
    (launch,) = launches_of(profile, [plan], asked)
    said = dict(itertools.pairwise(words_of(launch.command)))
    assert said["--spec-type"] == (named or "draft-dflash")
    assert (said["-hf"], said.get("-hfd", "org/d-GGUF:Q8_0")) == ("org/m-GGUF", "org/d-GGUF:Q8_0")


def test_weights_that_do_not_fit_are_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the command says how large the cache is."""
    command = "llama-server -hf ggml-org/GLM-4.5-Air-GGUF:Q4_K_M -c 32768 -np 4"
    assert run(["recommend", "--gpu", "rtx-4090", "--", *command.split()]) == 2
    assert "64.1 GB per GPU: do not fit on a GPU of 25.8 GB" in capsys.readouterr().err


@pytest.mark.parametrize("drafter", [None, "org/d", "$(touch owned)`touch owned`\\n"])
def test_a_file_of_the_script_names_the_drafter(
    drafter: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of TensorRT-LLM: as it is known, else as the shell's variable says; nothing in it runs."""
    monkeypatch.chdir(tmp_path)
    words = "recommend --model llama-3.1-8b --gpu h100-sxm --engine tensorrt-llm --concurrency 1"
    told = [] if drafter is None else ["--draft-model", drafter]
    assert run([*words.split(), "--max-topk", "1", *told, "--launch", "serve.sh"]) == 0
    (tmp_path / "trtllm-serve").write_text("#!/bin/sh\n")
    (tmp_path / "trtllm-serve").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    if drafter is None:
        stopped = subprocess.run(["/bin/sh", "serve.sh"], env=env, capture_output=True, check=False)
        assert (stopped.returncode != 0, b"DRAFTER" in stopped.stderr) == (True, True)
        env["DRAFTER"] = "org/mine"
    subprocess.run(["/bin/sh", "serve.sh"], env=env, check=True)
    wanted = "speculative_model_dir: " + (drafter or '"org/mine"')
    assert wanted in (tmp_path / "extra.yml").read_text()
    assert not (tmp_path / "owned").exists()


def test_a_context_that_the_command_sets_is_kept() -> None:
    profile = server("llama.cpp", "main", kv_tokens=16384)
    plan = profile.system().plan(SpecSetting.none())
    (launch,) = launches_of(profile, [plan], Question(model_path="m.gguf"))
    assert dict(itertools.pairwise(words_of(launch.command)))["-c"] == "16384"


def test_a_shipped_profile_launches_the_repository_of_its_weights() -> None:
    """Its setup says the scheme that they are published in."""
    profile = load_profile()
    plan = profile.system().plan(SpecSetting.none())
    (launch,) = launches_of(profile, [plan], Question())
    assert "--model-path moonshotai/Kimi-K2.5" in " ".join(words_of(launch.command))


@pytest.mark.skipif(shutil.which("llama-server") is None, reason="llama-server is not installed")
@pytest.mark.parametrize("algorithm", ["none", "STANDALONE", "EAGLE3", "MTP", "DFLASH", "NGRAM"])
def test_llama_servers_own_parser_takes_the_line(algorithm: str) -> None:
    """It reads all arguments before it answers ``--version``."""
    profile = server("llama.cpp", "main", kv_tokens=16384)
    speculates = algorithm != "none"
    setting = SpecSetting.of(1, 3, algorithm=algorithm) if speculates else SpecSetting.none()
    plan = profile.system().plan(setting)
    for model, drafter in (("m.gguf", "d.gguf"), ("org/m-GGUF:Q4_K_M", "org/d-GGUF")):
        asked = Question(model_path=model, draft_model=drafter)
        (launch,) = launches_of(profile, [plan], asked)
        words = [*words_of(launch.command), "--version"]
        told = subprocess.run(words, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
