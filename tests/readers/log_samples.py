"""Texts in the layouts of the engines, with numbers of our own.

All lines of a text say the same where they can, so that a reader's figures are known exactly and
damage to one line must not change them.
"""

from __future__ import annotations

STAMP = "2026-03-04 05:06:%02d"


def decode_lines(
    body: str, count: int = 8, prefix: str = "[" + STAMP + " TP0] ", start: int = 0
) -> str:
    """`count` decode lines, a second apart."""
    lines = []
    for i in range(start, start + count):
        head = prefix % (i % 60) if "%02d" in prefix else prefix
        lines.append(head + body)
    return "\n".join(lines) + "\n"


# What the decode line of each generation looks like: 24 running, 7 queued, 2 880 tok/s, tau 2.40.
T, D = "#running-req: 24, #token: 30720, token usage: 0.12, ", "gen throughput (token/s): 2880.00, "
SPEC, GRAPH, Q = "accept len: 2.40, ", "cuda graph: True, ", "#queue-req: 7"
PD = "pre-allocated usage: 0.20, #prealloc-req: 0, #transfer-req: 1, #retracted-req: 0, "

DECODE_PLAIN = {
    "0.4.0-0.4.2": "Decode batch. " + T + D + Q,
    "0.4.3": "Decode batch. " + T + D + "largest-len: 0, " + Q + ", ",
    "0.4.4-0.4.5": "Decode batch. " + T + D + Q + ", ",
    "0.4.6-0.4.8": "Decode batch. " + T + GRAPH + D + Q,
    "0.4.9-0.5.3": "Decode batch. " + T + GRAPH + D + Q + ", ",
    "0.5.4-0.5.8": "Decode batch, " + T + GRAPH + D + Q + ", ",
    "0.5.9-0.5.23": "Decode batch, " + T + GRAPH + D + Q,
}
DECODE_SPEC = {
    "0.4.0-0.4.2": "Decode batch. " + T + SPEC + D + Q,
    "0.4.3": "Decode batch. " + T + SPEC + D + "largest-len: 0, " + Q + ", ",
    "0.4.4-0.4.5": "Decode batch. " + T + SPEC + D + Q + ", ",
    "0.4.6-0.4.8": "Decode batch. " + T + SPEC + GRAPH + D + Q,
    "0.4.9-0.5.2": "Decode batch. " + T + SPEC + GRAPH + D + Q + ", ",
    "0.5.3": "Decode batch. " + T + SPEC + "accept rate: 0.60, " + GRAPH + D + Q + ", ",
    "0.5.4-0.5.8": "Decode batch, " + T + SPEC + "accept rate: 0.60, " + GRAPH + D + Q + ", ",
    "0.5.9-0.5.23": "Decode batch, " + T + SPEC + "accept rate: 0.47, " + GRAPH + D + Q,
}
DECODE_PD = {
    "0.4.6-0.4.8": "Decode batch. " + T + SPEC + "pre-allocated usage: 0.00, " + GRAPH + D + Q,
    "0.5.3": "Decode batch. " + T + SPEC + "accept rate: 0.60, " + PD + GRAPH + D + Q + ", ",
    "0.5.9-0.5.23": "Decode batch, "
    + T
    + SPEC
    + "accept rate: 0.47, "
    + PD.replace("#retracted", "#host-receive-req: 0, #retracted")
    + GRAPH
    + D
    + Q,
}
DECODE_HYBRID = {
    "swa": "Decode batch, #running-req: 24, #full token: 30720, full token usage: 0.12, "
    "#swa token: 9000, swa token usage: 0.03, " + SPEC + "accept rate: 0.47, " + GRAPH + D + Q,
    "mamba": "Decode batch, #running-req: 24, #full token: 30720, full token usage: 0.12, "
    "mamba num: 30, mamba usage: 0.10, " + SPEC + "accept rate: 0.47, " + GRAPH + D + Q,
    "iteration": "Decode batch [1200], " + T + SPEC + "accept rate: 0.47, " + GRAPH + D + Q,
    "extras": "Decode batch, "
    + T
    + SPEC
    + "accept rate: 0.47, "
    + GRAPH
    + D
    + Q
    + ", est. decode TFLOPS/s: 123.40, fwd occupancy: 93.1%",
}

