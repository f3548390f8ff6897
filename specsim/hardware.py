"""GPUs and the links between them: what the hardware can do, and how well that is known.

Bandwidths and compute rates come in two kinds. The specified one is the data sheet's; the
measured one is what a kernel reached. A step is priced with the measured one where there is one,
else with the specified one times a generic efficiency.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from specsim.errors import InputError, UnknownNameError
from specsim.library import (
    Kind,
    Sourced,
    Table,
    checked,
    is_file,
    kinds_of,
    look_up,
    positive,
    read_table,
    split_sources,
)
from specsim.uncertainty import Evidence

GENERIC_BANDWIDTH = 0.8
"""Share of the specified bandwidth that kernels reach: aiconfigurator's generic factor
(ai-dynamo/aiconfigurator@095f58a, system files; five GPUs measured there lie in 0.82..0.93)."""

GENERIC_COMPUTE = 0.75
"""Share of the specified bf16 rate that GEMMs reach: the middle of 0.57 (L40S) .. 0.85
(RTX PRO 6000) over six GPUs in aiconfigurator@095f58a."""

NARROW_EFFICIENCY = {"fp8": 0.86, "int8": 0.86, "fp4": 0.69}
"""Efficiency of GEMMs of 1024 rows against that of bf16: 0.78 to 0.97 in fp8 on five GPUs, 0.69 in
nvfp4 on two [@aiconfigurator]; int8 taken as fp8."""

OWN_ID, OWN_SOURCE = "custom", "setup file"
"""What stands for the id and the sources that a person's own table does not name."""

USUAL_LINK = "pcie4-x16"  # link of GPUs whose table names none, assumed

