"""Results of benchmark programs in their own layouts, with numbers of our own."""

from __future__ import annotations


def serving_table(tps: float, **more: str) -> str:
    """``vllm bench serve``'s table: 40 requests of 2048 in and 1024 out, one at a time."""
    lines = {
        "Successful requests": "40",
        "Failed requests": "0",
        "Maximum request concurrency": "1",
        "Benchmark duration (s)": f"{40960 / tps:.2f}",
        "Total input tokens": "81920",
        "Total generated tokens": "40960",
        "Output token throughput (tok/s)": f"{tps:.2f}",
        "Peak output token throughput (tok/s)": "99.00",
        "Mean TTFT (ms)": "180.00",
        "Mean TPOT (ms)": f"{1e3 / tps:.2f}",
        "Acceptance length": "3.10",
        "Drafts": "13200",
        "Draft tokens": "39600",
        "Accepted tokens": "27720",
        **more,
    }
    body = "".join(f"{label + ':':<40} {value:<10}\n" for label, value in lines.items())
    rates = "".join(f"  Position {i}:                            {r:.2f}\n"
                    for i, r in enumerate((82.0, 70.0, 58.0)))  # fmt: skip
    rates = "Per-position acceptance (%):\n" + rates
    return f"{' Serving Benchmark Result ':=^50}\n{body}{rates}{'=' * 50}\n"


UNDER_HEADINGS = (
    "```\nvllm bench serve \\\n  --model org/m-NVFP4 \\\n  --top-k 20\n```\n\n"
    "# Two servers\n## org/m-FP8, 2 GPUs, MTP 3\n```\n" + serving_table(66.2)
    + "```\n### concurrency 2\n```\n"
    + serving_table(110.0, **{"Maximum request concurrency": "2"})
    + "```\n## org/m-NVFP4, 2 GPUs, MTP 3\n```\n" + serving_table(76.7) + "```\n"
)  # fmt: skip

ROUTED = """\
============ Serving Benchmark Result ============
Backend:                                 vllm      
Traffic request rate:                    20.0      
Max request concurrency:                 not set   
Successful requests:                     4000      
Benchmark duration (s):                  210.00    
Total input tokens:                      8000000   
Total generated tokens:                  800000    
Total generated tokens (retokenized):    799000    
Request throughput (req/s):              19.05     
Output token throughput (tok/s):         3809.52   
Concurrency:                             152.38    
Mean E2E Latency (ms):                   8000.00   
Mean TTFT (ms):                          1000.00   
Mean ITL (ms):                           35.18     
Max ITL (ms):                            400.00    
==================================================
"""  # noqa: W291

OFFLINE = """\
python spec_decode.py --method ngram --num_spec_tokens 4 --num_prompts 50
Processed prompts: 100%|###| 50/50 [00:08<00:00,  6.25it/s, est. speed input: 500.00 toks/s, output: 1250.00 toks/s]
--------------------------------------------------
total_num_output_tokens: 10000
num_drafts: 2000
num_draft_tokens: 6000
num_accepted_tokens: 4000
mean acceptance length: 3.00
--------------------------------------------------
acceptance at token 0: 0.90
acceptance at token 1: 0.60
acceptance at token 2: 0.30
acceptance at token 3: 0.20
"""  # noqa: E501
BENCH_THROUGHPUT = (
    "Throughput: 7.80 requests/s, 2480.00 total tokens/s, 1700.00 output tokens/s\n"
    "Total num prompt tokens:  78000\nTotal num output tokens:  170000\n"
)

