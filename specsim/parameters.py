"""The parameters: a row for each number that calibration may move, with all that is known of it.

A cost parameter multiplies a derived time unless its row says otherwise. To add one, add its row
to `COST` and use ``cost.parameters["name"]`` in the formula that it belongs to: profiles, fits,
``--set`` and the way back to the prior follow from the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from specsim.uncertainty import Evidence, Parameter, Scale

KNOT, SPECULATING_KNOT = "correction_", "correction_speculating_"
"""Begin the name of a knot's parameter."""

KNOT_OCTAVES: dict[str, tuple[float, ...]] = {
    KNOT: (*map(float, range(12)),),
    SPECULATING_KNOT: (0.0, 3.0, 5.0, 7.0, 9.0, 11.0),
}
"""log2 of the tokens of a step at which the knots of each correction lie, 1 .. 2048."""

WIDE_VERIFY = 0.065
WIDE_VERIFY_FROM = 5.0
"""By how much ln(round) of public servers grows beyond physics per octave of verified tokens, from
32 tokens on, where the sweep without speculation is matched [@public-servers]: 0.09 where an accept
length is known beforehand (leaving any server out moves that by less than 0.01), none on the three
Kimi servers and on the RTX 3090 and H100 of EAGLE-3's paper. Kernels that a sweep of the same batch
never meets would do it: wider tiles, sampling of many rows."""

SHARED_READ = ("flashinfer", "fa3", "fa4", "flash_attn", "flashmla", "trtllm", "cutlass", "dsa")
"""Attention backends that read the KV cache once per request and tile [@kv-reads]."""

ALLREDUCE_SD: dict[Evidence, tuple[float, float]] = {
    "measured": (0.15, 0.15),
    "published": (0.5, 0.4),
    "assumed": (0.7, 0.6),
}
"""Errors of latency and bandwidth in log; one host differs from another by up to 10x."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the priors need to know of a server and its drafter."""

    is_cpu: bool = False
    bandwidth_measured: bool = False
    allreduce: Evidence | None = None  # what it rests on; None for a single GPU
    latent_attention: bool = False
    attention_backend: str = ""
    verify_walks: bool = False  # whether a verification is not split over the GPU (WALK)
    has_experts: bool = False
    has_draft: bool = False
    copies_state: bool = False  # whether it keeps a recurrent state for each slot of llama.cpp
    pool_logged: bool = False  # whether the start-up log's KV tokens are known
    standalone: bool = False  # whether a model of its own drafts
    depths_measured: bool = False  # whether accept probabilities by depth are


