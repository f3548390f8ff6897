"""A server put together: library ids of a setup resolved into hardware, shards and engine."""

import math
from dataclasses import dataclass, replace
from typing import Self, get_args

from specsim.architecture import load_draft, load_model
from specsim.architecture.draft import with_vocab
from specsim.cost.allreduce import AllReduce, fit_allreduce
from specsim.cost.model import CostModel, CostParameters, cost_values
from specsim.draft_sharding import shard_draft
from specsim.engine import EngineSpec, RunPlan, engine_named, kv_capacity
from specsim.engine.rulings import AttentionKernel, attention_kernel, server_refusal
from specsim.errors import InputError
from specsim.hardware import AllReducePath, AllReducePiece, Gpu, Link, load_gpu, load_link
from specsim.parameters import Facts
from specsim.server import HardwareSpec, Setup
from specsim.setting import SpecSetting
from specsim.sharding import ShardedModel, shard
from specsim.uncertainty import Evidence

CUSTOM_PCIE_BYTES = 56 * 1024
"""vLLM's custom all-reduce over PCIe hands over to NCCL at this size (Kimi-K2.6 page, 2026)."""

SIZED = ("eagle3", "eagle")  # drafters without a shape of their own: the target gives it

FALLBACK_LATENCY_S = {"nvlink": 5e-6, "infinity-fabric": 8e-6}
"""Assumed latency of an all-reduce on links without a measured table; PCIe and others 20 us."""

ADMITTED_OUTPUT_SHARE = 0.7
"""Share of a request's output that admission reserves: SGLang starts new_token_ratio at 0.7 and
lets it decay to a floor of 0.14 x [@sglang-wheels], and a running request has on average half of
its output; 0.7 is where both meet without retraction."""


