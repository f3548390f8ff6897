"""What the cost of a round is computed from: hardware, shards of target and drafter, parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from specsim.cost.allreduce import AllReduce
from specsim.draft_sharding import ShardedDraft
from specsim.errors import InputError, UnknownNameError
from specsim.hardware import Gpu
from specsim.parameters import CORRECTIONS, COST, KNOT_OCTAVES, knot_of
from specsim.sharding import ShardedModel
from specsim.uncertainty import Parameter

if TYPE_CHECKING:
    from specsim.arrays import Floats

ACTIVATION_BYTES = 2  # activations cross the link in 16 bits

DENSE_LAYER_S = 36e-6
MOE_LAYER_S = 100e-6
"""What a decoder layer costs besides bytes and tokens (launches in a CUDA graph, norms, small
kernels): the geometric mean of 20 servers [@public-servers], 1.2 times an earlier guess; their
spread is a factor of 1.6. Llama-3.1-8B on H100 leaves about 45 us (vLLM, 2025), Kimi-K2.6 on eight
RTX PRO 6000 about 115 us."""

INDEXER_S = 30e-6
COMPRESSED_LAYER_S = 40e-6
"""Measured on H200 [@layer-tables]: an indexer's kernels take 22 us of a layer at short contexts,
36 us where there is something to leave out; a layer over compressed entries takes 18 us more than
one of latent attention, and its hyper-connections 23 us."""

EAGER_LAYER_S = 15 * 6e-6
"""Assumed: about 15 kernels per layer, 6 us each to launch without a CUDA graph [@launch-cost]."""

GROUPED_EFFICIENCY = 0.5
"""Share of the bf16 GEMM rate that the products of a MoE layer reach at 8 to 512 tokens, beside
expert reads by COVERAGE: 0.14 to 0.4 where routing is skewed (A100, H100, H200, B200, RTX PRO 6000;
bf16, fp8, fp4, int4; SGLang, vLLM), 1 and more where it is balanced [@aiconfigurator]."""

CPU_LAUNCH_SHARE = 0.1
"""Assumed: a CPU launches nothing; its threads meet at a barrier after each operation, some us."""

MATRIX_READS = 0.3
"""Assumed: what a CPU's matrix kernels (two or more tokens) cost on top of its matrix-vector ones,
in times of reading the weights; llama.cpp takes other code from the second row on (blocks of three
rows, weights widened once per block). Steps of SmolLM2-135M on two cores jump by 0.1 (F32) to 0.5
(F16) of it between one token and two (tests/test_cost_cpu.py): a factor of two either way."""

MASKED_SHARE = 0.18
"""Assumed: price of a KV cell of another sequence, against one's own, where a CPU's attention walks
over a cache that all sequences share (llama.cpp's --kv-unified): the mask is looked at, no product
is made. A decode step of eight sequences of SmolLM2-135M takes 74.7 ms with it and 63.6 without at
110 tokens of context, 141 and 92 at 460 (llama-batched-bench on two cores)."""


CostParameters = Mapping[str, "float | Floats"]
"""Values of all rows of `COST`, numbers or arrays with an entry per point, and of `CORRECTIONS`: no
knots, a row of them, or a row per point."""


def cost_values(
    corrections: Mapping[str, Iterable[float]] | None = None, **values: float
) -> CostParameters:
    """Return the defaults but for the corrections' knots and for the parameters that are named.

    Raises
    ------
    InputError, UnknownNameError
        If a number cannot be used, or there is no such parameter.

    Examples
    --------
    >>> cost_values(host=2.0)["host"], cost_values()["expert_sharing"]
    (2.0, 0.75)
    """
    for name, value in values.items():
        _check(name, value)
    knots = {family: _knots(family, (corrections or {}).get(family, ())) for family in CORRECTIONS}
    return {name: row.default for name, row in COST.items()} | knots | values


def _knots(family: str, values: Iterable[float]) -> Floats:
    knots = np.array([*values])
    if not np.isfinite(knots).all():
        raise InputError(f"{family}K {knots.tolist()}", "must be finite", "fit it again")
    if len(knots) not in (0, len(KNOT_OCTAVES[family])):
        raise InputError(
            f"{family}K of {len(knots)} knots",
            f"must have {len(KNOT_OCTAVES[family])} or none",
            "fit the profile again",
        )
    return knots


def _check(name: str, value: float) -> None:
    if name not in COST:
        raise UnknownNameError("cost parameter", name, COST)
    if COST[name].scale == "log" and not 1e-4 < value < 1e4:
        raise InputError(
            f"cost parameter {name} = {value}",
            "must be positive and finite",
            "it is a multiplier around 1",
        )
    if COST[name].scale == "linear" and not 0 <= value <= 1.5:
        raise InputError(f"cost parameter {name} = {value}", "must lie in 0..1", "check it")


def cost_parameters(parameters: Sequence[Parameter], coordinates: Floats) -> CostParameters:
    """Cost parameters at one vector of coordinates."""
    values = {p.name: p.at(z) for p, z in zip(parameters, coordinates.tolist(), strict=True)}
    corrections = {
        family: [values.get(f"{family}{j}", 0.0) for j in range(len(knots))]
        for family, knots in KNOT_OCTAVES.items()
        if f"{family}0" in values
    }
    return cost_values(corrections, **{name: values[name] for name in COST if name in values})


def stacked_parameters(
    parameters: Sequence[Parameter], coordinates: Floats, points: int
) -> CostParameters:
    """Cost parameters of `points` points under each row of coordinates in turn.

    One evaluation over stacked points is worth as many single ones as there are rows, which is what
    makes derivatives cheap.
    """
    values: dict[str, float | Floats] = dict(cost_values())
    knots: dict[str, Floats] = {}
    for j, parameter in enumerate(parameters):
        knot = knot_of(parameter.name)
        column = np.repeat(parameter.along(coordinates[:, j]), points)
        if parameter.name in COST:
            values[parameter.name] = column
        elif knot is not None:
            family, k = knot
            empty = np.zeros((len(column), len(KNOT_OCTAVES[family])))
            knots.setdefault(family, empty)[:, k] = column
    return values | knots


@dataclass(frozen=True, slots=True)
class CostModel:
    """Everything that prices a round, and nothing about acceptance."""

    gpu: Gpu  # one of the equal GPUs
    target: ShardedModel  # one GPU's share, like the drafter's
    draft: ShardedDraft | None  # None where nothing can be drafted by a model
    allreduce: AllReduce  # of the link and the GPU count; no pieces for one GPU
    parameters: CostParameters = field(default_factory=cost_values)
    draft_eager: bool = False  # the drafter's kernels are launched one by one, not as a graph
    kv_unified: bool = False  # every row walks over one cache of all sequences; matters on a CPU
    verify_walks: bool = False  # a verification reads each sequence's cache block by block
    host_plans: bool = False  # the CPU lays out every forward of a speculating round
    padding_routes: bool = False  # padding rows have experts of their own, not those of one token

    def stacked(
        self, parameters: Sequence[Parameter], coordinates: Floats, points: int
    ) -> CostModel:
        """Return a model of stacked points, see `stacked_parameters`."""
        return replace(self, parameters=stacked_parameters(parameters, coordinates, points))

    @property
    def bandwidth(self) -> float | Floats:
        """Memory bandwidth, bytes/s."""
        return self.gpu.bandwidth * self.parameters["bandwidth"]

    def flops(self, dtype: str) -> float | Floats:
        """Rate of matrix products, FLOP/s."""
        return self.gpu.compute(dtype) * self.parameters["compute"]

    @property
    def grouped_flops(self) -> float | Floats:
        """Rate of the products of a MoE layer, each expert with rows of its own, FLOP/s."""
        return self.flops("bf16") * (1.0 if self.gpu.is_cpu else GROUPED_EFFICIENCY)

    @property
    def layers_s(self) -> float | Floats:
        """What the target's layers cost besides bytes and tokens, seconds."""
        layers, moe = self.target.model.depth, self.target.moe_layers
        floor = (layers - moe) * DENSE_LAYER_S + moe * MOE_LAYER_S
        for group in (share.group for share in self.target.attention):
            floor += group.indexers * INDEXER_S
            floor += group.layers * COMPRESSED_LAYER_S if group.ratio else 0.0
        return floor * self.parameters["target_fixed"]

    @property
    def launch_share(self) -> float:
        """Kernel launches and small kernels, as a share of a GPU's."""
        return CPU_LAUNCH_SHARE if self.gpu.is_cpu else 1.0

    def walked(self, batch: ArrayLike) -> Floats:
        """KV cells that a row pays for, of all sequences, against its own (KV-UNIFIED)."""
        others = np.maximum(np.asarray(batch, np.float64) - 1.0, 0.0)
        shared = self.kv_unified and self.gpu.is_cpu
        return 1.0 + (MASKED_SHARE if shared else 0.0) * others

    def operation_s(self, memory_s: ArrayLike, compute_s: ArrayLike) -> Floats:
        """Time of an operation that reads and computes: ROOFLINE on a GPU, the sum on a CPU.

        The cores of a CPU wait for what they load (CPU-SUM): Q4_1 weights of SmolLM2-135M on two
        cores take 11, 25, 42, 159 ms at 1, 4, 8, 32 tokens, 6 + 5 t within 10 %, where a maximum
        is 30 % low at one token (calibration/smollm2-135m-llama-server-2-core).
        """
        if not self.gpu.is_cpu:
            return roofline_s(memory_s, compute_s)
        return np.asarray(memory_s, np.float64) + np.asarray(compute_s, np.float64)

    def product_s(self, memory_s: ArrayLike, compute_s: ArrayLike, several: ArrayLike) -> Floats:
        """Time of weights times tokens: an operation, and a CPU's other kernels (CPU-MATRIX).

        T = T_op + several * matrix * memory on a CPU, `several` being the share of times that there
        is more than one token (:func:`more_than_one`).
        """
        operation = self.operation_s(memory_s, compute_s)
        if not self.gpu.is_cpu:
            return operation
        share = np.asarray(several, np.float64)
        extra = MATRIX_READS * self.parameters["matrix"] * np.asarray(memory_s) * share
        return operation + extra

    def allreduce_s(self, tokens: ArrayLike, hidden: int, layers: float) -> Floats:
        """Two all-reduces of tokens x hidden activations per layer, seconds (ALLREDUCE)."""
        size = np.asarray(tokens, np.float64) * hidden * ACTIVATION_BYTES
        once = self.allreduce.time_s(
            size, self.parameters["allreduce_latency"], self.parameters["allreduce_bandwidth"]
        )
        return 2.0 * layers * once

    def exchange_s(self, tokens: ArrayLike) -> Floats:
        """Exchange queries and outputs of ranks that hold parts of the context, seconds (DCP).

        In every layer the queries are gathered and the outputs reduced and scattered, together an
        all-reduce of them, and between them the sums of weights are gathered, half of a small one
        [@vllm-wheels].
        """
        t, target = np.asarray(tokens, np.float64), self.target
        if target.dcp == 1:
            return np.zeros_like(t)
        scale = self.parameters["allreduce_latency"], self.parameters["allreduce_bandwidth"]
        outputs = self.allreduce.time_s(t * target.exchanged_bytes_per_token, *scale)
        return target.model.depth * (outputs + 0.5 * self.allreduce.time_s(0.0 * t, *scale))

    def gather_s(self, tokens: ArrayLike, vocab: int) -> Floats:
        """Gather vocabulary-parallel logits on every GPU, seconds (GATHER).

        A gather moves half of what a ring all-reduce of the whole matrix does; a token of
        Kimi-K2.5 has 328 kB of logits, more than twenty hidden states.
        """
        size = np.asarray(tokens, np.float64) * vocab * ACTIVATION_BYTES
        if not self.allreduce.pieces:
            return np.zeros_like(size)
        last = self.allreduce.pieces[-1]
        rate = 2.0 * last.bytes_per_s * self.parameters["allreduce_bandwidth"]
        return size / rate


def more_than_one(tokens: ArrayLike) -> Floats:
    """Share of times that there is more than one token; means of one to two are a mixture."""
    return np.clip(np.asarray(tokens, np.float64) - 1.0, 0.0, 1.0)


def roofline_s(memory_s: ArrayLike, compute_s: ArrayLike) -> Floats:
    """Time of an operation that reads and computes at once: (m^4 + c^4)^(1/4)      (ROOFLINE).

    A soft maximum: the measured 65536 x 7168 GEMM of RTX PRO 6000 (623 us to 64 rows, 737 us at
    256, 1278 us at 512) follows power 4 within 4 %, where the sharp maximum is 15 % low.
    """
    m, c = np.asarray(memory_s, np.float64), np.asarray(compute_s, np.float64)
    soft: Floats = np.sqrt(np.sqrt(np.square(np.square(m)) + np.square(np.square(c))))
    return soft


def active_experts(tokens: ArrayLike, experts: int, experts_per_token: int) -> Floats:
    """N(t) = E (1 - (1 - K/E)^t): experts of one layer that t tokens touch         (COVERAGE).

    MoESD (arXiv 2505.19645) Eq. 8: uniform independent routing.

    >>> active_experts([1, 16, 128], 384, 8).round(1).tolist()
    [8.0, 109.8, 358.1]
    """
    t = np.asarray(tokens, np.float64)
    if experts_per_token >= experts:  # every token touches all there are; none in a dense model
        return experts * np.minimum(t, 1.0)
    return -experts * np.expm1(t * math.log1p(-experts_per_token / experts))


def correction_factor(parameters: CostParameters, family: str, count: ArrayLike) -> Floats:
    """Return exp(correction), linear in log2 count between knots, constant beyond (CORRECTION).

    Parameters
    ----------
    parameters
        With the knots of the correction: none, a row, or a row per point.
    family
        Which of `specsim.parameters.CORRECTIONS`.
    count
        Tokens of a step, or running requests.
    """
    t, values = np.asarray(count, np.float64), np.asarray(parameters[family])
    if values.size == 0:
        return np.ones_like(t)
    at = np.array(KNOT_OCTAVES[family])
    place = np.clip(np.log2(np.maximum(t, 1.0)), at[0], at[-1])
    left = np.clip(np.searchsorted(at, place, "right") - 1, 0, len(at) - 2)
    share = (place - at[left]) / (at[left + 1] - at[left])
    if values.ndim == 1:
        low, high = values[left], values[left + 1]
    else:
        rows = np.arange(len(values))
        low, high = values[rows, left], values[rows, left + 1]
    factor: Floats = np.exp(low + (high - low) * share)
    return factor