TRTLLM_BENCH = """\
===========================================================
= PYTORCH BACKEND
===========================================================
Model:                  org/m-FP4
Model Path:             /models/m-FP4
TensorRT LLM Version:   1.2
Quantization:           NVFP4
KV Cache Dtype:         FP8

===========================================================
= REQUEST DETAILS
===========================================================
Number of requests:             640
Number of concurrent requests:  63.6000
Average Input Length (tokens):  1024.0000
Average Output Length (tokens): 1024.0000
===========================================================
= WORLD + RUNTIME INFORMATION
===========================================================
TP Size:                4
PP Size:                1
EP Size:                4
Max Runtime Batch Size: 64
Max Runtime Tokens:     2176
Issue Rate (req/sec):   2.0000E+14

===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     3.9063
Total Output Throughput (tokens/sec):             4000.0000
Total Token Throughput (tokens/sec):              8000.0000
Total Latency (ms):                               163840.0000
Average request latency (ms):                     16281.6000
Per User Output Throughput [w/ ctx] (tps/user):   62.9000
Per GPU Output Throughput (tps/gpu):              1000.0000
"""

AIPERF = """\
$ aiperf profile --model org/m --streaming --concurrency 8
                    NVIDIA AIPerf | LLM Metrics
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
┃                            Metric ┃      avg ┃      min ┃      p99 ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│          Time to First Token (ms) │   100.50 │    80.50 │   300.50 │
│          Inter Token Latency (ms) │    10.25 │     9.25 │    20.25 │
│              Request Latency (ms) │ 3,165.25 │ 2,000.25 │ 4,000.25 │
│  Output Token Throughput Per User │    97.56 │    90.56 │    99.56 │
│                 (tokens/sec/user) │          │          │          │
│ Output Sequence Length (tokens)   │   300.00 │   200.00 │   400.00 │
│ Output Token Throughput           │   758.27 │      N/A │      N/A │
│ (tokens/sec)                      │          │          │          │
│ Request Throughput (requests/sec) │     2.53 │      N/A │      N/A │
│ Request Count (requests)          │    96.00 │      N/A │      N/A │
└───────────────────────────────────┴──────────┴──────────┴──────────┘
                    NVIDIA AIPerf | LLM Metrics: Spec Decode
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
┃                            Metric ┃      avg ┃      min ┃      p99 ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│         Acceptance Length (ratio) │     3.90 │     1.83 │     6.00 │
│  Token-Weighted Acceptance Length │     4.20 │      N/A │      N/A │
│                           (ratio) │          │          │          │
│ Overall Draft Acceptance Rate (%) │    64.00 │      N/A │      N/A │
└───────────────────────────────────┴──────────┴──────────┴──────────┘
"""
AIPERF_CSV = """\
Metric,avg,min,max,p99
Inter Token Latency (ms),10.25,9.25,30.25,20.25
Output Sequence Length (tokens),300.50,200.00,400.00,400.00
Request Latency (ms),3165.25,2000.25,5000.25,4000.25
Time to First Token (ms),100.50,80.50,500.50,300.50

Metric,Value
Output Token Throughput (tokens/sec),760.27
Request Count,96
Request Throughput (requests/sec),2.53
"""
BATCHED = """\
main: n_kv_max = 8192, n_batch = 2048, is_pp_shared = 0, n_threads = 8

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|  1024 |    128 |    1 |   1152 |    2.000 |   512.00 |    5.000 |    25.60 |    7.000 |   164.57 |
|  1024 |    128 |    4 |   4608 |    8.000 |   512.00 |    9.600 |    53.33 |   17.600 |   261.82 |
"""
SWEEP = """\
|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
|   512 |    128 |      0 |    1.000 |   512.00 |    4.000 |    32.00 |
|   512 |    128 |   4096 |    2.000 |   256.00 |    8.000 |    16.00 |
"""
LLAMA_BENCH = """\
| model              |      size | params | backend | ngl |            test |            t/s |
| ------------------ | --------: | -----: | ------- | --: | --------------: | -------------: |
| llama 8B Q4_K_M    |  4.58 GiB | 8.03 B | CUDA    |  99 |           pp512 | 3200.00 ± 8.00 |
| llama 8B Q4_K_M    |  4.58 GiB | 8.03 B | CUDA    |  99 |           tg128 |   80.00 ± 0.25 |
| llama 8B Q4_K_M    |  4.58 GiB | 8.03 B | CUDA    |  99 |   tg128 @ d4096 |   64.00 ± 0.25 |
| qwen 7B Q8_0       |  7.54 GiB | 7.62 B | CUDA    |  99 |           tg128 |   50.00 ± 0.25 |

build: 0abc123 (9999)
"""

