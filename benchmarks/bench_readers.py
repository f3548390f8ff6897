"""Speed and memory of the log readers on synthetic files of any size.

    python benchmarks/bench_readers.py                       # 20 MB of each kind
    python benchmarks/bench_readers.py --mb 1000 sglang      # the bar: 40 s and 300 MB for 1 GB

Each file is written to a temporary folder while it is made up, then read in a process of its own,
so that the peak of memory is the reader's. `mixed` logs hold what a server prints besides: access
lines and prefill batches; the others are the worst case, measurements only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MB = 1_000_000
BAR_S, BAR_MB = 40.0, 300.0


def stamp(second: int) -> str:
    """A time that does not run backwards for a month."""
    day, rest = divmod(second, 86_400)
    return f"2026-03-{1 + day % 28:02d} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def decode(rng: random.Random, second: int, rank: str, running: int = 48) -> str:
    tau = 2.2 + 0.4 * rng.random()
    return (
        f"[{stamp(second)}{rank}] Decode batch, #running-req: {running}, "
        f"#token: {rng.randint(10_000, 99_999)}, token usage: 0.{rng.randint(10, 89)}, "
        f"accept len: {tau:.2f}, accept rate: {tau / 4:.2f}, cuda graph: True, "
        f"gen throughput (token/s): {3000 + 200 * rng.random():.2f}, "
        f"#queue-req: {rng.randint(0, 60)}\n"
    )


def sglang(rng: random.Random) -> Iterator[str]:
    second = 0
    while True:
        second += 1
        yield decode(rng, second, " TP0")


def sglang_mixed(rng: random.Random) -> Iterator[str]:
    second = 0
    while True:
        second += 1
        yield decode(rng, second, " TP0")
        if rng.random() < 0.3:
            yield (
                f"[{stamp(second)} TP0] Prefill batch, #new-seq: 1, #new-token: "
                f"{rng.randint(100, 4000)}, #cached-token: 64, token usage: 0.50, "
                "#running-req: 47, #queue-req: 3, #pending-token: 0, cuda graph: False, "
                "input throughput (token/s): 12000.00\n"
            )
        for _ in range(3):
            yield (
                f"[{stamp(second)}] INFO:     10.0.0.7:{rng.randint(1024, 65535)} - "
                '"POST /v1/chat/completions HTTP/1.1" 200 OK\n'
            )


def sglang_ranks(rng: random.Random) -> Iterator[str]:
    second = 0
    while True:
        second += 1
        for dp in range(8):
            yield decode(rng, second, f" DP{dp} TP{dp}", 6)


def vllm(rng: random.Random) -> Iterator[str]:
    second = 0
    while True:
        second += 10
        drafts = rng.randint(2000, 3000)
        rates = [0.80 + 0.05 * rng.random(), 0.50, 0.30]
        accepted = round(drafts * sum(rates))
        head = f"(APIServer pid=7) INFO {stamp(second)[5:]} "
        yield (
            f"{head}[loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
            f"Avg generation throughput: {900 + 50 * rng.random():.1f} tokens/s, "
            f"Running: 32 reqs, Waiting: {rng.randint(0, 9)} reqs, "
            f"GPU KV cache usage: {rng.randint(20, 60)}.5%, Prefix cache hit rate: 20.0%\n"
        )
        yield (
            f"{head}[metrics.py:96] SpecDecoding metrics: "
            f"Mean acceptance length: {1 + accepted / drafts:.2f}, "
            f"Accepted throughput: {accepted / 10:.2f} tokens/s, "
            f"Drafted throughput: {3 * drafts / 10:.2f} tokens/s, Accepted: {accepted} tokens, "
            f"Drafted: {3 * drafts} tokens, Per-position acceptance rate: "
            + ", ".join(f"{r:.3f}" for r in rates)
            + f", Avg Draft acceptance rate: {100 * accepted / (3 * drafts):.1f}%\n"
        )


def trtllm(rng: random.Random) -> Iterator[str]:
    for i in range(1 << 60):
        yield (
            f"[{stamp(i // 100)}] [TRT-LLM] [I] iter = {i}, global_rank = 0, rank = 0, "
            "num_scheduled_requests = 24, kv_cache_util = 0.125, currank_total_requests = 0/24, "
            f"host_step_time = {6 + rng.random():.2f}ms, prev_device_step_time = 5.50ms, "
            f"timestamp = {stamp(i // 100)}, states = {{'num_ctx_requests': 0, "
            "'num_ctx_tokens': 0, 'num_generation_tokens': 24}\n"
        )


def trace(rng: random.Random) -> Iterator[str]:
    yield '{\n"schemaVersion": 1,\n"traceEvents": [\n'
    t = 0.0
    while True:
        events = [("gpu_user_annotation", "step[TARGET_VERIFY bs=16]", t, 8000.0)]
        events += [
            ("kernel", f"void gemm_kernel_{i % 9}<float>(params)", t + 10 * i, 9.0 + rng.random())
            for i in range(60)
        ]
        events.append(
            ("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", t + 700, 12 + rng.random())
        )
        for cat, name, ts, dur in events:
            event = {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur}
            args = {"device": 0, "stream": 7, "correlation": 42, "grid": [1, 1, 1]}
            yield json.dumps({**event, "args": args}) + ",\n"
        t += 9000.0


def prometheus(rng: random.Random) -> Iterator[str]:
    """Scrapes of two engines, one after the other."""
    scrape = 0
    while True:
        scrape += 1
        for engine in (0, 1):
            label = f'{{engine="{engine}",model_name="org/model"'
            yield f"vllm:num_requests_running{label}}} {rng.randint(1, 64)}.0\n"
            yield f"vllm:spec_decode_num_drafts_total{label}}} {100 * scrape}.0\n"
            yield f"vllm:spec_decode_num_draft_tokens_total{label}}} {200 * scrape}.0\n"
            yield f"vllm:spec_decode_num_accepted_tokens_total{label}}} {110 * scrape}.0\n"
            for position, accepted in enumerate((70, 40)):
                where = f'{label},position="{position}"}}'
                name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                yield f"{name}{where} {accepted * scrape}.0\n"
            for bucket in range(10):
                name = "vllm:time_to_first_token_seconds_bucket"
                yield f'{name}{label},le="{bucket}.0"}} {scrape}.0\n'


def bench_json(rng: random.Random) -> Iterator[str]:
    """Results with the details of each request."""
    while True:
        clients, seconds = rng.randint(1, 10**6), 20.0 + rng.random()
        record = {
            "backend": "sglang",
            "max_concurrency": clients,
            "request_rate": "inf",
            "duration": seconds,
            "completed": 96,
            "total_input_tokens": 48000,
            "total_output_tokens": 24000,
            "request_throughput": 96 / seconds,
            "output_throughput": 24000 / seconds,
            "accept_length": 2.4,
            "mean_tpot_ms": 9.5,
            "ttfts": [0.1234 + 0.001 * i for i in range(96)],
            "itls": [[0.0123] * 40 for _ in range(96)],
        }
        yield json.dumps(record) + "\n"


KINDS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "sglang": sglang,
    "sglang_mixed": sglang_mixed,
    "sglang_ranks": sglang_ranks,
    "vllm": vllm,
    "trtllm": trtllm,
    "trace": trace,
    "prometheus": prometheus,
    "bench_json": bench_json,
}


def write(path: Path, kind: str, size: int, packed: bool) -> None:
    """Write about `size` bytes of text."""
    lines = KINDS[kind](random.Random(0))
    with gzip.open(path, "wb", compresslevel=1) if packed else path.open("wb") as file:
        written = 0
        while written < size:
            block = "".join(next(lines) for _ in range(200)).encode()
            file.write(block)
            written += len(block)


def measure(path: Path) -> dict[str, float]:
    """Read a file in another process; return seconds and peak memory."""
    command = [sys.executable, __file__, "--child", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def child(path: str) -> None:
    from specsim.logs import read_file

    wall, cpu = time.perf_counter(), time.process_time()
    entries = read_file(path)
    result = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "windows": sum(e.windows.read for e in entries),
        "unread": sum(e.unread_lines for e in entries),
    }
    print(json.dumps(result))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", help=f"of: {', '.join(KINDS)}; default all")
    parser.add_argument("--mb", type=float, default=20.0, help="size of each file, MB (default 20)")
    parser.add_argument("--gzip", action="store_true", help="write the files packed")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    unknown = set(options.kinds) - KINDS.keys()
    if unknown:
        parser.error(f"unknown kind {', '.join(sorted(unknown))}")
    print(
        f"{'kind':14}{'MB':>8}{'wall s':>9}{'s/GB':>8}{'CPU s/GB':>10}{'peak MB':>9}{'windows':>10}"
    )
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds or KINDS:
            path = Path(folder) / f"{kind}.log"
            write(path, kind, int(options.mb * MB), options.gzip)
            r = measure(path)
            path.unlink()
            gb = options.mb / 1000
            missed += r["wall_s"] / gb > BAR_S or r["peak_mb"] > BAR_MB
            print(
                f"{kind:14}{options.mb:8.0f}{r['wall_s']:9.2f}{r['wall_s'] / gb:8.1f}"
                f"{r['cpu_s'] / gb:10.1f}{r['peak_mb']:9.0f}{r['windows']:10.0f}"
                + (f"  {r['unread']:.0f} unread" if r["unread"] else "")
            )
    print(
        f"bar: {BAR_S:.0f} s/GB, {BAR_MB:.0f} MB; {'missed by ' + str(missed) if missed else 'met'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
