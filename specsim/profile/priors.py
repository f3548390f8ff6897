"""What is believed before anything is measured on the user's own server."""

from __future__ import annotations

import math

from specsim.acceptance import Acceptance
from specsim.cost import CORRECTION_KNOTS
from specsim.engine import engine_named
from specsim.profile.parameter import Parameter, Scale
from specsim.server.system import System, allreduce_evidence

ALLREDUCE_SD = {"measured": (0.15, 0.15), "published": (0.5, 0.4), "assumed": (0.7, 0.6)}
"""Errors of latency and bandwidth in log; one host differs from another by up to 10x."""

SHARED_READ = ("flashinfer", "fa3", "fa4", "flash_attn", "flashmla", "trtllm", "cutlass", "dsa")
"""Backends that read the KV cache once per request and tile (PHYSICS 2.5)."""

RATE_SD, CPU_RATE_SD = (0.30, 0.35), (0.60, 0.60)
"""Errors of decode-sized products and of prefill against what they reach of the stated rate, in
log. One rate stands for all of a CPU's kernels, which differ by weight format and row count by a
factor of two: a row of a decode step of SmolLM2-135M in F16 on two cores takes 5 ms, one of a
prompt 2.4 (llama-batched-bench)."""

CORRECTION_SD = 0.10
CPU_CORRECTION_SD = 0.25
CORRECTION_LENGTH = 1.5
"""Prior of the correction: 10 % at any t, correlated over 1.5 octaves. On a CPU 25 %: its kernels
change with the number of rows, and differ by weight format by a factor of two (steps of llama.cpp
in Q4_1, F16 and F32, tests/test_cost_cpu.py)."""


STANDALONE_DECAY, STANDALONE_SPREAD = 1.0, 0.9
"""Of a small model that drafts for a larger one: 57 requests of prose, code and lists accept 1.95
of 3 and 2.86 of 5 drafts on average, with standard deviations of 0.46 and 0.93 between requests;
0.25 and 0.46 are what the spread of EAGLE-3 drafters would give. The conditional acceptance does
not fall with depth (0.78, 0.76, 0.81, 0.84, 0.87): easy requests are what is left
(calibration/smollm2-135m-llama-server-2-core, acceptance as it comes)."""

LOOKUP_SHARE = 0.5
"""Assumed: rounds in which an n-gram lookup finds something; 0.24 measured on mixed prompts with
three tokens that must repeat (calibration/smollm2-135m-llama-server-2-core)."""


def cost_priors(system: System) -> tuple[Parameter, ...]:
    """Priors of the cost parameters that matter on this server."""
    target, cost = system.cost.target, system.cost
    exact = system.gpu.bandwidth_evidence == "measured"
    compute_sd, prefill_sd = CPU_RATE_SD if system.gpu.is_cpu else RATE_SD
    result = [
        _prior("bandwidth", "log", 1.0, 0.10 if exact else 0.15, "read bandwidth of the GPU"),
        _prior("compute", "log", 1.0, compute_sd, "GEMM rate at decode sizes"),
        _prior("target_fixed", "log", 1.0, 0.5, "launch floor per layer, PHYSICS 2.7"),
        _prior("attention", "log", 1.0, 0.6, "KV read efficiency, shared prefixes, PHYSICS 2.5"),
        _fill(system),
        _prior("verify_fill", "log", 1.0, 1.2, "verify kernels that do not split the KV cache"),
        _kv_reads(system),
        _prior("per_request", "log", 1.0, 0.8, "sampling per request"),
        _prior("host", "log", 1.0, 0.7, "CPU 1-3 ms + 10-50 us per request, PHYSICS 5"),
        _prior("prefill", "log", 1.0, prefill_sd, "prefill efficiency"),
        _prior(
            "kv_pool",
            "log",
            1.0,
            0.03 if system.engine.kv_tokens is not None else 0.3,
            "KV tokens: start-up log, or derived from memory",
        ),
    ]
    if system.gpu.is_cpu:
        result.append(_prior("matrix", "log", 1.0, 0.7, "other kernels from two tokens on"))
    if cost.allreduce.pieces:
        latency_sd, bandwidth_sd = ALLREDUCE_SD[
            allreduce_evidence(system.setup.hardware, system.link, system.engine.tp)
        ]
        result += [
            _prior("allreduce_latency", "log", 1.0, latency_sd, "PHYSICS 3: host spread 10x"),
            _prior("allreduce_bandwidth", "log", 1.0, bandwidth_sd, "PHYSICS 3: host spread 10x"),
        ]
    if target.experts:
        result += [
            _prior("coverage", "log", 1.0, 0.15, "routing skew, PHYSICS 2.3"),
            _prior("expert_sharing", "linear", 0.75, 0.12, "PHYSICS 2.4", 0.2, 1.2),
        ]
    result.append(_prior("round_overhead", "log", 1.0, 1.0, "factor 3, PHYSICS 4"))
    if cost.draft is not None:
        result.append(_prior("draft", "log", 1.0, 0.5, "draft bytes and launches, PHYSICS 4"))
    return tuple(result)