PREFILL = {
    "0.4.0-0.4.2": "Prefill batch. #new-seq: 3, #new-token: 3000, #cached-token: 600, "
    "cache hit rate: 16.67%, token usage: 0.05, #running-req: 9, #queue-req: 4",
    "0.4.6": "Prefill batch. #new-seq: 3, #new-token: 3000, #cached-token: 600, "
    "token usage: 0.05, #running-req: 9, #queue-req: 4",
    "0.5.4": "Prefill batch, #new-seq: 3, #new-token: 3000, #cached-token: 600, "
    "token usage: 0.05, #running-req: 9, #queue-req: 4, ",
    "0.5.9": "Prefill batch, #new-seq: 3, #new-token: 3000, #cached-token: 600, "
    "token usage: 0.05, #running-req: 9, #queue-req: 4, input throughput (token/s): 5000.00, "
    "cuda graph: True",
    "0.5.10": "Prefill batch, #new-seq: 3, #new-token: 3000, #cached-token: 600, "
    "token usage: 0.05, #running-req: 9, #queue-req: 4, cuda graph: True, "
    "input throughput (token/s): 5000.00",
    "0.5.11-0.5.23": "Prefill batch, #new-seq: 3, #new-token: 3000, #cached-token: 600, "
    "token usage: 0.05, #running-req: 9, #queue-req: 4, #pending-token: 900, cuda graph: True, "
    "input throughput (token/s): 5000.00",
}

STARTUP = """\
[2026-03-04 05:00:00] server_args=ServerArgs(model_path='org/some-model', tp_size=4, \
mem_fraction_static=0.85, max_running_requests=48, chunked_prefill_size=4096, \
cuda_graph_max_bs=64, speculative_algorithm='EAGLE3', speculative_num_steps=3, \
speculative_eagle_topk=1, speculative_num_draft_tokens=4, disable_overlap_schedule=False)
[2026-03-04 05:00:30] KV Cache is allocated. #tokens: 300000, K size: 9.50 GB, V size: 9.50 GB
[2026-03-04 05:00:31] max_total_num_tokens=300000, chunked_prefill_size=4096, \
max_prefill_tokens=16384, max_running_requests=48, context_len=16384, available_gpu_mem=7.20 GB
[2026-03-04 05:00:40] Capture cuda graph begin. This can take up to several minutes. \
avail mem=7.20 GB
[2026-03-04 05:00:41] Capture cuda graph bs [1, 2, 3, 4, 8, 16, 24, 32, 48]
[2026-03-04 05:00:52] Capture cuda graph end. Time elapsed: 11.00 s. mem usage=0.50 GB. \
avail mem=6.70 GB.
"""
STARTUP_NEW = """\
[2026-03-04 05:00:40] Capture target verify CUDA graph begin. backend=full, \
num_tokens_per_req=6, bs=[1, 2, 4, 8, 16], avail mem=11.80 GB
[2026-03-04 05:00:45] Capture draft extend CUDA graph begin. backend=full, \
num_tokens_per_req=6, bs=[1, 2, 4, 8, 16], avail mem=11.10 GB
"""

WARNINGS = """\
Max running requests is reset to 48 for speculative decoding. You can override this by \
explicitly setting --max-running-requests.
Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule is turned on.
KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 1024, \
#new_token_ratio: 0.4500 -> 0.7000
Decode out of memory happened. #retracted_reqs: 2, #new_token_ratio: 0.4500 -> 0.7000
"""

AB_PASTE = (
    "without eagle:\n```\n"
    + decode_lines(
        "Decode batch. #running-req: 1, #token: 9000, token usage: 0.00, "
        "gen throughput (token/s): 88.50, #queue-req: 0",
        4,
    )
    + "```\nwith eagle:\n```\n"
    + decode_lines(
        "Decode batch. #running-req: 1, #token: 700, token usage: 0.00, accept len: 2.75, "
        "cuda graph: True, gen throughput (token/s): 55.00, #queue-req: 0",
        4,
        "[2026-03-04 05:16:%02d TP0] ",
    )
    + "```\n"
)

