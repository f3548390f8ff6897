"""Launch commands: those of the engines' own pages (models and numbers changed) and their wraps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.calibrate.log_setup import Known, Stated, build_setup
from specsim.cli.main import run
from specsim.cli.uncalibrated import read_launch
from specsim.engine import engine_named, engine_names
from specsim.engine.command import MARK, Launch, launches_in, parse_command
from specsim.engine.flags import flag_named, flag_words, flags_of
from specsim.errors import InputError
from specsim.server import Setup
from specsim.server.system import assemble

NONE = {"algorithm": "none", "topk": 1, "num_steps": 0, "num_draft_tokens": 1}


def chain(algorithm: str, steps: int) -> dict[str, object]:
    return {"algorithm": algorithm, "topk": 1, "num_steps": steps, "num_draft_tokens": steps + 1}


def tree(algorithm: str, *numbers: int) -> dict[str, object]:
    return {"algorithm": algorithm} | dict(
        zip(("num_steps", "topk", "num_draft_tokens"), numbers, strict=True)
    )


DOCUMENTED = {
    # SGLang, page on speculative decoding, of several releases
    "sglang eagle-2": (
        "python3 -m sglang.launch_server --model org/chat-7b --speculative-algorithm EAGLE "
        "--speculative-draft-model-path org/eagle-chat-7b --speculative-num-steps 3 "
        "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --cuda-graph-max-bs 8 "
        "--log-level warning",
        "sglang",
        tree("EAGLE", 3, 4, 16) | {"draft": "org/eagle-chat-7b", "cuda_graph_max_bs": 8},
    ),
    "sglang torch.compile and frequency-ranked vocabulary": (
        "python3 -m sglang.launch_server --model org/base-8b --speculative-algorithm EAGLE \\\n"
        "    --speculative-draft-model-path org/eagle-8b --speculative-num-steps 5 \\\n"
        "    --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 \\\n"
        "    --speculative-token-map org/fr-spec/freq_32768.pt --mem-fraction 0.7 \\\n"
        "    --cuda-graph-max-bs 2 --dtype float16 --port 30000",
        "sglang",
        tree("EAGLE", 5, 8, 64)
        | {"draft_vocab": "org/fr-spec/freq_32768.pt", "mem_fraction_static": 0.7},
    ),
    "sglang eagle-3": (
        "$ python3 -m sglang.launch_server --model org/l-8b --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path org/l-8b-eagle3 --speculative-num-steps 5 "
        "--speculative-eagle-topk 8 --speculative-num-draft-tokens 32 --mem-fraction 0.6 "
        "--cuda-graph-max-bs 2 --dtype float16 2>&1 | tee server.log",
        "sglang",
        tree("EAGLE3", 5, 8, 32) | {"mem_fraction_static": 0.6},
    ),
    "sglang multi-token prediction": (
        "python3 -m sglang.launch_server --model-path org/moe-7b --host 0.0.0.0 "
        "--trust-remote-code --speculative-algorithm NEXTN --speculative-num-steps 1 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 2 --mem-fraction 0.5",
        "sglang",
        chain("MTP", 1),
    ),
    "sglang overlapping worker of 0.5.9": (
        "SGLANG_ENABLE_SPEC_V2=True python3 -m sglang.launch_server --model-path org/q-8b "
        "--speculative-algorithm STANDALONE --speculative-draft-model-path org/q-0.6b "
        "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5 "
        "--attention-backend fa3",
        "sglang",
        chain("STANDALONE", 4) | {"scheduler": "overlap", "attention_backend": "fa3"},
    ),
    "sglang data-parallel attention": (
        "python -m sglang.launch_server --model-path org/v3 --tp 8 --dp 8 --enable-dp-attention "
        "--moe-a2a-backend deepep --deepep-mode auto --speculative-algorithm EAGLE "
        "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 "
        "--max-running-requests 256 --cuda-graph-bs 1 2 4 8 16 32 --disable-radix-cache",
        "sglang",
        chain("EAGLE", 2)
        | {"tp": 8, "dp": 8, "ep": 8, "a2a_backend": "deepep", "cuda_graph_max_bs": 32},
    ),
    "sglang block drafter of 0.5.22": (
        "sglang serve --model-path org/q-32b --speculative-algorithm DFLASH "
        "--speculative-draft-model-path org/q-32b-dflash --speculative-dflash-block-size 8 "
        "--attn-dp-size 2 --tp-size 4 --cuda-graph-max-bs-decode 64 --page-size 64",
        "sglang",
        chain("DFLASH", 7) | {"dp": 2, "tp": 4, "cuda_graph_max_bs": 64, "page_size": 64},
    ),
    # vLLM, page on speculative decoding, and its command line
    "vllm eagle-3": (
        "VLLM_USE_V1=1 vllm serve org/l-70b -tp 4 --seed 42 --speculative-config "
        '\'{"method": "eagle3", "model": "org/l-70b-eagle3", "num_speculative_tokens": 2, '
        '"draft_tensor_parallel_size": 1}\' --max-model-len 16k',
        "vllm",
        chain("EAGLE3", 2) | {"tp": 4, "context_len": 16000, "draft_tp": 1},
    ),
    "vllm draft model": (
        "python -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --port 8000 "
        "--model org/o-6b --seed 42 -tp 1 --gpu_memory_utilization 0.8 --speculative_config "
        '\'{"model": "org/o-125m", "num_speculative_tokens": 5}\'',
        "vllm",
        chain("STANDALONE", 5) | {"mem_fraction_static": 0.8, "draft": "org/o-125m"},
    ),
    "vllm n-gram by dotted arguments": (
        "vllm serve org/o-6b --speculative-config.method ngram "
        "--speculative-config.num_speculative_tokens 5 "
        "--speculative-config.prompt_lookup_max=4 --no-enable-prefix-caching",
        "vllm",
        chain("NGRAM", 5) | {"ngram_max": 4},
    ),
    "vllm of 0.8 without JSON, and expert parallelism": (
        "vllm serve org/v3 --speculative-model org/d --num-speculative-tokens 3 "
        "-dp 4 -tp 2 --enable-expert-parallel --enforce-eager",
        "vllm",
        chain("STANDALONE", 3) | {"tp": 8, "dp": 4, "ep": 8, "disable_cuda_graph": True},
    ),
    "vllm table by batch size of 0.33": (
        'vllm serve org/q --spec-method mtp --spec-tokens 3 -cc \'{"cudagraph_mode": "FULL", '
        '"cudagraph_capture_sizes": [4, 8, 16]}\' --speculative-config '
        "'{\"num_speculative_tokens_per_batch_size\": [[1, 16, 3], [64, 128, 1]]}'",
        "vllm",
        chain("MTP", 3) | {"cuda_graph_max_bs": 16, "schedule": [[1, 16, 3], [64, 128, 1]]},
    ),
    # TensorRT-LLM: options in a file that the page writes first
    "tensorrt-llm eagle-3": (
        "cat >./extra.yml <<EOF\nspeculative_config:\n  decoding_type: Eagle\n"
        "  max_draft_len: 3  # drafts\n  speculative_model_dir: org/l-eagle3\n"
        "kv_cache_config:\n  dtype: fp8\n  free_gpu_memory_fraction: 0.8\n"
        "cuda_graph_config:\n  enable_padding: true\n  batch_sizes: [1, 2, 4, 8]\nEOF\n"
        "trtllm-serve org/l-70b --backend pytorch --tp_size 4 --max_batch_size 64 "
        "--max_num_tokens 4096 --extra_llm_api_options ./extra.yml",
        "tensorrt-llm",
        chain("EAGLE3", 3)
        | {"kv_dtype": "fp8", "cuda_graph_max_bs": 8, "tp": 4, "max_running_requests": 64},
    ),
    "tensorrt-llm multi-token prediction with attention by request": (
        "cat <<EOF > /tmp/config.yml\nenable_attention_dp: true\nspeculative_config:\n"
        "  decoding_type: MTP\n  num_nextn_predict_layers: 1\n  draft_len_schedule:\n"
        "    4: 3\n    8: 1\nEOF\nmpirun -n 1 trtllm-llmapi-launch trtllm-serve serve org/r1 "
        "--tp_size 8 --ep_size 8 --kv_cache_free_gpu_memory_fraction 0.85 "
        "--config /tmp/config.yml",
        "tensorrt-llm",
        chain("MTP", 1) | {"dp": 8, "ep": 8, "schedule": {"4": "3", "8": "1"}},
    ),
    # llama.cpp, page of its server, before and after the flags were renamed
    "llama.cpp draft model": (
        "llama-server -m model.gguf -md draft.gguf --draft-max 16 --draft-min 1 -ngl 99 -np 2 "
        "-c 16384 -fa",
        "llama.cpp",
        chain("STANDALONE", 16) | {"max_running_requests": 2, "kv_tokens": 16384},
    ),
    "llama.cpp of 2026": (
        "./build/bin/llama-server -hf org/q-gguf:Q4_K_M --spec-type draft-mtp "
        "--spec-draft-n-max 4 -ngl all --parallel 4 -ctk q8_0 -ctv q8_0 --flash-attn on",
        "llama.cpp",
        chain("MTP", 4) | {"kv_dtype": "q8_0", "model": "org/q-gguf:Q4_K_M"},
    ),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_commands_are_understood_completely(name: str) -> None:
    text, engine, expected = DOCUMENTED[name]
    launch = parse_command(text)
    assert launch is not None
    assert launch.engine == engine
    assert launch.unknown == ()
    assert not [note for note in launch.notes if "not found" in note or "does not say" in note]
    assert {key: launch.settings.get(key) for key in expected} == expected
    assert MARK.search(text.encode())


def one(text: str) -> Launch:
    found = list(launches_in(text))
    assert len(found) == 1
    return found[0]


COMPOSE = """
services:
  llm:
    image: lmsysorg/sglang:v0.5.9-cu126
    environment:
      - SGLANG_ENABLE_SPEC_V2=1
    command:
      - python3
      - -m
      - sglang.launch_server
      - --model-path
      - org/v3
      - --tp=8
      - --speculative-algorithm
      - EAGLE3
      - "--speculative-num-steps=3"
      - --speculative-eagle-topk=1
      - --speculative-num-draft-tokens=4
    ports: ["30000:30000"]
