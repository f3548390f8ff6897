"""The document ``specsim.probe/1``: what one run of the probe measured, and how.

The types are what is measured and what is written; :func:`parse_probe` checks them when a file is
read.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from specsim.documents import document
from specsim.errors import FormatError, InputError
from specsim.probe import FILE
from specsim.textfile import check_schema

SCHEMA = "specsim.probe/1"
SIGNIFICANT_DIGITS = 6  # no stopwatch has more

Seconds = Annotated[float, Field(gt=0, lt=1e6)]
Amount = Annotated[float, Field(ge=0, lt=1e20)]
Whole = Annotated[int, Field(ge=0, le=10**15)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Dtype = Literal["bf16", "fp16", "fp32"]
MoeKind = Literal["grouped", "loop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device and the software. `clock_mhz` is before and after, where it could be read."""

    kind: Literal["cuda", "cpu"]
    name: str
    count: Count
    mem_bytes: Amount
    cache_bytes: Amount
    threads: Whole
    clock_mhz: tuple[Amount, ...]
    torch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """Products of `tokens` rows with a matrix of the target."""

    matrix: str
    tokens: Count
    inputs: Count
    outputs: Count
    seconds: Seconds
    flops: Amount
    bytes_per_s: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What the hardware does by itself.

    `read_bytes_per_s` is the best of a reduction and of weight-bound products, `copy_bytes_per_s`
    counts reads and writes; `launch_s` is a small kernel started by the host, `graph_launch_s`
    one in a CUDA graph (null without CUDA).
    """

    read_bytes_per_s: Amount
    copy_bytes_per_s: Amount
    flops: Amount
    launch_s: Seconds
    graph_launch_s: Seconds | None
    gemm: tuple[Gemm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """One forward: `batch` requests, `width` tokens each, `context_len` KV tokens each.

    `seconds` is the whole model's: `fixed_s` and every layer. `error` is relative, from repeats.
    `layers_s` has one layer of each kind; `experts` is how many experts a layer touched.
    """

    batch: Count
    width: Count
    context_len: Whole
    seconds: Seconds
    fixed_s: Amount
    layers_s: tuple[Amount, ...]
    error: Amount
    repeats: Count
    experts: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The forwards of a target, a draft step or a draft extend.

    `built` and `small` are the numbers of layers that were timed, `whole` those of the model, each
    by kind of layer. `moe` is how the routed experts were computed.
    """

    id: str
    dtype: Dtype
    tp: Count
    built: tuple[Count, ...]
    small: tuple[Whole, ...]
    whole: tuple[Count, ...]
    graphs: bool
    moe: MoeKind | None
    points: tuple[StepPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReducePoint:
    """One message size."""

    size_bytes: Count
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """All-reduce over the devices of this machine."""

    backend: str
    ranks: Count
    graphs: bool
    points: tuple[AllReducePoint, ...]


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))  # of its parts too
@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDocument:
    """``probe.json``, which ``specsim calibrate`` takes beside logs."""

    specsim: str
    date: str
    seconds: Amount
    seed: Whole
    device: Device
    rates: Rates
    target: Stack
    draft: Stack | None
    extend: Stack | None
    allreduce: AllReduce | None
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """Return the text of the file."""
        return document(SCHEMA, self, digits=SIGNIFICANT_DIGITS, indent=1)


def parse_probe(value: Mapping[str, Any], path: str | Path) -> ProbeDocument:
    """Check a mapping of the schema; a :class:`FormatError` names the first field that is wrong."""
    content = dict(value)
    remedy = "give a file that specsim probe wrote"
    check_schema(content.pop("schema", None), SCHEMA, path, remedy)
    try:
        return TypeAdapter(ProbeDocument).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        reason = str(first["msg"])
        raise FormatError(f"{path}: {field}", reason, "probe anew, or restore the file") from None


def write_directory(folder: str | Path, measured: ProbeDocument) -> None:
    """Write a calibration directory, all or nothing: beside its place, then renamed."""
    folder = Path(folder)
    check_free(folder)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        beside.mkdir(parents=True)
        (beside / FILE).write_text(measured.to_json(), encoding="utf-8", newline="\n")
        (beside / "README.md").write_text(_readme(measured, folder.name), encoding="utf-8")
        beside.rename(folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        why = f"cannot be written ({error.strerror})"
        raise InputError(folder, why, "give a new name in a writable folder") from None


def check_free(folder: str | Path) -> None:
    """Refuse a place that is taken: a measurement is never overwritten."""
    if Path(folder).exists():
        raise InputError(folder, "exists", "give a new name with -o, or move it away")


def _readme(measured: ProbeDocument, name: str) -> str:
    device, target = measured.device, measured.target
    return (
        f"# {name}\n\n"
        f"`specsim probe` on {device.name} (torch {device.torch}), {measured.date}, "
        f"{measured.seconds:.0f} s: {target.id}, {target.dtype}, 1 of {target.tp} GPU(s) of a "
        "tensor-parallel server.\n\n"
        f"Random weights of the model's shapes. `{FILE}` is `{SCHEMA}`; use it with\n\n"
        "```sh\n"
        f"specsim calibrate {name} server.log -o my.toml\n"
        "```\n"
    )