SPEC_OFF = "".join(
    f"2026-03-04 19:4{minute}:1{i} INFO 15486{i} [scheduler_metrics_mixin.py:287] "
    f"Decode batch. #running-req: 40, #token: {4000 + 100 * i}, token usage: 0.00, "
    f"accept len: 1.00, accept rate: 0.14, cuda graph: {graph}, "
    f"gen throughput (token/s): {tps}, #queue-req: 0, \n"
    for minute, graph, tps in ((0, "False", "4000.00"), (1, "True", "5000.00"))
    for i in range(4)
)

PREFILL_ONLY = (
    '[2026-03-04 20:16:02] INFO:     127.0.0.1:41452 - "GET /get_model_info HTTP/1.1" 200 OK\n'
    + "".join(
        f"[2026-03-04 20:16:02 TP0] Prefill batch. #new-seq: 1, #new-token: {50 + i}, "
        f"#cached-token: 0, cache hit rate: 0.00%, token usage: 0.0{i}, #running-req: {i}, "
        f"#queue-req: {60 - i}\n"
        for i in range(6)
    )
)

KV_BOUND = (
    decode_lines(
        "Decode batch, #running-req: 5, #token: 1600, token usage: 0.96, cuda graph: True, "
        "gen throughput (token/s): 400.00, #queue-req: 4,",
        7,
        "[2026-03-04 08:43:59 TP0] ",
    )
    + "[2026-03-04 08:43:59 TP0] Decode batch, #running-req: 5, #to"
)

