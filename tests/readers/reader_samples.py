"""Texts in the layouts of the engines, with numbers of our own.

All lines of a text say the same where they can, so that a reader's figures are known exactly and
damage to one line must not change them.
"""

from __future__ import annotations

import json

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

# --- Prometheus: 20 running, 1 500 tok/s, tau 2.25; vLLM: two engines, 100 drafts of 2 each.
SGLANG_PROM = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0"} 20.0
sglang:gen_throughput{engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0"} 1500.0
sglang:spec_accept_length{engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0"} 2.25
sglang:num_queue_reqs{engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0"} 6.0
"""
VLLM_PROM = "".join(
    f'vllm:spec_decode_num_drafts_total{{engine="{e}",model_name="org/m"}} | 100.0\n'
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{e}",model_name="org/m",'
    f'position="0"}} | 70.0\n'
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{e}",model_name="org/m",'
    f'position="1"}} | 40.0\n'
    f'vllm:spec_decode_num_accepted_tokens_per_pos_created{{engine="{e}",model_name="org/m",'
    f'position="1"}} | 1756736798.730\n'
    for e in (0, 1)
)

VLLM_PROM_TOTAL = (
    "".join(
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="{e}",model_name="org/m"}} | 110.0\n'
        for e in (0, 1)
    )
    + VLLM_PROM
)

# --- Benchmarks: 12 clients, 96 requests of 500 + 250 tokens in 20 s: 1 200 tok/s, tau 2.40.
SERVING_RECORD: dict[str, object] = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": float("inf"),
    "max_concurrency": 12,
    "server_info": {
        "version": "0.5.9",
        "model_path": "org/m",
        "tp_size": 2,
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "internal_states": [{"avg_spec_accept_length": 2.4}],
    },
    "duration": 20.0,
    "completed": 96,
    "total_input_tokens": 48000,
    "total_output_tokens": 24000,
    "request_throughput": 4.8,
    "output_throughput": 1200.0,
    "total_throughput": 3600.0,
    "mean_ttft_ms": 120.0,
    "p99_ttft_ms": 300.0,
    "mean_tpot_ms": 9.5,
    "mean_itl_ms": 9.5,
    "concurrency": 11.8,
    "accept_length": 2.4,
}
VLLM_RECORD: dict[str, object] = {
    "date": "20260304-000000",
    "endpoint_type": "openai",
    "backend": "vllm",
    "model_id": "org/m",
    "num_prompts": 96,
    "request_rate": "inf",
    "max_concurrency": 12,
    "duration": 20.0,
    "completed": 96,
    "failed": 0,
    "total_input_tokens": 48000,
    "total_output_tokens": 24000,
    "request_throughput": 4.8,
    "output_throughput": 1200.0,
    "total_token_throughput": 3600.0,
    "spec_decode_acceptance_rate": 53.33,
    "spec_decode_acceptance_length": 2.6,
    "spec_decode_num_drafts": 9230,
    "spec_decode_draft_tokens": 27690,
    "spec_decode_accepted_tokens": 14768,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.5, 0.3],
    "mean_ttft_ms": 120.0,
    "mean_tpot_ms": 9.5,
    "mean_itl_ms": 24.7,
}
ONE_BATCH_RECORD = {
    "run_name": "default",
    "batch_size": 8,
    "input_len": 1000,
    "output_len": 400,
    "latency": 2.2,
    "input_throughput": 40000.0,
    "output_throughput": 1600.0,
    "overall_throughput": 5090.91,
    "last_ttft": 0.2,
    "last_gen_throughput": 1580.0,
    "acc_length": 2.0,
}
OFFLINE_RECORD = {
    "backend": "engine",
    "successful_requests": 50,
    "total_latency": 10.0,
    "total_input_tokens": 25000,
    "total_output_tokens": 9000,
    "request_throughput": 5.0,
    "output_throughput": 900.0,
    "last_gen_throughput": 1000.0,
}
SPECULATIVE_RECORDS = [
    {
        "batch_size": 1,
        "steps": 0,
        "topk": 0,
        "num_draft_tokens": 0,
        "acc_length": 1.0,
        "step_time": 0.01,
        "speed": 100.0,
    },
    {
        "batch_size": 1,
        "steps": 3,
        "topk": 2,
        "num_draft_tokens": 8,
        "acc_length": 2.5,
        "step_time": 0.0125,
        "speed": 200.0,
    },
    {
        "batch_size": 4,
        "steps": 3,
        "topk": 2,
        "num_draft_tokens": 8,
        "acc_length": 2.5,
        "step_time": 0.02,
        "speed": 125.0,
    },
]
HISTOGRAM_RECORDS = [
    {"text": "x", "meta_info": {"spec_verify_ct": 10, "spec_accept_histogram": [2, 3, 5]}},
    {"text": "y", "meta_info": {"spec_verify_ct": 10, "spec_correct_drafts_histogram": [4, 4, 2]}},
]
TRT_RECORD = {
    "iter": 7,
    "iterLatencyMS": 8.0,
    "numActiveRequests": 16,
    "numQueuedRequests": 2,
    "inflightBatchingStats": {
        "avgNumDecodedTokensPerIter": 1.0,
        "numContextRequests": 0,
        "numGenRequests": 16,
    },
    "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 250},
    "specDecodingStats": None,
}


def json_lines(*records: object) -> str:
    """JSON lines, as the benchmarks append them."""
    return "".join(json.dumps(r) + "\n" for r in records)


SERVING_TABLE = """\
============ Serving Benchmark Result ============
Backend:                                 sglang    
Traffic request rate:                    inf       
Max request concurrency:                 12        
Successful requests:                     96        
Benchmark duration (s):                  20.00     
Total input tokens:                      48000     
Total generated tokens:                  24000     
Request throughput (req/s):              4.80      
Output token throughput (tok/s):         1200.00   
Concurrency:                             11.80     
Accept length:                           2.40      
---------------Time to First Token----------------
Mean TTFT (ms):                          120.00    
P99 TTFT (ms):                           300.00    
---------------Inter-Token Latency----------------
Mean ITL (ms):                           9.50      
==================================================
"""  # noqa: W291 -- the engine pads its lines
VLLM_QUEUED_TABLE = """\
Maximum request concurrency: None
100%|██████████████████████████| 50/50 [03:20<00:00,  4.00s/it]
tip: install termplotlib and gnuplot to plot the metrics
============ Serving Benchmark Result ============
Successful requests:                     50        
Request rate configured (RPS):           10.00     
Benchmark duration (s):                  200.00    
Total input tokens:                      500000    
Total generated tokens:                  100000    
Output token throughput (tok/s):         500.00    
Peak concurrent requests:                50.00     
---------------Time to First Token----------------
Mean TTFT (ms):                          80000.00  
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          20.00     
---------------Inter-token Latency--------------
"""  # noqa: W291
SEND_ONE = """\
EAGLE V1
+-------------+--------+------------+-----------------+
| Latency (s) | Tokens | Acc Length | Speed (token/s) |
+-------------+--------+------------+-----------------+
|    5.000    |  500   |   2.500    |     100.00      |
+-------------+--------+------------+-----------------+
EAGLE V2
+-------------+--------+------------+-----------------+
| Latency (s) | Tokens | Acc Length | Speed (token/s) |
+-------------+--------+------------+-----------------+
|    4.000    |  500   |   2.500    |     125.00      |
+-------------+--------+------------+-----------------+
"""
EVALSCOPE_CUT = """\
Benchmarking summary:
+-----------------------------------+----------------------+
| Key                               | Value                |
+===================================+======================+
| Time taken for tests (s)          | 50.0                 |
+-----------------------------------+----------------------+
| Number of concurrency             | 16                   |
+-----------------------------------+----------------------+
| Total requests                    | 80                   |
+-----------------------------------+----------------------+
| Succeed requests                  | 80                   |
+-----------------------------------+----------------------+
| Failed requests                   | 0                    |
+
"""

GOLDEN = """\
# dataset: coding | temperature: 1.0
model: some-model
dataset: coding
thinking_on:
  1: 1.75
  2: 2.20
  3: 2.45
thinking_off:
  1: 1.80
"""

TRT_LOG = "".join(
    f"[03/04/2026-00:00:0{i}] [TRT-LLM] [I] iter = {10 + i}, global_rank = 0, rank = 0, "
    "num_scheduled_requests = 9, kv_cache_util = 0.125, currank_total_requests = 0/9, "
    f"host_step_time = 6.00ms, prev_device_step_time = 5.50ms, timestamp = 2026-03-04 00:00:0{i}, "
    "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 16}\n"
    for i in range(5)
)
TRT_OLD = (
    "[03/04/2026-09:56:44] [TRT-LLM] [I] iter = 212, global_rank = 0, rank = 0, "
    "currank_total_requests = 0/0, elapsed_time = 0.0040000s, timestamp = 2026-03-04 09:56:44, "
    "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 16}\n"
    "[03/04/2026-09:58:01] [TRT-LLM] [I] iter = 212, global_rank = 0, rank = 0, "
    "currank_total_requests = 0/0, elapsed_time = 0.0040000s, timestamp = 2026-03-04 09:58:01, "
    "num_scheduled_requests: 7, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, "
    "'num_generation_tokens': 16}\n"
)

LLAMA_TOOL = """\
encoded   12 tokens in    0.500 seconds, speed:   24.000 t/s
decoded  400 tokens in   40.000 seconds, speed:   10.000 t/s

n_draft   = 8
n_predict = 400
n_drafted = 800
n_accept  = 300
accept    = 37.500%

draft:

llama_perf_context_print:        load time =     273.00 ms
llama_perf_context_print:        eval time =    8000.00 ms /   800 runs   (   10.00 ms per token,   100.00 tokens per second)
llama_perf_context_print:       to
"""  # noqa: E501
LLAMA_SERVER = """\
slot print_timing: id  0 | task 1 |
prompt eval time =     500.00 ms /  1000 tokens (    0.50 ms per token,  2000.00 tokens per second)
       eval time =    2000.00 ms /   200 tokens (   10.00 ms per token,   100.00 tokens per second)
      total time =    2500.00 ms /  1200 tokens
slot print_timing: id  0 | task 1 | draft acceptance rate = 0.50000 (  120 accepted /   240 generated)
"""  # noqa: E501

NCCL_NEW = """\
# nThread 1 nGpus 4 minBytes 1024 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#  Rank  0 Group  0 Pid  28307 on      HOST device  0 [0x10] NVIDIA GeForce RTX 4090
#  Rank  3 Group  0 Pid  28307 on      HOST device  3 [0x40] NVIDIA GeForce RTX 4090
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
       65536         16384     float     sum      -1    50.00    1.31    1.97      0    49.00    1.34    2.01      0
     1048576        262144     float     sum      -1   400.00    2.62    3.93    N/A   390.00    2.69    4.03    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 2.9850
"""  # noqa: E501
NCCL_OLD = """\
       65536         16384   float    20.00    3.28    3.28  0e+00    19.10    3.43    3.43  0e+00
     1048576        262144   float   100.00   10.49   10.49  0e+00    99.90   10.50   10.50  0e+00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 6.8800
"""

NSYS_TEXT = """\
 Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  Name
 --------  ---------------  ---------  --------  --------  --------  --------  -----------  ----
     60.0         30000000       1000   30000.0   29000.0     20000     90000       4000.0  void flash_fwd_kernel<float>(params)
     40.0         20000000       1000   20000.0   19000.0      9000     90000       4000.0  ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)
"""  # noqa: E501
NSYS_CSV = """\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.0,30000000,1000,30000.0,29000.0,20000,90000,4000.0,"void flash_fwd_kernel<float, 4>(params)"
40.0,20000000,1000,20000.0,19000.0,9000,90000,4000.0,ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)
"""


def trace_events(rank: int = 0) -> list[dict[str, object]]:
    """Three rounds of verify (8 ms, batch 16) with an all-reduce in each."""
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": "python"}}
    ]
    for i in range(3):
        t = 20_000.0 * i
        span = {"ph": "X", "pid": rank, "tid": 7, "args": {}}
        events += [
            {**span, "cat": "gpu_user_annotation", "name": "draft", "ts": t, "dur": 1000.0},
            {
                **span,
                "cat": "gpu_user_annotation",
                "name": "step[TARGET_VERIFY bs=16]",
                "ts": t + 2000,
                "dur": 8000.0,
            },
            {
                **span,
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs<4096ul>)",
                "ts": t + 3000,
                "dur": 12.5 + rank,
            },
            {
                **span,
                "cat": "gpu_user_annotation",
                "name": "step[DRAFT_EXTEND_V2 bs=16]",
                "ts": t + 11_000,
                "dur": 2000.0,
            },
        ]
    return events


def trace_text(rank: int = 0, indent: int | None = None) -> str:
    """A trace as the torch profiler exports it."""
    return json.dumps(
        {"schemaVersion": 1, "deviceProperties": [], "traceEvents": trace_events(rank)},
        indent=indent,
    )