LLAMA_PROM = """\
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 9500
# TYPE llamacpp:tokens_predicted_seconds_total counter
llamacpp:tokens_predicted_seconds_total 190.5
# TYPE llamacpp:spec_decode_num_draft_tokens_total counter
llamacpp:spec_decode_num_draft_tokens_total 10800
# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter
llamacpp:spec_decode_num_accepted_tokens_total 5900
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total 3600
# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 2700
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 1900
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 1300
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
"""
TRTLLM_PROM = """\
trtllm_num_requests_running{model_name="org/m"} 12.0
trtllm_time_per_output_token_seconds_sum{model_name="org/m"} 40.5
trtllm_time_per_output_token_seconds_count{model_name="org/m"} 4000.0
trtllm_spec_decode_num_draft_tokens_total{model_name="org/m"} 3000.0
trtllm_spec_decode_num_accepted_tokens_total{model_name="org/m"} 1500.0
trtllm_spec_decode_acceptance_length{model_name="org/m"} 2.5
"""

PEOPLES_TABLE = """\
## Qwen3-32B on 4x H100

| Concurrency | Config   | Output tok/s | TTFT (ms) | TPOT (ms) | Acc. length |
|------------:|----------|-------------:|----------:|----------:|------------:|
| 1           | baseline |        60.25 |     120.5 |     16.55 | -           |
| 1           | EAGLE3   |       130.25 |     120.5 |      7.55 | 2.95        |
| 8           | baseline |       420.25 |     150.5 |     18.55 | -           |
| 8           | EAGLE3   |       800.25 |     160.5 |      9.65 | 2.85        |
"""
BESIDE = """\
| Clients | baseline t/s | EAGLE3 t/s | Speedup |
|---|---|---|---|
| 1 | 60.25 | 130.25 | 2.16x |
| 8 | 420.25 | 800.25 | 1.90x |
"""
SWEEP_CSV = """\
max_concurrency,request_rate,output_throughput,mean_ttft_ms,p99_ttft_ms,mean_tpot_ms,num_prompts
1,inf,66.25,180.25,400.25,14.95,40
8,inf,400.25,280.25,400.25,18.95,80
"""