"""
FOLDED = """
  vllm:
    image: vllm/vllm-openai:v0.11.0
    command: >
      --model org/q
      --tensor-parallel-size 2
    volumes:
      - a:/b
"""
SCRIPT = """
      - image: lmsysorg/sglang:v0.5.22
        command: ["bash", "-c"]
        args:
        - |
          export TP=2
          python3 -m sglang.launch_server --model-path a/b \\
            --tp-size $TP
          sleep 5
        env: []
"""
MANIFEST = """
kind: Deployment
spec:
  containers:
  - name: server
    image: registry.example.com:5000/mirror/vllm-openai:v0.33.0
    command: ["/bin/sh", "-c"]
    args:
    - "exec vllm serve org/v3 -tp 8 --spec-method mtp --spec-tokens 1"
    resources: {}
"""


@pytest.mark.parametrize(
    ("text", "engine", "version", "tp"),
    [
        (COMPOSE, "sglang", "0.5.9", 8),
        (FOLDED, "vllm", "0.11.0", 2),
        (MANIFEST, "vllm", "0.33.0", 8),
        (SCRIPT, "sglang", "0.5.22", 2),
        (
            "docker run --gpus all --shm-size 32g -p 30000:30000 -v ~/.cache:/root/.cache "
            "lmsysorg/sglang:v0.5.12.post1-cu130 python3 -m sglang.launch_server --model a/b "
            "--tp 4",
            "sglang",
            "0.5.12.post1",
            4,
        ),
        ("docker run vllm/vllm-openai:latest --model a/b -tp 2", "vllm", None, 2),
        (
            "docker run --rm ghcr.io/ggml-org/llama.cpp:server-cuda-b6123 -m /m.gguf -np 8",
            "llama.cpp",
            "b6123",
            1,
        ),
        ('kubectl exec pod -- bash -lc "vllm serve a/b -tp 2 && true"', "vllm", None, 2),
        (
            "pip install sglang==0.5.18\nnohup sglang serve --model a/b --tp 2 &",
            "sglang",
            "0.5.18",
            2,
        ),
        (
            "export MODEL=a/b\nTP=4\nvllm serve $MODEL \\\n  -tp ${TP} \\\n  # a comment\n"
            "  --max-num-seqs 8\necho done",
            "vllm",
            None,
            4,
        ),
        (
            "ssh box 'cd /srv; python -m sglang.launch_server --model a/b --tp-size 2'",
            "sglang",
            None,
            2,
        ),
        (
            "CUDA_VISIBLE_DEVICES=0,1 uv run vllm serve a/b\n --tensor-parallel-size 2",
            "vllm",
            None,
            2,
        ),
        (r"C:\llama\llama-server.exe -m C:\m.gguf ^" + "\n -np 2", "llama.cpp", None, 1),
    ],
)
def test_wrapped_commands(text: str, engine: str, version: str | None, tp: int) -> None:
    launch = one(text)
    assert (launch.engine, launch.version, launch.settings["tp"]) == (engine, version, tp)
    assert launch.unknown == ()


def test_a_setting_of_the_environment() -> None:
    assert one(COMPOSE).settings["scheduler"] == "overlap"
    launch = one("LLAMA_ARG_N_PARALLEL=6 llama-server -m a.gguf")
    assert launch.settings["max_running_requests"] == 6


KUBERNETES = """
spec:
  containers:
  - image: lmsysorg/sglang:v0.5.6
    env:
    - name: SGLANG_ENABLE_SPEC_V2
      value: "1"
    command: [python3, -m, sglang.launch_server, --model-path, a/b, --tp, "2"]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (KUBERNETES, {"scheduler": "overlap", "tp": 2}),
        # a list, as a Dockerfile and `docker inspect` have it
        ('CMD ["vllm", "serve", "a/b", "--max-num-seqs", "8"]', {"max_running_requests": 8}),
        ('["python3", "-m", "sglang.launch_server", "--model", "a/b", "--tp", "2"]', {"tp": 2}),
        # quotes and dashes as word processors and chats write them
        (
            "vllm serve a/b \u2014tensor-parallel-size 2 \u2013\u2013max-num-seqs 8 "
            '--speculative-config \u201c{"method": "ngram", "num_speculative_tokens": 3}\u201d',
            {"tp": 2, "max_running_requests": 8, "algorithm": "NGRAM", "num_steps": 3},
        ),
        ("vllm serve \u201ca/b\u201d", {"model": "a/b"}),
        # the last one counts, under whatever name
        ("sglang serve --model a/b --tp 2 --tp-size 4", {"tp": 4}),
        ("vllm serve a/b --max-num-seqs 8 --max-num-seqs=16", {"max_running_requests": 16}),
        # nothing but the environment says what a container runs
        (
            "docker run -e LLAMA_ARG_MODEL=/m/a.gguf -e LLAMA_ARG_N_PARALLEL=8 "
            "ghcr.io/ggml-org/llama.cpp:server-cuda",
            {"model": "/m/a.gguf", "max_running_requests": 8},
        ),
        ("vllm serve a/b -O0  # slow", {"disable_cuda_graph": True, "tp": 1}),
    ],
)
def test_ways_of_writing(text: str, expected: dict[str, object]) -> None:
    launch = one(text)
    assert {key: launch.settings.get(key) for key in expected} == expected
    assert launch.unknown == ()


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
        read_launch("ls")


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
        kinds = ("number", "text", "list", "largest", "json", "file", "switch", "optional")
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
    ],
)
def test_numbers_that_are_none_are_named(words: str, odd: str) -> None:
    launch = parse_command(words)
    assert launch is not None
    assert launch.unknown == (odd,)
    assert launch.settings.get("num_steps") in (None, 0)
