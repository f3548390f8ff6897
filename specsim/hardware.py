"""GPUs and the links between them: what the hardware can do, and how well that is known.

Bandwidths and compute rates come in two kinds. The specified one is the data sheet's; the
measured one is what a kernel reached. A step is priced with the measured one where there is one,
else with the specified one times a generic efficiency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from specsim.errors import InputError, UnknownNameError
from specsim.evidence import Evidence, weakest
from specsim.library import (
    Sourced,
    Table,
    as_evidence,
    as_table,
    check_keys,
    find,
    positive,
    quantity,
    read_library,
    read_table,
    text,
)

GENERIC_BANDWIDTH = 0.8
"""Share of the specified bandwidth that kernels reach: aiconfigurator's generic factor
(ai-dynamo/aiconfigurator@095f58a, system files; five GPUs measured there lie in 0.82..0.93)."""

GENERIC_COMPUTE = 0.75
"""Share of the specified bf16 rate that GEMMs reach: the middle of 0.57 (L40S) .. 0.85
(RTX PRO 6000) over six GPUs in aiconfigurator@095f58a."""

Dtype = Literal["bf16", "fp16", "fp8", "fp4", "int8"]
LinkKind = Literal["pcie", "nvlink", "infinity-fabric", "roce", "infiniband", "ethernet", "none"]
AllReducePath = Literal["nccl", "custom"]

_QUANTITIES = {
    # field: (least believable value, what the usual slip is)
    "mem_bytes": (1e8, "give bytes: 96 GB is 96e9"),
    "mem_bandwidth": (1e8, "give bytes per second: 1792 GB/s is 1.792e12"),
    "read_bandwidth": (1e8, "give bytes per second: 1509 GB/s is 1.509e12"),
    "flops_bf16": (1e9, "give FLOP/s: 468 TFLOP/s is 468e12"),
    "flops_fp8": (1e9, "give FLOP/s: 936 TFLOP/s is 936e12"),
    "flops_fp4": (1e9, "give FLOP/s: 1871 TFLOP/s is 1871e12"),
    "flops_int8": (1e9, "give operations per second: 936 TOP/s is 936e12"),
    "gemm_flops_bf16": (1e9, "give FLOP/s: 398 TFLOP/s is 398e12"),
    "l2_bytes": (1e3, "give bytes: 128 MiB is 134217728"),
}
_REQUIRED = ("mem_bytes", "mem_bandwidth", "flops_bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU (or CPU socket).

    Parameters
    ----------
    id, name
        Library id, and the name people use.
    mem_bytes
        Memory, bytes.
    mem_bandwidth
        Specified memory bandwidth, bytes/s.
    read_bandwidth
        Measured streaming-read bandwidth, bytes/s; None if nobody measured it.
    flops_bf16, flops_fp8, flops_fp4, flops_int8
        Specified dense rates, FLOP/s, with fp32 accumulation; None where the unit is absent.
    gemm_flops_bf16
        Best measured bf16 GEMM rate, FLOP/s.
    l2_bytes
        Last-level cache, bytes.
    is_cpu
        Whether it is a CPU (llama.cpp).
    sources
        Evidence and source of each number.

    Raises
    ------
    InputError
        If a number is not finite and positive, or is in GB or TFLOP/s.
    """

    id: str
    name: str
    mem_bytes: float
    mem_bandwidth: float
    flops_bf16: float
    read_bandwidth: float | None = None
    flops_fp8: float | None = None
    flops_fp4: float | None = None
    flops_int8: float | None = None
    gemm_flops_bf16: float | None = None
    l2_bytes: float | None = None
    is_cpu: bool = False
    sources: tuple[Sourced, ...] = ()

    def __post_init__(self) -> None:
        for key, (least, hint) in _QUANTITIES.items():
            value = getattr(self, key)
            if value is not None or key in _REQUIRED:
                positive(f"gpu {self.id}", key, value, least, hint)

    def evidence_of(self, field: str) -> Evidence:
        """Evidence of one field, ``assumed`` if nothing is known about it."""
        return next((s.evidence for s in self.sources if s.name == field), "assumed")

    def source_of(self, field: str) -> str:
        """Source of one field, empty if nothing is known about it."""
        return next((s.source for s in self.sources if s.name == field), "")

    @property
    def bandwidth(self) -> float:
        """Bytes/s that a step streams at: measured, else 0.8 of the specified.

        >>> f"{load_gpu('rtx-pro-6000').bandwidth:.4g}"
        '1.509e+12'
        """
        return self.read_bandwidth or GENERIC_BANDWIDTH * self.mem_bandwidth

    @property
    def bandwidth_evidence(self) -> Evidence:
        """Evidence of :attr:`bandwidth`."""
        return self.evidence_of("read_bandwidth") if self.read_bandwidth else "assumed"

    def compute(self, dtype: str = "bf16") -> float:
        """FLOP/s that a GEMM reaches in `dtype`.

        The measured bf16 rate, or 0.75 of the specified one; other types are taken to be as
        efficient as bf16. A type that the GPU lacks runs in bf16 (its weights are unpacked).
        """
        efficiency = (self.gemm_flops_bf16 or GENERIC_COMPUTE * self.flops_bf16) / self.flops_bf16
        return efficiency * (self._specified(dtype) or self.flops_bf16)

    def compute_evidence(self, dtype: str = "bf16") -> Evidence:
        """Evidence of :meth:`compute`."""
        in_bf16 = dtype in ("bf16", "fp16") or self._specified(dtype) is None
        return self.evidence_of("gemm_flops_bf16") if in_bf16 else "assumed"

    def _specified(self, dtype: str) -> float | None:
        match dtype:
            case "bf16" | "fp16":
                return self.flops_bf16
            case "fp8":
                return self.flops_fp8
            case "fp4":
                return self.flops_fp4
            case "int8":
                return self.flops_int8
        raise UnknownNameError("dtype", dtype, get_args(Dtype))

    @property
    def evidence(self) -> Evidence:
        """Weakest evidence that a step time rests on: bandwidth and bf16 rate."""
        return weakest((self.bandwidth_evidence, self.compute_evidence()))