@dataclass(frozen=True, slots=True)
class System:
    """One server, ready to be priced."""

    setup: Setup  # as read from the file
    gpu: Gpu
    link: Link
    cost: CostModel  # prices rounds

    @property
    def engine(self) -> EngineSpec:
        """The engine as it is launched."""
        return self.setup.engine

    @property
    def kernel(self) -> AttentionKernel:
        """What reads the KV cache."""
        return kernel_of(self.engine, self.gpu, self.cost.target)

    def with_parameters(self, parameters: CostParameters) -> Self:
        """Return the same server with other cost parameters."""
        return replace(self, cost=replace(self.cost, parameters=parameters))

    @property
    def facts(self) -> Facts:
        """What the priors of the parameters need to know."""
        single = not self.cost.allreduce.pieces
        rests_on = allreduce_evidence(self.setup.hardware, self.link, self.engine.tp)
        return Facts(
            is_cpu=self.gpu.is_cpu,
            compute_measured=self.gpu.gemm_flops_bf16 is not None,
            bandwidth_measured=self.gpu.bandwidth_evidence == "measured",
            allreduce=None if single else rests_on,
            latent_attention=self.cost.target.model.attention == "mla",
            attention_backend=self.kernel.name,
            verify_walks=self.kernel.walks,
            picks_entries=self.kernel.picks,
            has_experts=self.cost.target.experts > 0,
            has_draft=self.cost.draft is not None,
            copies_state=(
                self.engine.name == "llama.cpp" and self.cost.target.state_bytes_per_request > 0
            ),
            pool_logged=self.engine.kv_tokens is not None,
        )

    @property
    def kinds(self) -> dict[str, bool]:
        """Of which kinds a KV cache and a drafter are, as ``servers.csv`` names them."""
        target, draft = self.cost.target, self.cost.draft
        words = draft.draft.shape.vocab if draft and draft.draft.shape else 0
        return {
            "vocabulary": draft is not None
            and draft.kind == "standalone"
            and words != target.model.vocab,
            "latent": target.model.attention == "mla",
            "8-bit": target.kv_dtype_bytes < 2,
            "window": any(share.group.window for share in target.attention),
            "linear": target.model.linear_layers > 0,
        }

    def plan(
        self,
        setting: SpecSetting,
        *,
        engine_version: str | None = None,
        max_running_requests: int | None = None,
        what_if: bool = False,
    ) -> RunPlan:
        """Return what the engine does with a setting; other version or cap where given.

        A what-if models the setting as it was asked for where the engine would refuse or change it;
        else :class:`EngineRefusal` is raised, or :class:`InputError` of such a server.
        """
        engine = self.engine
        if engine_version is not None:
            engine = replace(engine, version=engine_version)
        if max_running_requests is not None:
            engine = replace(engine, max_running_requests=max_running_requests)
        if not what_if and (refused := server_refusal(engine, self.kinds)) is not None:
            raise InputError(f"{engine.name} {engine.version}", *refused)
        rules = engine_named(engine.name)
        if self.gpu.is_cpu and not engine.backend:
            engine = replace(engine, attention_backend=rules.cpu_backend or None)
        memory = rules.class_bytes(self.gpu.name, self.gpu.mem_bytes)
        plan = rules.plan(setting, engine, memory, what_if)
        notes = self.kernel.notes if plan.setting.speculates else ()
        return replace(plan, notes=(*plan.notes, *notes)) if notes else plan

    def kv_pool_tokens(self, plan: RunPlan) -> float:
        """Tokens that the KV cache holds under `plan`, all data-parallel ranks together.

        `kv_tokens` of the setup is the start-up log's number for the current setting, of one
        data-parallel rank; a drafter that is added or dropped changes it by its weights and its
        own cache. (Bytes per token are averaged over the ranks, so a derived pool is whole.)
        """
        scale = float(self.cost.parameters["kv_pool"])
        speculates = plan.setting.has_weights
        current = self.setup.current
        logged = current is not None and current.has_weights
        fits = self.cost.target.weight_bytes_per_gpu <= self.gpu.mem_bytes  # else no command tells
        if self.engine.kv_tokens is not None and fits:
            size = self.engine.kv_tokens * self.engine.dp * self._kv_bytes(logged)
            change = self._draft_weight_bytes(logged) - self._draft_weight_bytes(speculates)
            return max(1.0, (size + change) / self._kv_bytes(speculates)) * scale
        weights = self.cost.target.weight_bytes_per_gpu + self._draft_weight_bytes(speculates)
        same = plan.version == self.engine.version
        return scale * kv_capacity(
            self.engine if same else replace(self.engine, version=plan.version),
            self.gpu.mem_bytes,
            weights,
            self._kv_bytes(speculates),
            plan.setting.algorithm,
        )

    def kv_tokens_per_request(self, plan: RunPlan, input_len: float, output_len: float) -> float:
        """Tokens of the pool that admission reserves for one request."""
        return input_len + ADMITTED_OUTPUT_SHARE * output_len + plan.reserved_tokens_per_request

    def _kv_bytes(self, speculates: bool) -> float:
        draft = self.cost.draft
        extra = draft.kv_bytes_per_token if speculates and draft is not None else 0.0
        return self.cost.target.kv_bytes_per_token + extra

    def _draft_weight_bytes(self, speculates: bool) -> float:
        draft = self.cost.draft
        return draft.weight_bytes_per_gpu if speculates and draft is not None else 0.0


def assemble(setup: Setup) -> System:
    """Resolve the library ids of a setup; refuses a model that cannot be split, or too few GPUs."""
    hardware, engine = setup.hardware, setup.engine
    gpu = load_gpu(hardware.gpu) if isinstance(hardware.gpu, str) else hardware.gpu
    if engine.tp > hardware.gpu_count:
        why = f"exceeds the {hardware.gpu_count} GPUs of [hardware] gpu_count"
        raise InputError(f"tp {engine.tp}", why, "set gpu_count to the GPUs of the server")
    joined = engine.tp > 1 and hardware.link == "none"  # then by what joins such GPUs
    link = load_link(gpu.link if joined else hardware.link)
    model = load_model(setup.model.config or str(setup.model.id), setup.model.quantisation)
    kv_dtype = engine.kv_dtype
    if kv_dtype == "auto":  # as the checkpoint states, where it does
        kv_dtype = model.kv_dtype or kv_dtype
    target = shard(
        model,
        setup.model.quantisation or "native",
        engine.tp,
        engine.dp,
        engine.ep,
        kv_dtype,
        setup.model.weight_bytes,
        engine.dcp,
    )
    draft = None
    if setup.draft is not None and setup.draft.id is not None:
        tp = setup.draft.tp or engine.tp
        if tp not in (1, engine.tp) or (tp < engine.tp and engine.dp > 1):
            why = f"is neither 1 nor the {engine.tp} of the target, or there is dp attention"
            raise InputError(f"tp {tp} of the drafter", why, "leave [draft] tp out")
        drafter = with_vocab(
            load_draft(setup.draft.id, model, setup.draft.layers), setup.draft.vocab
        )
        sized = setup.draft.id in SIZED and setup.draft.tp is None and engine.dp == 1
        if sized and drafter.shape and drafter.shape.heads % tp:
            tp = 1  # a made-up drafter whose heads do not split
        draft = shard_draft(
            drafter,
            model,
            target.quantisation,
            tp,
            engine.dp,
            min(engine.ep, tp),
            kv_dtype,
            setup.draft.quantisation,
            engine.dcp,
        )
    kernel = kernel_of(engine, gpu, target)
    cost = CostModel(
        gpu,
        target,
        draft,
        allreduce_of(hardware, link, engine.tp),
        cost_values(),
        draft is not None
        and engine_named(engine.name).drafts_eager(engine.parsed_version, draft.kind),
        engine.kv_unified,
        kernel.walks,
        kernel.planned,
        engine_named(engine.name).padding_routes,
    )
    return System(setup, gpu, link, cost)