# --- vLLM: 12 running, 3 waiting, 600 tok/s; 250 drafts of 3, 400 accepted: tau 2.60.
ENGINE = (
    "(APIServer pid=31) INFO 03-04 05:06:%02d [loggers.py:123] Engine 000: "
    "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 600.0 tokens/s, "
    "Running: 12 reqs, Waiting: 3 reqs, GPU KV cache usage: 41.5%%, Prefix cache hit rate: 20.0%%\n"
)
SPEC_LINE = (
    "(APIServer pid=31) INFO 03-04 05:06:%02d [metrics.py:96] SpecDecoding metrics: "
    "Mean acceptance length: 2.60, Accepted throughput: 40.00 tokens/s, "
    "Drafted throughput: 75.00 tokens/s, Accepted: 400 tokens, Drafted: 750 tokens, "
    "Per-position acceptance rate: 0.800, 0.500, 0.300, Avg Draft acceptance rate: 53.3%%\n"
)
VLLM = "".join((ENGINE + SPEC_LINE) % (i, i) for i in range(0, 60, 10))
VLLM_085 = (
    "SpecDecoding metrics: Draft acceptance rate: 53.3%, Mean acceptance length: 1.60, "
    "Accepted: 400 tokens, Drafted: 750 tokens, "
    "Per-position acceptance rate: 0.800, 0.500, 0.300\n"
)
VLLM_092 = VLLM_085.replace("1.60", "2.60")
VLLM_V0 = (
    "INFO 03-04 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.600, "
    "System efficiency: 0.570, Number of speculative tokens: 4, Number of accepted tokens: 9600, "
    "Number of draft tokens: 16000, Number of emitted tokens: 11400.\n"
)
VLLM_FIRST = (
    "Speculative metrics: Draft acceptance rate: 0.500, Number of accepted tokens: 40, "
    "Number of draft tokens: 80, \n"
    "SpecDecoding metrics: Draft acceptance rate: 50.0%, Accepted: 40 tokens, "
    "Drafted: 80 tokens\n"
    "Engine 000: Avg prompt throughput: 1.3 tokens/s, Avg generation throughput: 9.2 tokens/s, "
    "Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%\n"
)
VLLM_AB = (
    "without mtp\n"
    "(APIServer pid=1422)INFO 04-10 11:27:20 [loggers.py:259] Engine 000: Avg prompt throughput: "
    "900.0 tokens/s, Avg generation throughput: 300.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 0.1%, Prefix cache hit rate: 44.5%, MM cache hit rate: 16.7%\n"
    "with mtp\n"
    "(APIServer pid=1401)INFO 04-10 11:18:03 [loggers.py:259] Engine 000: Avg prompt throughput: "
    "1300.0 tokens/s, Avg generation throughput: 120.0 tokens/s, Running: 1 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 0.2%, Prefix cache hit rate: 22.3%, "
    "MM cache hit rate: 6.5%\n"
    "(APIServer pid=1401)INFO 04-10 11:18:03 [metrics.py:101] SpecDecoding metrics: "
    "Mean acceptance length: 1.95, Accepted throughput: 28.50 tokens/s, "
    "Drafted throughput: 30.00 tokens/s, Accepted: 285 tokens, Drafted: 300 tokens, "
    "Per-position acceptance rate: 0.950, Avg Draft acceptance rate: 95.0%\n"
)
VLLM_UNUSED = (
    "(APIServer pid=1) INFO 05-03 14:24:50 [metrics.py:101] SpecDecoding metrics: "
    "Mean acceptance length: 1.90, Accepted throughput: 9.00 tokens/s, "
    "Drafted throughput: 80.00 tokens/s, Accepted: 90 tokens, Drafted: 800 tokens, "
    "Per-position acceptance rate: 0.600, 0.300, 0.000, 0.000, 0.000, 0.000, 0.000, 0.000, "
    "Avg Draft acceptance rate: 11.2%\n"
)
VLLM_STALLED = "".join(
    f"(APIServer pid=851) INFO 04-28 22:54:{s} [loggers.py:257] Engine 000: "
    "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 6.0 tokens/s, "
    "Running: 1 reqs, Waiting: 11 reqs, GPU KV cache usage: 70.5%, Prefix cache hit rate: 92.0%\n"
    '(APIServer pid=851) INFO:     IP:59146 - "GET /metrics HTTP/1.1" 200 OK\n'
    for s in (32, 42, 52, "02")
)
VLLM_STARTUP = (
    "(APIServer pid=31) INFO 03-04 05:00:00 [api_server.py:1896] vLLM API server version 0.11.0\n"
    "(APIServer pid=31) INFO 03-04 05:00:00 [utils.py:233] non-default args: "
    "{'model': 'org/some-model', 'max_num_seqs': 64, 'speculative_config': "
    "{'method': 'eagle3', 'model': 'org/draft', 'num_speculative_tokens': 3}}\n"
    "(EngineCore pid=40) INFO 03-04 05:00:09 [core.py:77] Initializing a V1 LLM engine (v0.11.0) "
    "with config: model='org/some-model', speculative_config=SpeculativeConfig(method='eagle3', "
    "model='org/draft', num_spec_tokens=3), tokenizer='org/some-model', max_seq_len=8192, "
    "tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, "
    "quantization=None, enforce_eager=False, kv_cache_dtype=auto, seed=0\n"
    "(EngineCore pid=40) INFO 03-04 05:00:40 [kv_cache_utils.py:868] GPU KV cache size: "
    "210,000 tokens\n"
)


def iteration_lines(
    each_second: int,
    wait_ms: float,
    *,
    batch: int = 8,
    drafts: int = 3,
    seconds: int = 8,
    engine: int = 0,
    kv: str = "",
) -> str:
    """Lines of vLLM's iteration details: so many in each of some seconds."""
    return "".join(
        f"(EngineCore_DP{engine} pid=7) INFO 07-20 12:00:{i // each_second:02d} [core.py:461] "
        f"Iteration({i}): 0 context requests, 0 context tokens, {batch} generation requests, "
        f"{batch * (drafts + 1)} generation tokens, iteration elapsed time: {wait_ms:.2f} ms{kv}\n"
        for i in range(each_second * seconds)
    )
