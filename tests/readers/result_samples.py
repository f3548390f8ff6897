"""Results, metrics and profiles in the layouts of their programs, with numbers of our own."""

from __future__ import annotations

import json

# --- Prometheus: 20 running, 1 500 tok/s, tau 2.25; vLLM: two engines, 100 drafts of 2 each.
SGLANG_PROM = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0"} 20.0
sglang:gen_throughput{engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0"} 1500.0
sglang:spec_accept_length{engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0"} 2.25
sglang:num_queue_reqs{engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0"} 6.0
"""
_ENDED = 'engine_type="unified",model_name="org/m"'
_STAGE = 'engine_type="unified",model_name="org/m",tp_rank="0",pp_rank="0",category'
SGLANG_COUNTERS = f"""\
sglang:generation_tokens_total{{{_ENDED},is_streaming="true"}} 9500.0
sglang:generation_tokens_total{{{_ENDED},is_streaming="false"}} 500.0
sglang:num_requests_total{{{_ENDED},is_streaming="true"}} 30.0
sglang:num_requests_total{{{_ENDED},is_streaming="false"}} 10.0
sglang:spec_verify_calls_total{{{_ENDED}}} 4150.0
sglang:scheduler_stage_seconds_total{{{_STAGE}="run_batch",forward_overlap="none"}} 3.0
sglang:scheduler_stage_seconds_total{{{_STAGE}="run_batch",forward_overlap="full"}} 20.0
sglang:scheduler_stage_seconds_total{{{_STAGE}="other",forward_overlap="full"}} 10.0
sglang:scheduler_stage_seconds_total{{{_STAGE}="other",forward_overlap="partial"}} 2.0
"""
SGLANG_STREAMED = "".join(
    line for line in SGLANG_COUNTERS.splitlines(keepends=True) if '"false"' not in line
)
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
    "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 250, "tokensPerBlock": 32},
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
