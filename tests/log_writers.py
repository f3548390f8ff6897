"""Simulated runs printed as the logs of real servers: what the recovery tests read back.

Each writer takes a ramp of simulated load levels on one server and prints what that engine would
have printed, with its windows, its rounding, its clock of whole seconds and its way of counting.
How long each window took carries a lognormal error with memory, as on a real machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from specsim.case import Case
from specsim.simulate import SimulationResult

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOISE, MEMORY = 0.02, 0.3
"""Error of ln(length of a window), and its lag-1 autocorrelation."""
SGLANG_ROUNDS = 40
VLLM_WINDOW_S = 10.0
PAUSE_S = 30.0
"""Between two levels of a ramp nothing runs."""
START = datetime(2026, 3, 4, 5, 6, 7)


@dataclass(frozen=True)
class Level:
    """One load level: the case, and a run of it with its rounds recorded."""

    case: Case
    result: SimulationResult


@dataclass(frozen=True)
class Steps:
    """Rounds (True) and prefill steps of a run in order, with lengths that carry noise."""

    is_round: NDArray[np.bool_]
    number: Ints
    start_s: Floats
    end_s: Floats


def errors(rng: np.random.Generator, count: int) -> Floats:
    """Factors of successive windows: lognormal, AR(1)."""
    noise = rng.normal(0.0, NOISE, count)
    for i in range(1, count):
        noise[i] = MEMORY * noise[i - 1] + np.sqrt(1 - MEMORY**2) * noise[i]
    return np.exp(noise)


def steps_of(level: Level, rng: np.random.Generator, window: int | float) -> Steps:
    """Put rounds and prefill steps in order; `window` is rounds (int) or seconds (float)."""
    rounds, prefills = level.result.rounds, level.result.prefills
    prefills = prefills[~prefills["mixed"]]
    start = np.concatenate([rounds["start_s"], prefills["start_s"]])
    end = np.concatenate([rounds["end_s"], prefills["end_s"]])
    order = np.argsort(start, kind="stable")
    is_round = order < len(rounds)
    number = np.where(is_round, order, order - len(rounds))
    length = (end - start)[order]
    if isinstance(window, int):
        index = np.cumsum(is_round) // window
    else:
        index = (np.cumsum(length) // window).astype(np.int64)
    length = length * errors(rng, int(index[-1]) + 1)[index]
    ends = np.cumsum(length)
    return Steps(is_round, number, ends - length, ends)


def _counted(level: Level) -> Floats:
    """Tokens of each round as an engine counts them that looks at the batch it ran.

    Requests that had ended when the round was launched are in it, with the tokens of a mean one.
    """
    rounds = level.result.rounds
    emitted = rounds["active"] + rounds["accepted"]
    return np.asarray(emitted * rounds["batch"] / np.maximum(rounds["active"], 1))


def _stamp(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return (START + timedelta(seconds=seconds)).strftime(form)


def sglang_log(levels: Sequence[Level], rng: np.random.Generator) -> str:
    """Decode and prefill lines of SGLang 0.5.11 to 0.5.23, start-up lines before them."""
    case = levels[0].case
    lines = list(_sglang_startup(case))
    clock = 60.0
    for level in levels:
        lines += _sglang_level(level, rng, clock)
        clock += float(level.result.rounds["end_s"][-1]) * 1.05 + PAUSE_S
    return "\n".join(lines) + "\n"


def _sglang_startup(case: Case) -> Iterator[str]:
    setting, pool = case.plan.setting, round(case.pool_tokens)
    spec = "speculative_algorithm=None"
    if setting.speculates:
        spec = (
            f"speculative_algorithm='{setting.algorithm}', "
            f"speculative_num_steps={setting.num_steps}, speculative_eagle_topk={setting.topk}, "
            f"speculative_num_draft_tokens={setting.num_draft_tokens}"
        )
    sizes = list(case.plan.graph_batch_sizes)
    chunk, most = case.plan.chunked_prefill_size, case.plan.max_running_requests
    yield (
        f"[{_stamp(0)}] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B-Instruct', "
        f"tp_size=1, mem_fraction_static=0.85, max_running_requests={most}, "
        f"chunked_prefill_size={chunk}, cuda_graph_max_bs={max(sizes)}, "
        f"attention_backend='fa3', {spec}, disable_overlap_schedule=False)"
    )
    yield f"[{_stamp(20)}] KV Cache is allocated. #tokens: {pool}, K size: 9.50 GB, V size: 9.50 GB"
    yield (
        f"[{_stamp(21)}] max_total_num_tokens={pool}, chunked_prefill_size={chunk}, "
        f"max_prefill_tokens=16384, max_running_requests={most}, context_len=16384, "
        f"available_gpu_mem=7.20 GB"
    )
    yield f"[{_stamp(40)}] Capture cuda graph bs {sizes}"
    if setting.speculates and case.plan.timeline != "sequential":
        yield (
            "Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule is "
            "turned on."
        )


def _sglang_level(level: Level, rng: np.random.Generator, clock: float) -> Iterator[str]:
    """Yield the lines of one level: throughput is tokens since the last decode line."""
    case, rounds, prefills = level.case, level.result.rounds, level.result.prefills
    setting, steps = case.plan.setting, steps_of(level, rng, SGLANG_ROUNDS)
    counted, batch = _counted(level), rounds["batch"]
    begin, tokens, forwards, seen = 0.0, 0.0, 0, 0
    for is_round, i, start, end in zip(
        steps.is_round, steps.number, steps.start_s, steps.end_s, strict=True
    ):
        if not is_round:
            p = prefills[i]
            yield (
                f"[{_stamp(clock + start)}] Prefill batch, #new-seq: {max(p['prompts'], 1)}, "
                f"#new-token: {p['tokens']}, #cached-token: 0, token usage: 0.05, "
                f"#running-req: {p['running'] - p['prompts']}, #queue-req: 0, #pending-token: 0, "
                f"cuda graph: False, input throughput (token/s): 5000.00"
            )
            continue
        tokens, forwards, seen = tokens + counted[i], forwards + int(batch[i]), seen + 1
        if seen % SGLANG_ROUNDS:
            continue
        used = int(rounds["kv_tokens"][i])
        spec = ""
        if setting.speculates:
            accept = tokens / forwards
            rate = (accept - 1) / (setting.num_draft_tokens - 1)
            spec = f"accept len: {accept:.2f}, accept rate: {rate:.2f}, "
        yield (
            f"[{_stamp(clock + end)}] Decode batch, #running-req: {rounds['running'][i]}, "
            f"#token: {used}, token usage: {used / case.pool_tokens:.2f}, {spec}cuda graph: True, "
            f"gen throughput (token/s): {tokens / (end - begin):.2f}, #queue-req: 0"
        )
        begin, tokens, forwards = end, 0.0, 0


def vllm_log(levels: Sequence[Level], rng: np.random.Generator) -> str:
    """Engine and drafting lines of vLLM 0.16 and later, every ten seconds."""
    case = levels[0].case
    lines = list(_vllm_startup(case))
    clock = 60.0
    for level in levels:
        lines += _vllm_level(level, rng, clock)
        clock += float(level.result.rounds["end_s"][-1]) * 1.05 + PAUSE_S
    return "\n".join(lines) + "\n"


def _vllm_head(seconds: float, place: str) -> str:
    return f"(APIServer pid=41) INFO {_stamp(seconds, '%m-%d %H:%M:%S')} [{place}] "


def _vllm_startup(case: Case) -> Iterator[str]:
    setting, most = case.plan.setting, case.plan.max_running_requests
    spec, told = "None", ""
    if setting.speculates:
        spec = (
            f"SpeculativeConfig(method='eagle3', model='org/draft', num_spec_tokens="
            f"{setting.num_steps})"
        )
        told = (
            f", 'speculative_config': {{'method': 'eagle3', 'model': 'org/draft', "
            f"'num_speculative_tokens': {setting.num_steps}}}"
        )
    yield _vllm_head(0, "api_server.py:1032") + "vLLM API server version 0.20.2"
    yield (
        _vllm_head(0, "utils.py:231")
        + f"non-default args: {{'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_num_seqs': {most}"
        + f"{told}}}"
    )
    yield (
        _vllm_head(20, "core.py:55")
        + "Initializing a V1 LLM engine (v0.20.2) with config: model='meta-llama/Llama-3.1-8B-"
        + f"Instruct', speculative_config={spec}, max_seq_len=16384, tensor_parallel_size=1, "
        + "data_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, "
    )
    yield (
        _vllm_head(30, "scheduler.py:216")
        + f"Chunked prefill is enabled with max_num_batched_tokens={case.plan.chunked_prefill_size}"
        + "."
    )
    yield (
        _vllm_head(40, "kv_cache_utils.py:1087")
        + f"GPU KV cache size: {case.pool_tokens:,.0f} tokens"
    )


def _vllm_level(level: Level, rng: np.random.Generator, clock: float) -> Iterator[str]:
    """Yield the lines of one level: tokens that reached requests, first ones included."""
    case, result = level.case, level.result
    rounds, prefills, drafted = result.rounds, result.prefills, result.deliveries
    steps = steps_of(level, rng, VLLM_WINDOW_S)
    of_round = steps.end_s[steps.is_round]
    prompts = np.interp(prefills["end_s"], rounds["end_s"], of_round)
    depth = case.plan.setting.num_steps
    each, when = drafted.tokens, of_round[drafted.round_of_each()]
    for number in range(1, int(steps.end_s[-1] / VLLM_WINDOW_S)):
        low, high = number * VLLM_WINDOW_S, (number + 1) * VLLM_WINDOW_S  # the first is cut off
        inside = (of_round >= low) & (of_round < high)
        begun = (prompts >= low) & (prompts < high)
        last = int(np.flatnonzero(inside)[-1])
        tokens = int(rounds["tokens"][inside].sum()) + int(prefills["prompts"][begun].sum())
        yield (
            _vllm_head(clock + high, "loggers.py:259") + f"Engine 000: Avg prompt throughput: "
            f"{prefills['tokens'][begun].sum() / VLLM_WINDOW_S:.1f} tokens/s, "
            f"Avg generation throughput: {tokens / VLLM_WINDOW_S:.1f} tokens/s, "
            f"Running: {rounds['running'][last]} reqs, Waiting: 0 reqs, GPU KV cache usage: "
            f"{100 * rounds['kv_tokens'][last] / case.pool_tokens:.1f}%, "
            f"Prefix cache hit rate: 0.0%"
        )
        if depth:
            got = each[(when >= low) & (when < high)]
            at_least = [int((got > d).sum()) for d in range(1, depth + 1)]
            accepted, drafts = sum(at_least), len(got)
            rates = ", ".join(f"{n / drafts:.3f}" for n in at_least)
            yield (
                _vllm_head(clock + high, "metrics.py:100")
                + f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
                f"Accepted throughput: {accepted / VLLM_WINDOW_S:.2f} tokens/s, "
                f"Drafted throughput: {drafts * depth / VLLM_WINDOW_S:.2f} tokens/s, "
                f"Accepted: {accepted} tokens, Drafted: {drafts * depth} tokens, "
                f"Per-position acceptance rate: {rates}, "
                f"Avg Draft acceptance rate: {100 * accepted / (drafts * depth):.1f}%"
            )


def trtllm_log(levels: Sequence[Level], rng: np.random.Generator) -> str:
    """Print the iteration log of TensorRT-LLM, which knows no accept length."""
    lines, iteration = [], 0
    for level in levels:
        rounds = level.result.rounds
        for i, context, prompt, seconds in _iterations(level, rng):
            iteration += 1
            batch = (int(rounds["batch"][i]) if i >= 0 else 0) + context
            lines.append(
                f"[03/04/2026-05:06:07] [TRT-LLM] [I] iter = {iteration}, global_rank = 0, "
                f"rank = 0, num_scheduled_requests = {batch}, kv_cache_util = "
                f"{rounds['kv_tokens'][i] / level.case.pool_tokens:.3f}, "
                f"currank_total_requests = 0/{batch}, host_step_time = {1e3 * seconds:.2f}ms, "
                f"prev_device_step_time = {1e3 * seconds:.2f}ms, timestamp = 2026-03-04 05:06:07, "
                f"states = {{'num_ctx_requests': {context}, 'num_ctx_tokens': {prompt}, "
                f"'num_generation_tokens': {batch - context}}}"
            )
    return "\n".join(lines) + "\n"


def trtllm_stats(levels: Sequence[Level], rng: np.random.Generator) -> str:
    """Iteration statistics of TensorRT-LLM, a JSON object per iteration."""
    lines = []
    for level in levels:
        rounds, speculates = level.result.rounds, level.case.plan.setting.speculates
        for i, context, prompt, seconds in _iterations(level, rng):
            row = rounds[max(i, 0)]
            running = int(row["active"]) if i >= 0 else 0
            stats = {
                "numDraftTokens": running * level.case.plan.setting.num_steps,
                "numAcceptedTokens": int(row["accepted"]) if i >= 0 else 0,
                "numRequestsWithDraftTokens": running,
            }
            lines.append(
                json.dumps(
                    {
                        "iter": len(lines),
                        "iterLatencyMS": round(1e3 * seconds, 4),
                        "numActiveRequests": int(row["batch"]) if i >= 0 else context,
                        "numQueuedRequests": 0,
                        "inflightBatchingStats": {
                            "numContextRequests": context,
                            "numCtxTokens": prompt,
                            "numGenRequests": int(row["batch"]) if i >= 0 else 0,
                        },
                        "kvCacheStats": {
                            "maxNumBlocks": round(level.case.pool_tokens / 32),
                            "usedNumBlocks": round(int(row["kv_tokens"]) / 32),
                            "tokensPerBlock": 32,
                        },
                        "specDecodingStats": stats if speculates else None,
                    }
                )
            )
    return "\n".join(lines) + "\n"


def _iterations(level: Level, rng: np.random.Generator) -> Iterator[tuple[int, int, int, float]]:
    """Yield each iteration: its round (-1 if only prompts ran), prompts, their tokens, length."""
    steps, rounds, result = steps_of(level, rng, 1), level.result.rounds, level.result
    prefills = result.prefills[~result.prefills["mixed"]]
    length = steps.end_s - steps.start_s
    for is_round, i, seconds in zip(steps.is_round, steps.number, length, strict=True):
        if not is_round:
            step = prefills[i]
            yield -1, int(step["prompts"]), int(step["tokens"]), float(seconds)
        elif rounds["active"][i]:
            joined = int(rounds["prefill_s"][i] > 0)
            yield int(i), joined, 1000 * joined, float(seconds)


def llamacpp_log(levels: Sequence[Level], rng: np.random.Generator) -> str:
    """Timings that llama-server prints after each request; one slot."""
    lines = []
    for level in levels:
        requests = level.result.requests
        done = requests[np.isfinite(requests["finished_s"]) & requests["measured"]]
        factors = errors(rng, len(done))
        for r, factor in zip(done, factors, strict=True):
            prompt_ms = 1e3 * float(r["first_token_s"] - r["admitted_s"]) * factor
            ms = 1e3 * float(r["last_token_s"] - r["first_token_s"]) * factor
            n, n_prompt = int(r["tokens"]), int(r["input_len"])
            lines += [
                "slot print_timing: id  0 | task 7 | ",
                f"prompt eval time = {prompt_ms:10.2f} ms / {n_prompt:5d} tokens "
                f"({prompt_ms / n_prompt:8.2f} ms per token, {1e3 * n_prompt / prompt_ms:8.2f} "
                "tokens per second)",
                f"       eval time = {ms:10.2f} ms / {n:5d} tokens ({ms / n:8.2f} ms per token, "
                f"{1e3 * n / ms:8.2f} tokens per second)",
            ]
            setting = level.case.plan.setting
            if setting.speculates:
                accepted = n - 1 - int(r["rounds"])
                drafted = int(r["rounds"]) * setting.num_steps
                lines.append(
                    f"draft acceptance rate = {accepted / drafted:.5f} ({accepted:5d} accepted / "
                    f"{drafted:5d} generated)"
                )
    return "\n".join(lines) + "\n"
