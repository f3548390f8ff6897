"""What a probe says of a server: its hardware as measured, and plain decode steps."""

from collections.abc import Mapping
from dataclasses import replace

from specsim.architecture import load_model
from specsim.cost.forward import PER_TOKEN_S
from specsim.cost.rounds import HOST_PER_TOKEN_S, HOST_S
from specsim.hardware import gpu_from_table, load_gpu
from specsim.library import read_library
from specsim.logs import LogEntry
from specsim.observations import Observation, weight_of
from specsim.server import Setup
from specsim.server.system import assemble
from specsim.setting import SpecSetting

IMPLEMENTATION_ERROR = 0.10
"""A probe's step runs other kernels than the engine's (norms, rotary embedding, attention, experts
are not fused as there): 10 % either way, of which its many points share most."""
ASSUMED_ERROR = 0.8  # error (in log) of what is added to a step because the probe does not run it
LEAST_FLOPS = 1e9  # a probe that only had time for one token measured no rate of products
SIXTEEN_BITS = ("bf16", "fp16", "f16")


def measured_gpu(entry: LogEntry, gpu: str | None) -> dict[str, object]:
    """Return the GPU of a probe as a table of setup.toml: measured rates over the library's.

    Of a device that the library does not have (`gpu` None) the specified rates are taken to be what
    was measured.
    """
    facts = entry.settings
    name, source = str(facts["gpu"]), f"specsim probe, {facts['date']}"

    def number(key: str, evidence: str = "measured") -> dict[str, object]:
        return {"value": _float(facts[key]), "evidence": evidence, "source": source}

    measured: dict[str, object] = {"read_bandwidth": number("read_bandwidth")}
    fast = _float(facts["gemm_flops"]) >= LEAST_FLOPS
    if facts["dtype"] in SIXTEEN_BITS and fast:
        measured["gemm_flops_bf16"] = number("gemm_flops")
    if gpu is not None:
        return {"id": gpu, **read_library("gpus")[gpu], **measured}
    return {
        "id": "probed",
        "name": name,
        "is_cpu": facts["device"] == "cpu",
        "mem_bytes": number("mem_bytes"),
        "mem_bandwidth": number("read_bandwidth", "assumed"),
        "flops_bf16": number("gemm_flops", "assumed") if fast else LEAST_FLOPS,
        **measured,
    }


def foreign(entry: LogEntry, setup: Setup, own: str | None) -> str | None:
    """Why a probe was not run on this server's hardware; None if it may have been.

    `own` is the probed device's id in the library, if it is there.
    """
    gpu = setup.hardware.gpu
    known = load_gpu(gpu) if isinstance(gpu, str) else gpu
    said = f"measured on {entry.settings['gpu']}, and the server has {known.name}"
    if known.is_cpu != (entry.settings["device"] == "cpu"):
        return said
    return said if own is not None and isinstance(gpu, str) and gpu != own else None


def with_measured_gpu(setup: Setup, entry: LogEntry) -> Setup:
    """Return a setup whose GPU has the probe's rates."""
    gpu = setup.hardware.gpu
    if isinstance(gpu, str):
        table: Mapping[str, object] = measured_gpu(entry, gpu)
    else:
        own = measured_gpu(entry, None)
        rates = ("read_bandwidth", "gemm_flops_bf16")
        table = {**gpu.table(), **{key: own[key] for key in rates if key in own}}
    hardware = replace(setup.hardware, gpu=gpu_from_table(table))
    return replace(setup, hardware=hardware)


def probe_rows(entry: LogEntry, setup: Setup) -> tuple[list[Observation], list[str]]:
    """Return plain decode steps as observations, and notes.

    A step is the target alone on one GPU in 16 bits: rows come only of a server of which that is a
    whole step. What the engine does besides per request (and, where it does not run ahead, on the
    CPU) is added as assumed and lowers the weight.
    """
    reason = _unlike(entry, setup)
    if reason is not None:
        return [], [f"{entry.path}: step times are not used: {reason}; its hardware rates are"]
    plan = assemble(setup).plan(SpecSetting.none(), what_if=True)
    waits = plan.timeline == "sequential"
    rows: list[Observation] = []
    hidden = 0
    for row in entry.rows:
        batch, step = round(row.batch_size or 1), row.round_time_s or 0.0
        host = HOST_S + HOST_PER_TOKEN_S * batch
        added = PER_TOKEN_S * batch + (host if waits else 0.0)
        if not waits and host >= step + added:
            hidden += 1
            continue
        errors = IMPLEMENTATION_ERROR, row.extra["error"], ASSUMED_ERROR * added / (step + added)
        one = Observation(
            kind="steady_decode",
            setting=SpecSetting.none(),
            concurrency=batch,
            context_len=row.extra["context_len"],
            round_time_s=step + added,
            weight=weight_of(sum(error**2 for error in errors)),
            source=f"{entry.path} (probe, {entry.settings['gpu']})",
        )
        rows.append(one)
    notes = [
        f"{entry.path}: {len(rows)} steps of the probe at {IMPLEMENTATION_ERROR:.0%} error each: "
        "other kernels than the engine's, without its host and sampling"
    ]
    if hidden:
        notes.append(f"{entry.path}: {hidden} steps left out that the host's work would hide")
    return rows, notes


def _unlike(entry: LogEntry, setup: Setup) -> str | None:
    """Why a probe's step is no step of this server; None if it is one."""
    facts = entry.settings
    if facts["tp"] != 1 or setup.engine.tp != 1:
        return "they are one GPU's share, without the all-reduce"
    if facts["dtype"] not in SIXTEEN_BITS:
        return f"the probe ran in {facts['dtype']}"
    native = load_model(setup.model.config or str(setup.model.id))
    scheme = setup.model.quantisation or native.native_quantisation
    if scheme not in SIXTEEN_BITS:
        return f"the server's weights are in {scheme}, the probe's in 16 bits"
    if native.id != facts["model"] and setup.model.id != facts["model"]:
        return f"they are of {facts['model']}, the server runs {native.id}"
    if facts.get("moe") == "loop":
        return "its experts ran one by one, which no engine does"
    return None


def _float(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
