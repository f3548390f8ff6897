"""Launch commands: those of the engines' own pages (models and numbers changed) and their wraps."""

from __future__ import annotations

import pytest

from specsim.engine.command import Launch, launches_in, parse_command
from specsim.errors import InputError

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
        chain("MTP", 2)  # the page drafts with the layer that the checkpoint holds
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
        (
            "export M=org/v3\nTP=16\nsrun --container-image=lmsysorg/sglang:v0.5.8 bash -c "
            "'python3 -m sglang.launch_server --model-path $M --tp ${TP}'",
            "sglang",
            "0.5.8",
            16,
        ),
        (r"vllm.exe serve .\m -tp 2", "vllm", None, 2),
        ("python -m mlx_lm server --model org/q-4bit", "llama.cpp", None, 1),
        ("OLLAMA_NUM_PARALLEL=4 ollama serve", "llama.cpp", None, 1),
        ("docker run --gpus all ollama/ollama:0.12.0 run q:8b", "llama.cpp", None, 1),
        ("lms load org/q --gpu max --context-length 8192", "llama.cpp", None, 1),
        ("python3 -m dynamo.sglang --model-path a/b --tp 2", "sglang", None, 2),
        (r"C:\llama\llama-server.exe -m C:\m.gguf ^" + "\n -np 2", "llama.cpp", None, 1),
    ],
)
def test_wrapped_commands(text: str, engine: str, version: str | None, tp: int) -> None:
    launch = one(text)
    assert (launch.engine, launch.version, launch.settings["tp"]) == (engine, version, tp)
    assert launch.unknown == ()


@pytest.mark.parametrize(
    ("text", "expected", "note"),
    [
        # SGLang chooses the numbers of a draft: 0.5.9 auto_choose_speculative_params
        (
            "sglang serve zai-org/GLM-4.6 --speculative-algorithm EAGLE",
            tree("MTP", 3, 1, 4),  # no drafter's path: the target's own layer
            "own choice",
        ),
        (
            "sglang serve org/Llama-3.1-8B --speculative-algorithm EAGLE3",
            tree("EAGLE3", 5, 4, 8),
            "own choice",
        ),
        (
            "sglang serve org/Llama-3.1-8B --speculative-algorithm STANDALONE",
            tree("STANDALONE", 3, 1, 4),
            "own choice",
        ),
        ("sglang serve /m --speculative-algorithm EAGLE3", {"num_steps": None}, ""),
        # a drafter's checkpoint that is served as the model
        (
            "vllm serve org/Llama-3.1-8B-speculator.eagle3",
            {"algorithm": "EAGLE3", "draft": "org/Llama-3.1-8B-speculator.eagle3"},
            "names its target",
        ),
        ("ollama run q:8b", {"algorithm": "none"}, "drafts nothing itself"),
        ("llama-server -m a.gguf -ngl 20", {"cpu_layers": "20"}, "which the CPU"),
        ("llama-server -m a.gguf -ngl 99", {"cpu_layers": None}, ""),
        ("llama-server -m a.gguf -ts 1,1", {}, "several GPUs"),
    ],
)
def test_what_a_command_leaves_to_the_engine(
    text: str, expected: dict[str, object], note: str
) -> None:
    launch = one(text)
    assert {key: launch.settings.get(key) for key in expected} == expected
    assert any(note in said for said in launch.notes) == bool(note)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("lmdeploy serve api_server a/b --tp 4", "LMDeploy"),
        ("docker run ghcr.io/huggingface/text-generation-inference:3.0 --model-id a/b", "TGI"),
        ("./koboldcpp --model a.gguf", "KoboldCpp"),
    ],
)
def test_other_servers_are_refused_by_name(text: str, name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: is a server whose rules"):
        parse_command(text)


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


DECLARED = """
spec:
  containers:
  - image: lmsysorg/sglang:v0.5.6
    command: [python3, -m, sglang.launch_server]
    args: ["--model-path", "$(MODEL)", "--tp", "$(TP)"]
    env:
    - name: MODEL
      value: a/b
    - name: TP
      value: "4"
"""
TASK = """{
  "containerDefinitions": [
    {
      "image": "vllm/vllm-openai:v0.9.2",
      "command": ["--model", "a/b", "--tensor-parallel-size", "2"],
      "essential": true
    }
  ]
}"""


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
        # variables: a manifest's, Python's, those of Windows; a name that nothing gives is none
        (DECLARED, {"model": "a/b", "tp": 4}),
        ("M = 'a/b'\ncmd = f'vllm serve {M} -tp 2'", {"model": "a/b", "tp": 2}),
        ("set M=a/b\r\nllama-server.exe -m %M% -np 2\r\n", {"model": "a/b"}),
        ("$m = 'a/b'\nllama-server -m $m -np 2", {"model": "a/b"}),
        ("cmd = f'vllm serve {m} -tp 2'", {"model": None, "tp": 2}),
        # code within a sentence, and in a list
        ("it's `vllm serve a/b -tp 2` that doesn't start", {"model": "a/b", "tp": 2}),
        ("1. `vllm serve a/b -tp 2`\n2. then curl", {"model": "a/b", "tp": 2}),
        # other files that describe containers, other tools that run them
        (TASK, {"model": "a/b", "tp": 2}),
        (
            'config {\n  image = "vllm/vllm-openai:v0.9.2"\n  args = ["--model", "a/b"]\n}',
            {"model": "a/b"},
        ),
        ("apptainer run --nv docker://vllm/vllm-openai:v0.9.2 --model a/b -tp 2", {"tp": 2}),
        # quotes that were lost on the way
        (
            "vllm serve a/b --speculative-config {method:ngram,num_speculative_tokens:3}",
            {"algorithm": "NGRAM", "num_steps": 3},
        ),
        ("vllm serve a/b -O0  # slow", {"disable_cuda_graph": True, "tp": 1}),
    ],
)
def test_ways_of_writing(text: str, expected: dict[str, object]) -> None:
    launch = one(text)
    assert {key: launch.settings.get(key) for key in expected} == expected
    assert launch.unknown == ()


