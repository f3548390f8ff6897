"""Results of benchmark programs and answers of servers in JSON, with numbers of our own."""

from __future__ import annotations

AIPERF_JSON = {
    "schema_version": "1.4",
    "request_throughput": {"unit": "requests/sec", "avg": 2.53},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 760.27},
    "inter_token_latency": {"unit": "ms", "avg": 10.25, "p99": 20.25},
    "output_sequence_length": {"unit": "tokens", "avg": 300.5},
    "total_spec_decode_steps": {"unit": "count", "avg": 1000.0},
    "total_accepted_draft_tokens": {"unit": "tokens", "avg": 2000.0},
    "total_draft_tokens": {"unit": "tokens", "avg": 4000.0},
    "input_config": {
        "models": {"items": [{"name": "org/m"}]},
        "phases": [
            {"name": "warmup", "type": "concurrency", "concurrency": 2},
            {"name": "profiling", "type": "concurrency", "requests": 96, "concurrency": 8},
        ],
    },
}

GUIDELLM = {
    "metadata": {"version": 1},
    "benchmarks": [
        {
            "duration": 30.5,
            "config": {"strategy": {"type_": "concurrent", "streams": streams}},
            "metrics": {
                "request_totals": {"successful": 90, "incomplete": 1, "errored": 0, "total": 91},
                "request_concurrency": {"successful": {"mean": streams - 0.25, "median": streams}},
                "output_tokens_per_second": {"successful": {"mean": 60.5 * streams}},
                "time_to_first_token_ms": {"successful": {"mean": 150.5, "median": 140.5}},
                "time_per_output_token_ms": {"successful": {"mean": 16.75}},
                "inter_token_latency_ms": {"successful": {"mean": 15.75}},
                "prompt_token_count": {"successful": {"mean": 512.5}},
                "output_token_count": {"successful": {"mean": 256.5}},
            },
        }
        for streams in (1, 8)
    ],
}
INFERENCE_PERF = {
    "load_summary": {"count": 100, "requested_rate": 5.5, "achieved_rate": 5.25},
    "successes": {
        "count": 100,
        "latency": {
            "request_latency": {"mean": 2.125},
            "time_to_first_token": {"mean": 0.125},
            "time_per_output_token": {"mean": 0.0125},
        },
        "throughput": {"output_tokens_per_sec": 840.5, "requests_per_sec": 5.25},
        "prompt_len": {"mean": 500.5},
        "output_len": {"mean": 160.5},
    },
}
TRTLLM_JSON = {
    "engine": {"model": "org/m", "version": "1.2.0"},
    "world_info": {"tp_size": 2, "pp_size": 1, "ep_size": None, "max_batch_size": 64},
    "request_info": {"num_requests": 640, "avg_num_concurrent_requests": 63.6},
    "performance": {
        "total_latency_ms": 163840.0,
        "avg_request_latency_ms": 16281.6,
        "system_output_throughput_tok_s": 4000.5,
        "output_throughput_per_gpu_tok_s": 2000.25,
    },
    "streaming_metrics": {"avg_ttft_ms": 250.5, "avg_tpot_ms": 15.5},
}
INFERENCEX = {
    "hw": "h200",
    "tp": 8,
    "ep": 1,
    "conc": 64,
    "model": "org/m",
    "framework": "sglang",
    "precision": "fp8",
    "spec_decoding": "mtp",
    "isl": 1024,
    "osl": 1024,
    "tput_per_gpu": 800.5,
    "output_tput_per_gpu": 400.25,
    "mean_ttft": 0.75,
    "mean_tpot": 0.0185,
}
TIMINGS = [
    {
        "content": "x",
        "id_slot": 0,
        "timings": {
            "predicted_n": 200,
            "predicted_ms": 2500.5,
            "predicted_per_second": 79.984,
            "draft_n": 240,
            "draft_n_accepted": 120,
        },
    }
] * 2
MTP_BENCH = """\
  code_python        pred= 192 draft= 147 acc= 140 rate=0.952 tok/s=62.4
Aggregate: {
  "n_requests": 9,
  "total_predicted": 1800,
  "total_draft": 1250,
  "total_draft_accepted": 1000,
  "aggregate_accept_rate": 0.8,
  "wall_s_total": 30.3
}
"""
META_INFO = [
    {"text": "x", "meta_info": {"completion_tokens": 280, "spec_verify_ct": 100}},
    {"text": "y", "meta_info": {"completion_tokens": 220, "spec_verify_ct": 100}},
]