LinkKind = Literal[
    "pcie", "nvlink", "infinity-fabric", "hccs", "roce", "infiniband", "ethernet", "none"
]
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
_LINK: Mapping[str, Kind] = {
    **dict.fromkeys(("id", "name"), str),
    "kind": get_args(LinkKind),
    "bytes_per_s": float,
    **dict.fromkeys(("allreduce", "aliases"), list),
}
_PIECE: Mapping[str, Kind] = {
    "path": get_args(AllReducePath),
    **dict.fromkeys(("gpus", "max_bytes", "latency_s", "bytes_per_s"), float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU (or CPU socket)."""

    id: str
    name: str  # the one that people use
    mem_bytes: float
    mem_bandwidth: float  # specified, bytes/s
    read_bandwidth: float | None = None  # measured streaming read, bytes/s
    # specified dense rates, FLOP/s, with fp32 accumulation; None where the unit is absent
    flops_bf16: float
    flops_fp8: float | None = None
    flops_fp4: float | None = None
    flops_int8: float | None = None
    gemm_flops_bf16: float | None = None  # best measured bf16 GEMM rate, FLOP/s
    l2_bytes: float | None = None  # last-level cache
    is_cpu: bool = False  # as llama.cpp runs on
    link: str = USUAL_LINK  # id of what usually joins several
    compute_capability: float | None = None  # NVIDIA's generation, e.g. 12.0
    sources: tuple[Sourced, ...] = ()  # evidence and source of each number

    def __post_init__(self) -> None:
        for key, (least, hint) in _QUANTITIES.items():
            value = getattr(self, key)
            if value is not None or key in _REQUIRED:
                positive(f"gpu {self.id}: {key}", value, least, hint)

    def evidence_of(self, field: str) -> Evidence:
        """Evidence of one field, ``assumed`` if nothing is known about it."""
        return next((s.evidence for s in self.sources if s.name == field), "assumed")

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

        The measured bf16 rate, or 0.75 of the specified one; narrow types are less efficient by
        `NARROW_EFFICIENCY`. A type that the GPU lacks runs in bf16 (its weights are unpacked).
        """
        rates = {
            "bf16": self.flops_bf16,
            "fp16": self.flops_bf16,
            "fp8": self.flops_fp8,
            "fp4": self.flops_fp4,
            "int8": self.flops_int8,
        }
        if dtype not in rates:
            raise UnknownNameError("dtype", dtype, rates)
        efficiency = (self.gemm_flops_bf16 or GENERIC_COMPUTE * self.flops_bf16) / self.flops_bf16
        rate = rates[dtype]
        if rate is None:
            return efficiency * self.flops_bf16
        return efficiency * NARROW_EFFICIENCY.get(dtype, 1.0) * rate

    def table(self) -> dict[str, object]:
        """Return the table that :func:`gpu_from_table` reads back to the same GPU."""
        usual = {"id": OWN_ID, "name": self.id, "link": USUAL_LINK, "is_cpu": False}
        usual["compute_capability"] = None
        said = {key: getattr(self, key) for key in usual}
        table: dict[str, object] = {k: v for k, v in said.items() if v != usual[k]}
        for of in self.sources:
            value = getattr(self, of.name)
            bare = (of.evidence, of.source) == ("assumed", OWN_SOURCE)
            origin = {"evidence": of.evidence, "source": of.source}
            table[of.name] = value if bare else {"value": value, **origin}
        return table


@dataclass(frozen=True, slots=True)
class AllReducePiece:
    """One protocol of an all-reduce: `latency_s` + bytes / `bytes_per_s`, up to `max_bytes`.

    `bytes_per_s` divides the message, so it already holds the 2(p-1)/p passes of a ring
    (NCCL's "algorithm bandwidth").
    """

    max_bytes: float
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What connects the GPUs of one server."""

    id: str
    name: str  # the one that people use
    kind: LinkKind
    bytes_per_s: float  # peak per GPU and direction; 0 for kind none
    # of one measured host (another may differ by 10x): kernel, GPUs, piece
    allreduce: tuple[tuple[AllReducePath, int, AllReducePiece], ...] = ()
    evidence: Evidence = "assumed"  # of bytes_per_s
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind != "none":
            positive(f"link {self.id}: bytes_per_s", self.bytes_per_s, 1e6, "64 GB/s is 64e9")
        elif self.bytes_per_s != 0:
            what = f"link {self.id}: bytes_per_s = {self.bytes_per_s}"
            raise InputError(what, "must be 0 for kind none", "name the kind of the link")

    def allreduce_pieces(self, path: AllReducePath, gpus: int) -> tuple[AllReducePiece, ...]:
        """Pieces of one curve in rising order; empty if it was not measured.

        >>> [round(r.latency_s * 1e6) for r in load_link("pcie5-x16").allreduce_pieces("nccl", 2)]
        [6, 16]
        """
        pieces = (piece for *of, piece in self.allreduce if of == [path, gpus])
        return tuple(sorted(pieces, key=lambda piece: piece.max_bytes))


def load_gpu(name: str) -> Gpu:
    """Return a GPU of the library, or of a TOML file of one's own.

    Raises :class:`UnknownNameError`, which names the nearest id; :class:`FormatError` or
    :class:`InputError` if the file cannot be read, or a key or number in it is wrong.
    """
    needed = ", ".join(_REQUIRED)
    id, table = look_up("gpus", name, f"describe it in a file of your own, my-gpu.toml ({needed})")
    return gpu_from_table(table, id, Path(name).name if is_file(name) else "library")


def gpu_from_table(table: Table, id: str = OWN_ID, source: str = OWN_SOURCE) -> Gpu:
    """Build a GPU from a table, as setup.toml may hold one.

    It has mem_bytes, mem_bandwidth and flops_bf16 at least, each bare or with its evidence; `id`
    and `source` are used where the table says none.
    """
    where = f"gpu {id}"
    bare, sources = split_sources(where, table, _QUANTITIES, source)
    keys = {key: kind for key, kind in kinds_of(Gpu).items() if key != "sources"}
    values = {"id": id, **read_table(where, bare, {**keys, "aliases": list}, _REQUIRED)}
    values.pop("aliases", None)
    return Gpu(**{"name": values["id"], **values}, sources=sources)


def load_link(name: str) -> Link:
    """Return a link of the library, or of a TOML file of one's own.

    Raises :class:`UnknownNameError` or :class:`FormatError` or :class:`InputError` as
    :func:`load_gpu`.
    """
    remedy = "describe it in a file of your own, my-link.toml (kind, bytes_per_s)"
    id, table = look_up("links", name, remedy)
    return link_from_table(table, id, Path(name).name if is_file(name) else "library")


def link_from_table(table: Table, id: str = OWN_ID, source: str = OWN_SOURCE) -> Link:
    """Build a link from a table with kind and bytes_per_s, and all-reduce rows if known."""
    where = f"link {id}"
    bare, origins = split_sources(where, table, ("bytes_per_s",), source)
    values = {"id": id, **read_table(where, bare, _LINK, ("kind", "bytes_per_s"))}
    values.pop("aliases", None)
    pieces = tuple(_piece(where, row) for row in values.pop("allreduce", ()))
    return Link(
        **{"name": values["id"], **values},
        allreduce=pieces,
        evidence=origins[0].evidence,
        source=origins[0].source,
    )


def _piece(where: str, row: object) -> tuple[AllReducePath, int, AllReducePiece]:
    where = f"{where}: allreduce"
    required = ("gpus", "latency_s", "bytes_per_s")
    values = read_table(where, checked(f"{where} row", row, dict), _PIECE, required)
    path = values.pop("path", "nccl")
    gpus, *_ = (positive(f"{where}: {key}", value) for key, value in values.items())
    if not gpus.is_integer():
        raise InputError(f"{where}: gpus = {gpus}", "is not a whole number", "count GPUs")
    del values["gpus"]
    return path, int(gpus), AllReducePiece(**{"max_bytes": float("inf"), **values})