Prior = tuple[float, float]
"""Median of the value, standard deviation of the coordinate."""


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter before anything is measured."""

    prior: Prior | Callable[[Facts], Prior | None]  # by kind of server; None where it has none
    resets: str  # parts of the setup whose change takes it back to its prior
    source: str  # what the prior rests on
    scale: Scale = "log"  # the coordinate is ln(value), or the value itself
    bounds: tuple[float, float] | None = None  # None: five standard deviations about the median
    default: float = 1.0  # where a profile does not have it
    unit: str = "factor"
    set_as: tuple[str, ...] = ()  # its keys of --set beside its name
    of_software: bool = False  # keeps its value on other hardware, with the prior's error
    pinned_by: str = "more cells"  # measurement that tells it apart from the others

    @property
    def reset_by(self) -> set[str]:
        """The parts of the setup that reset it."""
        return set(self.resets.split())

    def on(self, facts: Facts) -> Prior | None:
        """Return the prior on a server; None where it has no such parameter."""
        return self.prior(facts) if callable(self.prior) else self.prior

    def parameter(self, name: str, prior: Prior) -> Parameter:
        """Return the parameter at its prior."""
        median, sd = prior
        reach = math.exp(5 * max(sd, 0.4))
        low, high = self.bounds or (median / reach, median * reach)
        return Parameter(name, self.scale, median, sd, median, sd, False, low, high, self.source)


def _kv_reads(server: Facts) -> Prior:
    if "triton" in server.attention_backend:
        return 0.95, 0.15
    if any(name in server.attention_backend for name in SHARED_READ):
        return 0.1, 0.15
    return 0.3, 0.3


def _allreduce(which: int) -> Callable[[Facts], Prior | None]:
    return lambda s: None if s.allreduce is None else (1.0, ALLREDUCE_SD[s.allreduce][which])


COST: dict[str, Row] = {
    # on the memory bandwidth that weights and caches are read with
    "bandwidth": Row(
        lambda s: (1.0, 0.10 if s.bandwidth_measured else 0.15),
        "gpu",
        "read bandwidth of the GPU [@rtx6kpro-wiki]",
        set_as=("gpu.bandwidth",),
        pinned_by="a sweep without speculation over many loads",
    ),
    # on the FLOP rate of decode-sized matrix products. One rate stands for all of a CPU's kernels,
    # which differ by weight format and row count by a factor of two: a row of a decode step of
    # SmolLM2-135M in F16 on two cores takes 5 ms, one of a prompt 2.4 (llama-batched-bench)
    "compute": Row(
        lambda s: (1.0, 0.60 if s.is_cpu else 0.50),
        "gpu",
        "GEMM rate at decode sizes [@aiconfigurator]",
        set_as=("gpu.compute",),
        pinned_by="cells at high load and a wide verify",
    ),
    # on the time per layer that depends on neither bytes nor tokens (launches, small kernels)
    "target_fixed": Row(
        (1.0, 0.5),
        "gpu model",
        "launch floor per layer [@launch-cost]",
        pinned_by="a sweep without speculation that starts at one client",
    ),
    # on the time to read the KV cache
    "attention": Row(
        (1.0, 0.6),
        "gpu model backend kv_dtype",
        "KV read efficiency, shared prefixes [@kv-reads]",
        pinned_by="cells at a long context",
    ),
    # rows times sequences below which attention cannot use the whole GPU: measured 2.7 for MLA
    # decode with few heads per rank
    "attention_fill": Row(
        lambda s: (2.5 if s.latent_attention else 1.0, 0.5),
        "gpu model backend",
        "82 ns per KV token at one row, 30 at 8 [@kv-reads]",
        unit="query rows",
        pinned_by="one client at a long context",
    ),
    # on `attention_fill` in a verification: kernels that do not split the cache of one sequence
    # leave most of the GPU idle until many sequences run. Where that is known it is on the time of
    # a thread block, 0.8 and 1.3 on the two GPUs that it was measured on
    "verify_fill": Row(
        lambda s: (1.0, 0.4 if s.verify_walks else 1.2),
        "gpu model backend",
        "verify kernels that do not split the KV cache [@kv-reads]",
        pinned_by="one speculating client at a long context",
    ),
    # KV reads per request are 1 + (n - 1) kv_reads: the backend's doing
    "kv_reads": Row(
        _kv_reads,
        "backend engine",
        "attention backend [@kv-reads]",
        scale="linear",
        bounds=(0.0, 1.2),
        default=0.0,
        unit="reads per further row",
        pinned_by="a speculating cell at a long context",
    ),
    # on the time per running request and round (sampling, metadata)
    "per_request": Row(
        (1.0, 0.8),
        "gpu engine",
        "sampling per request [@host-time]",
        of_software=True,
        pinned_by="cells at high load",
    ),
    # on the CPU time of a round
    "host": Row(
        (1.0, 0.7),
        "gpu engine",
        "CPU 1-3 ms + 10-50 us per request [@host-time]",
        of_software=True,
        pinned_by="one profiler trace with CPU spans",
    ),
    # on the prefill time
    "prefill": Row(
        lambda s: (1.0, 0.60 if s.is_cpu else 0.50),
        "gpu model quantisation",
        "prefill efficiency [@aiconfigurator]",
        pinned_by="a TTFT, or a run with long prompts",
    ),
    # on the tokens that the KV cache holds
    "kv_pool": Row(
        lambda s: (1.0, 0.03 if s.pool_logged else 0.3),
        "gpu count model quantisation kv_dtype draft engine kv_tokens",
        "KV tokens: start-up log, or derived from memory",
        pinned_by="max_total_num_tokens of the start-up log",
    ),
    # on what a CPU's matrix kernels cost beyond its matrix-vector ones
    "matrix": Row(
        lambda s: (1.0, 0.7) if s.is_cpu else None,
        "gpu quantisation",
        "other kernels from two tokens on [@smollm2-live]",
    ),
    # on every piece of the all-reduce
    "allreduce_latency": Row(
        _allreduce(0),
        "link count allreduce",
        "host spread 10x [@rtx6kpro-allreduce]",
        set_as=("allreduce.latency",),
        pinned_by="an nccl-tests run of this host",
    ),
    "allreduce_bandwidth": Row(
        _allreduce(1),
        "link count allreduce",
        "host spread 10x [@rtx6kpro-allreduce]",
        set_as=("allreduce.bandwidth",),
        pinned_by="an nccl-tests run of this host",
    ),
    # on the experts that t tokens activate
    "coverage": Row(
        lambda s: (1.0, 0.15) if s.has_experts else None,
        "model",
        "routing skew [@aiconfigurator]",
        pinned_by="a sweep without speculation from 8 to 256 clients",
    ),
    # e: n tokens of one request count as n^e independent ones
    "expert_sharing": Row(
        lambda s: (0.75, 0.12) if s.has_experts else None,
        "model",
        "tokens of one request share experts [@expert-sharing]",
        scale="linear",
        bounds=(0.2, 1.2),
        default=0.75,
        unit="exponent",
        pinned_by="one client with a wide tree, beside one with a chain",
    ),
    # on what a speculating round pays whatever it drafts
    "round_overhead": Row(
        (1.0, 1.0),
        "gpu model engine",
        "factor 3 [@draft-cost]",
        set_as=("overhead",),
        of_software=True,
        pinned_by="one profiler trace, or the round time at one client",
    ),
    # on what a speculating round pays for each running request
    "drafting_per_request": Row(
        lambda s: (1.0, 0.5 if s.is_cpu else 1.0),
        resets="gpu engine",
        source="public servers with and without speculation [@public-servers]",
        of_software=True,
    ),
    # on a speculating round of several requests. A recurrent state cannot drop its last tokens as a
    # KV cache does, and no baseline shows what that takes of slots that accept different lengths:
    # two of two public servers pay 2.7 times what one slot does
    "several_slots": Row(
        lambda s: (2.0, 0.6) if s.copies_state else None,
        resets="gpu model engine draft",
        source="Strix Halo and two RTX 5060 Ti [@public-servers]",
        pinned_by="a speculating cell of two clients",
    ),
    # on the prompts' steps of a server that drafts: the drafter's forward over them, its features
    "prefill_drafting": Row(
        lambda s: (1.0, 0.2) if s.has_draft else None,
        resets="gpu model engine draft",
        source="assumed",
        pinned_by="a TTFT with and without speculation",
    ),
    # on draft steps, tree building and draft extend (--set draft=NAME is the drafter)
    "draft": Row(
        lambda s: (1.0, 0.5) if s.has_draft else None,
        "gpu model draft",
        "draft bytes and launches [@draft-cost]",
        set_as=("draft.cost",),
        pinned_by="one profiler trace of the draft steps",
    ),
}
"""What a round costs, by name, in the order of a profile."""

ACCEPTANCE: dict[str, Row] = {
    # of one named acceptance, accept_level[NAME]: moves its log-odds at every depth. Little is left
    # to it where the accept probabilities by depth were measured
    "accept_level": Row(
        lambda s: (0.0, 0.1 if s.depths_measured else 0.45),
        "model draft",
        "spread between domains [@specbundle]",
        scale="linear",
        bounds=(-6.0, 6.0),
        unit="log-odds",
        pinned_by="a log with accept length",
    ),
    # of accept probabilities beyond the last measured depth. A model of its own does not feed on
    # its own features, and so does not get worse with depth
    "accept_decay": Row(
        lambda s: (1.0 if s.standalone else 0.97, 0.05),
        "model draft",
        "63 chains of nine EAGLE-3 drafters [@specbundle]; "
        "SmolLM2-135M for itself, 1266 rounds [@smollm2-live]",
        scale="linear",
        bounds=(0.5, 1.3),
        unit="factor per depth",
        pinned_by="accept lengths of two depths",
    ),
    # on the rank masses of siblings
    "rank_scale": Row(
        (1.0, 0.25),
        "model draft",
        "mass of siblings [@rank-identifiability]",
        bounds=(0.05, 2.0),
        pinned_by="accept lengths of two settings that differ in topk",
    ),
    # by which the drafter is less sure than it should be
    "confidence_shift": Row(
        (0.9, 0.35),
        "model draft",
        "nine EAGLE-3 drafters [@confidence-shift]",
        scale="linear",
        bounds=(-2.0, 6.0),
        unit="log-odds per depth",
        pinned_by="accept lengths of two budgets at one topk",
    ),
}
"""What a round buys, by name; the shapes are shared by all acceptances of a profile."""

CORRECTIONS: dict[str, Row] = {
    # by tokens of a step, on the target forward of every round
    KNOT: Row(
        # a CPU's kernels change with the number of rows, and differ by weight format by a factor
        # of two (steps of llama.cpp in Q4_1, F16 and F32, tests/test_cost_cpu.py)
        lambda s: (0.0, 0.25 if s.is_cpu else 0.10),
        resets="gpu model quantisation link count allreduce backend engine",
        source="a step, by its tokens",
        scale="linear",
        bounds=(-3.0, 3.0),
        default=0.0,
        unit="ln of a factor",
    ),
    # on whole rounds that speculate
    SPECULATING_KNOT: Row(
        (0.0, 0.20),
        resets="gpu model quantisation link count allreduce backend engine draft",
        source="a speculating round, by its tokens",
        scale="linear",
        bounds=(-3.0, 3.0),
        default=0.0,
        unit="ln of a factor",
    ),
}
"""ln of a factor at each knot, correction_K and correction_speculating_K: the discrepancy between
physics and a server (Kennedy and O'Hagan 2001). Its spread is learnt from the server's own cells;
a row's prior is the half-normal that the spread is drawn from."""

CORRECTION_OCTAVES = {KNOT: 3.0, SPECULATING_KNOT: 6.0}
"""Octaves over which a correction is correlated, exp(-distance / length): kernels and graphs switch
with the tokens of a step, so its correction may jump; what speculation adds grows steadily."""


def knot_of(name: str, wanted: str | None = None) -> tuple[str, int] | None:
    """Return the correction and the knot that a parameter is, e.g. of ``correction_3``.

    None if it is no knot, or not of the wanted correction.

    >>> knot_of("correction_speculating_3"), knot_of("host")
    (('correction_speculating_', 3), None)
    """
    family, digits = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
    known = family in CORRECTIONS and digits and family == (wanted or family)
    return (family, int(digits)) if known else None


def row_of(name: str) -> Row:
    """Return the row of a profile's parameter, e.g. of ``correction_3``.

    >>> row_of("accept_level[chat@0]") is ACCEPTANCE["accept_level"]
    True
    """
    knot = knot_of(name)
    if knot is not None:
        return CORRECTIONS[knot[0]]
    return COST.get(name) or ACCEPTANCE[name.partition("[")[0]]


def cost_priors(server: Facts) -> tuple[Parameter, ...]:
    """Priors of the cost parameters that matter on a server."""
    return _priors(COST, server)


def acceptance_priors(
    names: Iterable[str], measured: frozenset[str] = frozenset(), standalone: bool = False
) -> tuple[Parameter, ...]:
    """Priors of the acceptance: a level per named acceptance, shapes shared by all.

    Parameters
    ----------
    names
        The acceptances.
    measured
        Those whose accept probabilities by depth are known.
    standalone
        Whether a model of its own drafts.
    """
    level = ACCEPTANCE["accept_level"]
    levels = [
        _priors({f"accept_level[{name}]": level}, Facts(depths_measured=name in measured))
        for name in names
    ]
    shapes = {name: row for name, row in ACCEPTANCE.items() if row is not level}
    return (*chain.from_iterable(levels), *_priors(shapes, Facts(standalone=standalone)))


def correction_priors(server: Facts, spread: Mapping[str, float]) -> tuple[Parameter, ...]:
    """Priors of the corrections' knots, by correction with the spread that was learnt for it."""
    slope = {KNOT: 0.0, SPECULATING_KNOT: 0.0 if server.is_cpu else WIDE_VERIFY}
    return tuple(
        CORRECTIONS[family].parameter(
            f"{family}{j}", (slope[family] * max(at - WIDE_VERIFY_FROM, 0.0), sd)
        )
        for family, sd in spread.items()
        for j, at in enumerate(KNOT_OCTAVES[family])
    )


def prior_correlation(names: Sequence[str]) -> list[list[float]]:
    """Correlation of parameters before anything is measured: only the knots of one correction."""

    def of(one: str, other: str) -> float:
        first, second = knot_of(one), knot_of(other)
        if first is None or second is None or first[0] != second[0]:
            return float(one == other)
        at = KNOT_OCTAVES[first[0]]
        return math.exp(-abs(at[first[1]] - at[second[1]]) / CORRECTION_OCTAVES[first[0]])

    return [[of(one, other) for other in names] for one in names]


def _priors(rows: Mapping[str, Row], server: Facts) -> tuple[Parameter, ...]:
    found = [(name, row, row.on(server)) for name, row in rows.items()]
    return tuple(row.parameter(name, prior) for name, row, prior in found if prior is not None)