def correction_priors(is_cpu: bool = False) -> tuple[Parameter, ...]:
    """Priors of the correction's knots; they are correlated, see `correction_correlation`."""
    sd = CPU_CORRECTION_SD if is_cpu else CORRECTION_SD
    return tuple(
        _prior(f"correction_{j}", "linear", 0.0, sd, "smooth in log t", -1.5, 1.5)
        for j in range(CORRECTION_KNOTS)
    )


def correction_correlation() -> list[list[float]]:
    """Prior correlation of the knots: squared exponential in octaves."""
    knots = range(CORRECTION_KNOTS)
    return [[math.exp(-0.5 * ((i - j) / CORRECTION_LENGTH) ** 2) for j in knots] for i in knots]


def acceptance_priors(
    names: tuple[str, ...], measured: frozenset[str] = frozenset(), standalone: bool = False
) -> tuple[Parameter, ...]:
    """Priors of the acceptance: a level per named acceptance, shapes shared by all.

    Where the accept probabilities by depth are `measured`, little is left to the level. A model of
    its own that drafts (`standalone`) does not feed on its own features, and so does not get worse
    with depth.
    """
    decay, source = 0.97, "63 chains of nine EAGLE-3 drafters"
    if standalone:
        decay, source = STANDALONE_DECAY, "SmolLM2-135M for itself, 1266 rounds"
    levels = []
    for name in names:
        sd = 0.1 if name in measured else 0.45
        about = "spread between domains"
        levels.append(_prior(f"accept_level[{name}]", "linear", 0.0, sd, about, -6.0, 6.0))
    return (
        *levels,
        _prior("accept_decay", "linear", decay, 0.05, source, 0.5, 1.3),
        _prior("rank_scale", "log", 1.0, 0.25, "PHYSICS 1.8", 0.05, 2.0),
        _prior("confidence_shift", "linear", 0.9, 0.35, "nine EAGLE-3 drafters", -2.0, 6.0),
    )


def default_acceptance(
    system: System, algorithm: str, dataset: str, temperature: float
) -> Acceptance:
    """Return what a drafter of this kind accepts before anything is known about it."""
    fills = engine_named(system.engine.name).lookup_fills_tree
    first = {"MTP": 0.78, "STANDALONE": 0.7, "NGRAM": 0.35, "EAGLE": 0.62}.get(algorithm, 0.65)
    return Acceptance(
        dataset=dataset,
        temperature=temperature,
        accept_prob=(first,),
        confidence_shift=0.9,
        decay=STANDALONE_DECAY if algorithm == "STANDALONE" else 0.97,
        request_spread=STANDALONE_SPREAD if algorithm == "STANDALONE" else 0.45,
        draft_share=LOOKUP_SHARE if algorithm == "NGRAM" and not fills else 1.0,
        source=f"prior for {algorithm}",
    )


def _prior(
    name: str,
    scale: Scale,
    median: float,
    sd: float,
    source: str,
    low: float = -math.inf,
    high: float = math.inf,
) -> Parameter:
    if scale == "log" and low == -math.inf:
        low, high = median * math.exp(-5 * max(sd, 0.4)), median * math.exp(5 * max(sd, 0.4))
    return Parameter(name, scale, median, sd, median, sd, False, low, high, source)


def _fill(system: System) -> Parameter:
    """Query rows that fill the GPU: measured 2.7 for MLA decode with few heads per rank."""
    median = 2.5 if system.cost.target.model.attention == "mla" else 1.0
    return _prior("attention_fill", "log", median, 0.5, "82 ns per KV token at one row, 30 at 8")


def _kv_reads(system: System) -> Parameter:
    """Share of query rows that read the cache again: backend's doing."""
    backend = system.engine.backend
    if "triton" in backend:
        median, sd = 0.95, 0.15
    elif any(name in backend for name in SHARED_READ):
        median, sd = 0.1, 0.15
    else:
        median, sd = 0.3, 0.3
    return _prior("kv_reads", "linear", median, sd, "attention backend, PHYSICS 2.5", 0.0, 1.2)
