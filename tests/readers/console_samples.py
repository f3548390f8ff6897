"""What programs print in sentences, in their layouts, with numbers of our own."""

from __future__ import annotations

ONE_BATCH = """\
max_total_num_tokens=409600
Warmup ...
Prefill. latency: 0.51000 s, throughput:  16062.75 token/s
Decode 0. Batch size: 8, latency: 0.00830 s, throughput:    963.86 token/s
Decode.  median latency: 0.00799 s, median throughput:   1001.25 token/s
Total. latency:  0.200 s, throughput:   6160.00 token/s
Benchmark ...
Prefill. latency: 0.51000 s, throughput:  16062.75 token/s
Decode 0. Batch size: 8, latency: 0.00830 s, throughput:    963.86 token/s
Decode 1. Batch size: 8, latency: 0.00801 s, throughput:    998.75 token/s
Decode.  median latency: 0.00799 s, median throughput:   1001.25 token/s
Total. latency:  2.556 s, throughput:   4005.00 token/s
Prefill. latency: 1.02000 s, throughput:  16062.75 token/s
Decode 0. Batch size: 16, latency: 0.00920 s, throughput:   1739.13 token/s
Decode.  median latency: 0.00900 s, median throughput:   1777.78 token/s
Total. latency:  3.556 s, throughput:   6005.00 token/s
"""
# A break within a number of its command makes another one, which no test of damage likes.
LATENCY = """\
$ vllm bench latency --model org/m -tp 2 --input-len 512 --output-len 256 --batch-size 8 \\
    --speculative-config '{"method": "ngram", "num_speculative_tokens": 4}'
Warming up...
Avg latency: 2.0481734012 seconds
10% percentile latency: 2.0311 seconds
99% percentile latency: 2.0801 seconds
"""
LLAMA_CLI = """\
> why is the sky blue?

Scattering.

[ Prompt: 210.4 t/s | Generation: 41.7 t/s ]
"""
LLAMA_PERF = """\
llama_perf_context_print:        load time =    2105.12 ms
llama_perf_context_print: prompt eval time =      94.21 ms /    14 tokens (    6.73 ms per token,\
   148.60 tokens per second)
llama_perf_context_print:        eval time =    6400.00 ms /   256 runs   (   25.00 ms per token,\
    40.00 tokens per second)
llama_perf_context_print:       total time =    6560.11 ms /   270 tokens
"""
OLLAMA = """\
total duration:       4.512338375s
load duration:        51.123ms
prompt eval count:    26 token(s)
prompt eval duration: 130.079ms
prompt eval rate:     199.88 tokens/s
eval count:           298 token(s)
eval duration:        4.328s
eval rate:            68.85 tokens/s
"""
LM_STUDIO = """\
Prediction Stats:
  Stop Reason: eosFound
  Tokens/Second: 34.27
  Time to First Token: 0.412s
  Prompt Tokens: 21
  Predicted Tokens: 518
  Total Tokens: 539
"""
LM_STUDIO_LINE = """\
82.31 tok/sec • 512 tokens • 0.31s to first token • Stop reason: EOS Token Found
95.02 tok/sec • 498 tokens • 0.33s to first token • Accepted 301/412 draft tokens (73.1%)
"""

CONSOLE = [ONE_BATCH, LATENCY, LLAMA_CLI, OLLAMA, LM_STUDIO, LM_STUDIO_LINE]
# A figure that begins its line may lose its first digits to the line above.
BETWEEN_WORDS = [ONE_BATCH, LLAMA_CLI, OLLAMA, LM_STUDIO]
