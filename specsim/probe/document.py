"""The document ``specsim.probe/1``: what one run of the probe measured, and how."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specsim.errors import FormatError, InputError
from specsim.probe import FILE

SCHEMA = "specsim.probe/1"

Seconds = Annotated[float, Field(gt=0, lt=1e6, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, lt=1e20, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, le=10**15)]
Count = Annotated[int, Field(ge=1, le=10**9)]


class Part(BaseModel):
    """What all parts share: frozen, no unknown keys, built on first use."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, populate_by_name=True)


class Device(Part):
    """The device and the software. `clock_mhz` is before and after, where it could be read."""

    kind: Literal["cuda", "cpu"]
    name: str
    count: Count
    mem_bytes: Amount
    cache_bytes: Amount
    threads: Whole
    clock_mhz: tuple[Amount, ...]
    torch: str


class Gemm(Part):
    """Products of `tokens` rows with a matrix of the target."""

    matrix: str
    tokens: Count
    inputs: Count
    outputs: Count
    seconds: Seconds
    flops: Amount
    bytes_per_s: Amount


class Rates(Part):
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


class StepPoint(Part):
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


class Stack(Part):
    """The forwards of a target, a draft step or a draft extend.

    `built` and `small` are the numbers of layers that were timed, `whole` those of the model, each
    by kind of layer. `moe` is how the routed experts were computed.
    """

    id: str
    dtype: Literal["bf16", "fp16", "fp32"]
    tp: Count
    built: tuple[Count, ...]
    small: tuple[Whole, ...]
    whole: tuple[Count, ...]
    graphs: bool
    moe: Literal["grouped", "loop"] | None
    points: tuple[StepPoint, ...]


class AllReducePoint(Part):
    """One message size."""

    size_bytes: Count
    seconds: Seconds


class AllReduce(Part):
    """All-reduce over the devices of this machine."""

    backend: str
    ranks: Count
    graphs: bool
    points: tuple[AllReducePoint, ...]


class ProbeDocument(Part):
    """``probe.json``, which ``specsim calibrate`` takes beside logs."""

    schema_: Literal["specsim.probe/1"] = Field(default="specsim.probe/1", alias="schema")
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
        """Return the text of the file; six significant digits, as no stopwatch has more."""
        return json.dumps(_rounded(self.model_dump(by_alias=True, mode="json")), indent=1) + "\n"


def parse_probe(value: Mapping[str, Any], path: str | Path) -> ProbeDocument:
    """Check a mapping of the schema.

    Raises
    ------
    FormatError
        Names the first field that is wrong.
    """
    schema = value.get("schema")
    if schema != SCHEMA:
        raise FormatError(
            f"{path}: schema {schema!r}", "is not that of a probe", "upgrade specsim, or probe anew"
        )
    try:
        return ProbeDocument.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        reason = str(first["msg"])
        raise FormatError(f"{path}: {field}", reason, "probe anew, or restore the file") from None


def write_directory(folder: str | Path, document: ProbeDocument) -> None:
    """Write a calibration directory, all or nothing: beside its place, then renamed.

    Raises
    ------
    InputError
        If the place is taken or cannot be written.
    """
    folder = Path(folder)
    check_free(folder)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        beside.mkdir(parents=True)
        (beside / FILE).write_text(document.to_json(), encoding="utf-8", newline="\n")
        (beside / "README.md").write_text(_readme(document, folder.name), encoding="utf-8")
        beside.rename(folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise InputError(
            folder, f"cannot be written ({error.strerror})", "give a new name in a writable folder"
        ) from None


def check_free(folder: str | Path) -> None:
    """Refuse a place that is taken: a measurement is never overwritten.

    Raises
    ------
    InputError
        If something stands there.
    """
    if Path(folder).exists():
        raise InputError(folder, "exists", "give a new name with -o, or move it away")


def _readme(document: ProbeDocument, name: str) -> str:
    device, target = document.device, document.target
    return (
        f"# {name}\n\n"
        f"`specsim probe` on {device.name} (torch {device.torch}), {document.date}, "
        f"{document.seconds:.0f} s: {target.id}, {target.dtype}, 1 of {target.tp} GPU(s) of a "
        "tensor-parallel server.\n\n"
        f"Random weights of the model's shapes. `{FILE}` is `{SCHEMA}`; use it with\n\n"
        "```sh\n"
        f"specsim calibrate {name} server.log -o my.toml\n"
        "```\n"
    )


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return value