@dataclass(frozen=True, slots=True)
class AllReduceRow:
    """A piece of an all-reduce curve: `latency_s` + bytes / `bytes_per_s` up to `max_bytes`.

    `bytes_per_s` divides the message, so it already holds the 2(p-1)/p passes of a ring
    (NCCL's "algorithm bandwidth").
    """

    path: AllReducePath
    gpus: int
    max_bytes: float
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What connects the GPUs of one server.

    Parameters
    ----------
    id, name
        Library id, and the name people use.
    kind
        pcie, nvlink, ..., none.
    bytes_per_s
        Peak per GPU and direction, bytes/s; 0 for kind none.
    allreduce
        Default all-reduce curves of one measured host (another host may differ by 10x).
    allreduce_evidence, allreduce_source
        What those curves rest on.
    evidence, source
        What `bytes_per_s` rests on.
    """

    id: str
    name: str
    kind: LinkKind
    bytes_per_s: float
    allreduce: tuple[AllReduceRow, ...] = ()
    allreduce_evidence: Evidence = "assumed"
    allreduce_source: str = ""
    evidence: Evidence = "assumed"
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(LinkKind):
            raise UnknownNameError(f"link {self.id}: kind", self.kind, get_args(LinkKind))
        if self.kind != "none":
            positive(f"link {self.id}", "bytes_per_s", self.bytes_per_s, 1e6, "64 GB/s is 64e9")
        elif self.bytes_per_s != 0:
            raise InputError(
                f"link {self.id}: bytes_per_s = {self.bytes_per_s}",
                "must be 0 for kind none",
                "name the kind of the link",
            )

    def allreduce_rows(self, path: AllReducePath, gpus: int) -> tuple[AllReduceRow, ...]:
        """Pieces of one curve in rising order; empty if it was not measured.

        >>> [round(r.latency_s * 1e6) for r in load_link("pcie5-x16").allreduce_rows("nccl", 2)]
        [6, 16]
        """
        rows = (r for r in self.allreduce if r.path == path and r.gpus == gpus)
        return tuple(sorted(rows, key=lambda r: r.max_bytes))


def gpu_names() -> tuple[str, ...]:
    """Ids of the GPUs in the library."""
    return tuple(sorted(read_library("gpus")))


def load_gpu(name: str) -> Gpu:
    """Return a GPU of the library.

    Raises
    ------
    UnknownNameError
        Names the nearest id.
    """
    gpu = find(
        "gpu",
        name,
        gpu_names(),
        "describe it with --gpu-file FILE.toml (mem_bytes, mem_bandwidth, flops_bf16)",
    )
    return gpu_from_table(read_library("gpus")[gpu], gpu)


def load_gpu_file(path: str | Path) -> Gpu:
    """Read a GPU from a TOML file with the keys of :func:`gpu_from_table`."""
    return gpu_from_table(read_table(path), Path(path).stem, source=Path(path).name)


def gpu_from_table(table: Table, id: str = "custom", source: str = "setup file") -> Gpu:
    """Build a GPU from a table, as setup.toml may hold one.

    Parameters
    ----------
    table
        At least mem_bytes, mem_bandwidth and flops_bf16; each bare or with its evidence.
    id
        Used where the table holds no `id`.
    source
        Source of the numbers that name none.
    """
    where = f"gpu {id}"
    check_keys(where, table, ("id", "name", "is_cpu", *_QUANTITIES), _REQUIRED)
    numbers, sources = _read_quantities(where, table, _QUANTITIES, source)
    gpu_id = text(where, table, "id", id)
    is_cpu = table.get("is_cpu", False)
    if not isinstance(is_cpu, bool):
        raise InputError(f"{where}: is_cpu = {is_cpu!r}", "is not true or false", "write true")
    return Gpu(
        id=gpu_id,
        name=text(where, table, "name", gpu_id),
        is_cpu=is_cpu,
        sources=sources,
        mem_bytes=numbers["mem_bytes"],
        mem_bandwidth=numbers["mem_bandwidth"],
        flops_bf16=numbers["flops_bf16"],
        read_bandwidth=numbers.get("read_bandwidth"),
        flops_fp8=numbers.get("flops_fp8"),
        flops_fp4=numbers.get("flops_fp4"),
        flops_int8=numbers.get("flops_int8"),
        gemm_flops_bf16=numbers.get("gemm_flops_bf16"),
        l2_bytes=numbers.get("l2_bytes"),
    )


def _read_quantities(
    where: str, table: Table, known: Iterable[str], source: str
) -> tuple[dict[str, float], tuple[Sourced, ...]]:
    numbers: dict[str, float] = {}
    sources: list[Sourced] = []
    for key in known:
        if key in table:
            value, origin = quantity(where, key, table[key], source)
            numbers[key] = positive(where, key, value, *_QUANTITIES[key])
            sources.append(origin)
    return numbers, tuple(sources)


def link_names() -> tuple[str, ...]:
    """Ids of the links in the library."""
    return tuple(sorted(read_library("links")))


def load_link(name: str) -> Link:
    """Return a link of the library.

    Raises
    ------
    UnknownNameError
        Names the nearest id.
    """
    remedy = "describe it in a TOML file (kind, bytes_per_s)"
    link = find("link", name, link_names(), remedy)
    return link_from_table(read_library("links")[link], link)


def load_link_file(path: str | Path) -> Link:
    """Read a link from a TOML file with the keys of :func:`link_from_table`."""
    return link_from_table(read_table(path), Path(path).stem, source=Path(path).name)


def link_from_table(table: Table, id: str = "custom", source: str = "setup file") -> Link:
    """Build a link from a table with kind and bytes_per_s, and all-reduce rows if known."""
    where = f"link {id}"
    keys = ("id", "name", "kind", "bytes_per_s", "allreduce", "allreduce_origin")
    check_keys(where, table, keys, ("kind", "bytes_per_s"))
    value, origin = quantity(where, "bytes_per_s", table["bytes_per_s"], source)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: bytes_per_s = {value!r}", "is not a number", "write a number")
    rows = table.get("allreduce", [])
    if not isinstance(rows, list):
        raise InputError(f"{where}: allreduce", "is not a list", "write [[allreduce]] tables")
    about = as_table(f"{where}: allreduce_origin", table.get("allreduce_origin", {}))
    link_id = text(where, table, "id", id)
    return Link(
        id=link_id,
        name=text(where, table, "name", link_id),
        kind=_kind(where, table["kind"]),
        bytes_per_s=float(value),
        allreduce=tuple(_allreduce_row(where, row) for row in rows),
        allreduce_evidence=as_evidence(where, about),
        allreduce_source=text(where, about, "source", source if rows else ""),
        evidence=origin.evidence,
        source=origin.source,
    )


def _kind(where: str, value: object) -> LinkKind:
    kinds: tuple[LinkKind, ...] = get_args(LinkKind)
    for kind in kinds:
        if kind == value:
            return kind
    raise UnknownNameError(f"{where}: kind", str(value), kinds)


def _allreduce_row(where: str, row: object) -> AllReduceRow:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: allreduce row {row!r}", "is not a table", "write one a row")
    keys = ("gpus", "latency_s", "bytes_per_s")
    check_keys(f"{where}: allreduce", row, ("path", "max_bytes", *keys), keys)
    path = row.get("path", "nccl")
    if path not in get_args(AllReducePath):
        raise UnknownNameError(f"{where}: allreduce path", str(path), get_args(AllReducePath))
    gpus = positive(where, "gpus", row["gpus"], 1)
    if not gpus.is_integer():
        raise InputError(f"{where}: gpus = {gpus}", "is not a whole number", "count GPUs")
    unbounded = "max_bytes" not in row
    return AllReduceRow(
        path=path,
        gpus=int(gpus),
        max_bytes=float("inf") if unbounded else positive(where, "max_bytes", row["max_bytes"]),
        latency_s=positive(where, "latency_s", row["latency_s"]),
        bytes_per_s=positive(where, "bytes_per_s", row["bytes_per_s"]),
    )