BATCHED_JSON = {
    "n_kv_max": 8192,
    "is_pp_shared": 0,
    "pp": 1024,
    "tg": 128,
    "pl": 4,
    "n_kv": 4608,
    "t_pp": 8.0,
    "speed_pp": 512.0,
    "t_tg": 9.6,
    "speed_tg": 53.333333,
}
LLAMA_BENCH_JSON = [
    {"model_type": "llama 8B Q4_K_M", "n_prompt": p, "n_gen": g, "n_depth": d, "avg_ts": tps}
    for p, g, d, tps in ((512, 0, 0, 3200.5), (0, 128, 0, 80.25), (0, 128, 4096, 64.25))
]
SPECFORGE = {
    "model": "org/m",
    "mtbench": [
        {
            "batch_size": 4,
            "steps": steps,
            "topk": 1,
            "num_draft_tokens": steps + 1,
            "metrics": [{"latency": 20.5, "output_throughput": tps, "accept_length": accept}],
        }
        for steps, tps, accept in ((0, 300.5, 1.0), (3, 650.5, 2.75))
    ],
}
DP_RANKS = [
    {
        "iter": i,
        "iterLatencyMS": 8.0 + rank,
        "attentionDpRank": rank,
        "numQueuedRequests": 2,
        "inflightBatchingStats": {"numContextRequests": 0, "numGenRequests": 6 + rank},
        "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 250, "tokensPerBlock": 32},
        "specDecodingStats": {"numAcceptedTokens": 9, "numRequestsWithDraftTokens": 6},
    }
    for i in range(3)
    for rank in (0, 1)
]
LM_STUDIO = {
    "model": "org/m",
    "usage": {"prompt_tokens": 24, "completion_tokens": 253},
    "stats": {
        "tokens_per_second": 51.5,
        "time_to_first_token": 0.125,
        "generation_time": 4.92,
        "draft_model": "org/d",
        "total_draft_tokens_count": 220,
        "accepted_draft_tokens_count": 160,
    },
}
JSON = [
    LM_STUDIO,
    AIPERF_JSON,
    GUIDELLM,
    INFERENCE_PERF,
    TRTLLM_JSON,
    INFERENCEX,
    *TIMINGS,
    *META_INFO,
    SPECFORGE,
]


def forward_pass(
    number: int, requests: int = 8, seconds: float = 0.02, tokens: int = 9600, **more: int
) -> dict[str, object]:
    """Return a message of SGLang's forward pass metrics."""
    prefill = {"num_prefill_requests": more.get("prompts", 0), "sum_prefill_tokens": 0}
    return {
        "version": 1,
        "worker_id": "w0",
        "dp_rank": more.get("rank", 0),
        "counter_id": number,
        "wall_time": seconds,
        "scheduled_requests": {
            **prefill,
            "var_prefill_length": 0.0,
            "sum_prefill_kv_tokens": 0,
            "num_decode_requests": requests,
            "sum_decode_kv_tokens": tokens,
            "var_decode_kv_tokens": 0.0,
        },
        "queued_requests": {**prefill, "num_decode_requests": 0, "sum_decode_kv_tokens": 0},
    }


FPM = [forward_pass(i) for i in range(12)]

REQUEST_DRAFTS = {
    "id": "cmpl-1",
    "metrics": {
        "speculative_decoding": {
            "mean_acceptance_length": 2.3,
            "draft_acceptance_rate": 26 / 60,
            "acceptance_histogram": [6, 4, 8, 2],
            "num_spec_steps": 20,
            "num_accepted_draft_tokens": 26,
            "num_draft_tokens": 60,
            "num_spec_tokens": 3,
        }
    },
}
"""An answer of vLLM's server: 6 rounds accepted no draft, 4 one, 8 two, 2 three."""

NESTED = """\
{"eagle3": {"1": {"tok/s": 95.25, "accept_length": 2.91},
            "8": {"tok/s": 600.5, "accept_length": 2.82}},
 "baseline": {"1": {"tok/s": 60.25}, "8": {"tok/s": 410.5}}}
"""
YAML = """\
model: org/m
eagle3:
  1: {tok/s: 95.25, accept_length: 2.91}
  8:
    tok/s: 600.5
    accept_length: 2.82
baseline:
  - concurrency: 1
    tok/s: 60.25
  - concurrency: 8
    tok/s: 410.5
"""