CONFIG = '{"method": "eagle3", "model": "org/e", "num_speculative_tokens": 3}'
CODE = {
    "vllm": (
        "from vllm import LLM\nllm = LLM(\n    model='org/m',  # (the target)\n"
        f"    tensor_parallel_size=2, enforce_eager=True,\n    speculative_config={CONFIG},\n)\n",
        "vllm",
        chain("EAGLE3", 3) | {"tp": 2, "model": "org/m", "draft": "org/e"},
    ),
    "vllm's first argument": ("LLM('org/m', max_num_seqs=8)", "vllm", NONE | {"model": "org/m"}),
    "sglang": (
        "llm = sgl.Engine(model_path='org/m', tp_size=4, speculative_algorithm='EAGLE3',\n"
        "  speculative_num_steps=3, speculative_eagle_topk=2, speculative_num_draft_tokens=6)",
        "sglang",
        tree("EAGLE3", 3, 2, 6) | {"tp": 4},
    ),
    "tensorrt-llm": (
        "from tensorrt_llm import LLM\nfrom tensorrt_llm.llmapi import *\n"
        "LLM(model='org/m', tensor_parallel_size=4, speculative_config=EagleDecodingConfig("
        "max_draft_len=3, speculative_model_dir='org/e'))",
        "tensorrt-llm",
        chain("EAGLE3", 3) | {"tp": 4, "draft": "org/e"},
    ),
    "list of words": (
        "subprocess.Popen([sys.executable, '-m', 'x'])\nsubprocess.Popen(['python', '-m',\n"
        "  'sglang.launch_server', '--model-path', 'org/m', '--tp', '4', '--port', str(port)])",
        "sglang",
        NONE | {"tp": 4, "model": "org/m"},
    ),
    "values of a chart": (
        'model:\n  name: org/m\nextraArgs:\n  - "--tensor-parallel-size=4"\n'
        "  - --max-num-seqs=8\nimage:\n  repository: vllm/vllm-openai\n  tag: v0.17.1\n",
        "vllm",
        NONE | {"tp": 4, "max_running_requests": 8},
    ),
    "Dockerfile": ('CMD ["vllm", "serve", "org/m", "-tp", "4"]', "vllm", NONE | {"tp": 4}),
    "list within a command": (
        'vllm serve org/m -tp 4 --compilation-config \'{"custom_ops": ["+rms_norm"]}\'',
        "vllm",
        NONE | {"tp": 4},
    ),
}


@pytest.mark.parametrize("name", CODE)
def test_code_that_starts_an_engine(name: str) -> None:
    text, engine, said = CODE[name]
    (launch,) = launches_in(text)
    assert launch.engine == engine
    assert said.items() <= launch.settings.items()
    assert not launch.unknown


@pytest.mark.parametrize("text", ["LLM(", 'LLM("' * 9, "[" * 9999, "LLM(x.y, **z)", 'LLM(f"{1}")'])
def test_code_that_is_none(text: str) -> None:
    assert all(not launch.settings.get("num_steps") for launch in launches_in(text))