def kernel_of(engine: EngineSpec, gpu: Gpu, target: ShardedModel) -> AttentionKernel:
    """Return what reads the KV cache."""
    if any(share.group.indexers for share in target.attention):
        return AttentionKernel(engine.backend, picks=True)
    latent = target.model.attention == "mla"
    return attention_kernel(engine, gpu.compute_capability, latent, target.kv_dtype_bytes < 2)


def allreduce_of(hardware: HardwareSpec, link: Link, gpus: int) -> AllReduce:
    """All-reduce of `gpus` GPUs on a link: measured table, library curve, or an assumed one."""
    if gpus <= 1:
        return AllReduce()
    if not isinstance(hardware.allreduce, str):
        sizes, seconds = zip(*hardware.allreduce, strict=True)
        return fit_allreduce([float(s) for s in sizes], list(seconds))
    assumed = _assumed_curve(link, gpus)
    nccl, custom = (link.allreduce_pieces(path, gpus) for path in get_args(AllReducePath))
    base = AllReduce(nccl) if nccl else assumed
    if hardware.allreduce == "nccl" or not (custom or link.kind == "pcie"):
        return base
    if custom:
        return AllReduce(custom)
    one_shot = _one_shot(link, gpus)  # over PCIe in patched or recent engines only
    if hardware.allreduce == "custom":
        return one_shot.switched(CUSTOM_PCIE_BYTES, base)
    return _between(one_shot, assumed)


def allreduce_evidence(hardware: HardwareSpec, link: Link, gpus: int) -> Evidence:
    """Return what the all-reduce rests on."""
    if gpus <= 1 or not isinstance(hardware.allreduce, str):
        return "measured"
    path: AllReducePath = "nccl" if hardware.allreduce == "nccl" else "custom"
    return "published" if link.allreduce_pieces(path, gpus) else "assumed"


def _line(latency_s: float, bytes_per_s: float) -> AllReduce:
    """One protocol for all sizes."""
    return AllReduce((AllReducePiece(math.inf, latency_s, bytes_per_s),))


def _assumed_curve(link: Link, gpus: int) -> AllReduce:
    """One protocol for all sizes: ring at 40 % of the link's peak, latency by kind of link.

    40 % is what NCCL reaches on large messages over PCIe 5 (14 of 37 GB/s for eight GPUs).
    """
    latency = FALLBACK_LATENCY_S.get(link.kind, 25e-6) * (gpus / 8) ** 0.5
    rate = max(link.bytes_per_s, 1e9) * 0.4 * gpus / (2 * (gpus - 1))
    return _line(latency, rate)


def _one_shot(link: Link, gpus: int) -> AllReduce:
    """One-shot kernel over PCIe: 7 us, and each GPU pulls the message from all others.

    RTX PRO 6000, 8 GPUs: 7.5 us at 256 B, 16.5 us at 32 KiB (community page, 2026).
    """
    rate = max(link.bytes_per_s, 1e9) * 0.38 / (gpus - 1)
    return _line(7e-6, rate)


def _between(one: AllReduce, other: AllReduce) -> AllReduce:
    """Geometric middle of two straight lines: a fused kernel that picks its path unseen."""
    a, b = one.pieces[-1], other.pieces[-1]
    return _line((a.latency_s * b.latency_s) ** 0.5, (a.bytes_per_s * b.bytes_per_s) ** 0.5)