LLAMA_BENCH_CSV = """\
build_commit,model_type,n_prompt,n_gen,n_depth,avg_ns,avg_ts,stddev_ts
"abc1","llama 8B Q4_K_M","512","0","0","160000000","3200.500000","8.000000"
"abc1","llama 8B Q4_K_M","0","128","0","1600000000","80.250000","0.250000"
"""
GUIDELLM_CSV = """\
Run Info,Benchmark,Request Counts,Time to First Token,Time to First Token,Inter Token Latency,Server Throughput,Server Throughput,Token Throughput,Token Metrics
Run ID,Strategy,Successful,Successful ms,Successful ms,Successful ms,Successful Concurrency,Successful Requests/Sec,Successful Output Tokens/Sec,Successful Output Tokens
,,,Mean,Median,Mean,Mean,Mean,Mean,Mean
abc,concurrent@8,90,150.25,140.25,15.75,7.75,1.95,484.25,256.5
abc,constant@2.50,75,151.25,141.25,16.75,10.25,2.45,634.25,256.5
"""  # noqa: E501
GUIDELLM_CONSOLE = """\
Server Throughput Statistics (All Requests)
|==============|=======|======|=========|==============|===============|==============|
| Benchmark    | Requests             ||| Input Tokens | Output Tokens | Total Tokens |
| Strategy     | Concurrency || Per Sec | Per Sec      | Per Sec       | Per Sec      |
|              | Mdn   | Mean | Mean                                               ||||
|--------------|-------|------|---------|--------------|---------------|--------------|
| synchronous  | 1.0   | 0.9  | 0.3     | 60.2         | 75.2          | 135.4        |
| concurrent@8 | 8.0   | 7.8  | 2.1     | 420.2        | 540.2         | 960.4        |
| constant@2.5 | 9.0   | 9.8  | 2.4     | 480.2        | 620.2         | 1,100.4      |
|==============|=======|======|=========|==============|===============|==============|
"""
FINISH = "".join(
    f"[2026-03-04 05:06:0{i}] Finish: obj=GenerateReqInput(rid='r{i}', text='x'), "
    "out={'text': 'y', 'meta_info': {'id': 'r', 'prompt_tokens': 20, 'completion_tokens': 250, "
    "'spec_verify_ct': 100, 'spec_num_proposed_drafts': 300, 'e2e_latency': 1.5}}\n"
    for i in range(3)
)
TRTLLM_SERVING = """\
============ Serving Benchmark Result ============
Total requests:                          64        
Successful requests:                     64        
Benchmark duration (s):                  20.00     
Total input tokens:                      32000     
Total generated tokens:                  16000     
Request throughput (req/s):              3.20      
Output token throughput (tok/s):         800.00    
User throughput (tok/s):                 55.00     
Mean TTFT (ms):                          120.00    
Mean TPOT (ms):                          17.50     
Avg Decoded Tokens per Iter:             2.40      
==================================================
"""  # noqa: W291
EVALSCOPE_RICH = """\
┏━━━━━━━┳━━━━━━┳━━━━━┳━━━━━━┳━━━━━━━━┳━━━━━━━━━┓
┃ Conc. ┃ Rate ┃ Num ┃  RPS ┃  Gen/s ┃ Success ┃
┡━━━━━━━╇━━━━━━╇━━━━━╇━━━━━━╇━━━━━━━━╇━━━━━━━━━┩
│     1 │  INF │  20 │ 0.25 │  60.25 │    100% │
│     8 │  INF │  80 │ 1.75 │ 430.25 │    100% │
└───────┴──────┴─────┴──────┴────────┴─────────┘
"""
VLLM_SWEEP = """\
date,backend,model_id,max_concurrency,request_rate,output_throughput,mean_tpot_ms,p99_tpot_ms,num_prompts
20260304-000001,vllm,org/m,1,inf,66.25,14.95,16.25,40
20260304-000101,vllm,org/m,8,inf,400.25,18.95,20.25,80
"""
JAX_GRID = """\
| batch size | latency (s) | input throughput (tok/s)  | output throughput (tok/s) | acc length | ITL (ms) |
| ---------- | ----------- | ------------------------- | ------------------------- | ---------- | -------- |
| 8 | 2.50 | 9000.25 | 1600.25 | n/a | 5.00 |
"""  # noqa: E501

PAIRS = """\
[baseline] clients: 1, throughput: 61.3 tok/s
[baseline] clients: 16, throughput: 702.5 tok/s
[eagle3] clients: 1, throughput: 118.25 tok/s, accept length: 2.61
[eagle3] clients: 16, throughput: 911.75 tok/s, accept length: 2.62
"""
LIST = """\
- baseline: 61.3 tok/s at bs=1
- baseline: 702.5 tok/s at bs=16
- EAGLE3: 118.25 tok/s at bs=1 (accept 2.61)
- EAGLE3: 911.75 tok/s at bs=16 (accept 2.62)
"""
THOUSANDS = """\
| conc | none tok/s | MTP tok/s |
|---|---|---|
| 1 | 62 | 118 |
| 32 | 1.41k | 1.93k |
| 128 | 2.92k | 2.84k |
"""
PAGES = [
    """\
<html><h2>org/m</h2>
<table>
<tr><th>config</th><th>clients</th><th>tok/s</th></tr>
<tr><td rowspan="2">none</td><td>1</td><td>150.1</td></tr>
<tr><td>16</td><td>1820.5</td></tr>
<tr><td rowspan="2">eagle3</td><td>1</td><td>262.4</td></tr>
<tr><td>16</td><td>2140.25</td></tr>
</table></html>
"""
]
