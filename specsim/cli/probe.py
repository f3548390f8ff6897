"""``specsim probe``: what this machine's own device does, measured."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specsim.cli import output
from specsim.cli.options import command, filled
from specsim.errors import InputError

if TYPE_CHECKING:
    import torch

    from specsim.probe.document import AllReducePoint, Dtype, ProbeDocument, StepPoint
    from specsim.probe.run import Request


STEPS: output.Columns[tuple[str, StepPoint]] = (
    ("step", lambda row: row[0]),
    ("batch", lambda row: str(row[1].batch)),
    ("tokens each", lambda row: str(row[1].width)),
    ("context", lambda row: str(row[1].context_len)),
    ("ms", lambda row: f"{row[1].seconds * 1e3:.3f}"),
    ("+-", lambda row: f"{row[1].error:.1%}"),
)

ALLREDUCE: output.Columns[AllReducePoint] = (
    ("all-reduce bytes", lambda point: str(point.size_bytes)),
    ("us", lambda point: f"{point.seconds * 1e6:.1f}"),
)


@dataclass(frozen=True)
class Options:
    """Whose shapes are measured, on what, and how far."""

    folder: str
    model: str
    draft: str | None
    gpu: str | None
    tp: int
    device: str
    dtype: Dtype
    max_seconds: float
    max_memory_gb: float | None
    layers: int
    tokens: tuple[int, ...] | None
    context_len: int
    contexts: tuple[int, ...] | None
    seed: int
    as_json: bool


@command("probe", Options)
def probe_command(how: Options) -> None:
    """Measure step times, bandwidth, products, launches and all-reduce on this machine.

    Needs torch: pip install 'specsim-llm[probe]'. Run it with nothing else on the device.

    Example: specsim probe --model llama-3.1-8b --draft eagle3 -o calibration/my-gpu
    """
    from datetime import UTC, datetime

    from specsim import __version__
    from specsim.probe.device import choose_device
    from specsim.probe.document import check_free, write_directory
    from specsim.probe.run import probe

    device = choose_device(how.device)
    check_free(how.folder)
    _check_gpu(how.gpu, device)
    with output.progress_bar("probing") as progress:
        document = probe(
            _request(how),
            device,
            version=__version__,
            date=datetime.now(UTC).date().isoformat(),
            progress=progress,
        )
    write_directory(how.folder, document)
    if how.as_json:
        sys.stdout.write(document.to_json())
        return
    _show(document)
    output.console().print(
        f"wrote {how.folder}; next: specsim calibrate {how.folder} server.log -o my.toml"
    )


def _request(how: Options) -> Request:
    from specsim.architecture import load_draft, load_model
    from specsim.probe.grid import CONTEXTS, TOKENS
    from specsim.probe.run import Request
    from specsim.probe.shapes import draft_shapes, target_shape

    model = load_model(how.model)
    shapes = None
    if how.draft is not None:
        shapes = draft_shapes(load_draft(how.draft, model), how.tp)
        if shapes is None:
            raise InputError(f"draft {how.draft}", "has no model to measure", "leave --draft away")
    tokens, contexts = how.tokens or TOKENS, how.contexts or CONTEXTS
    for name, numbers, most in (("--tokens", tokens, 1 << 14), ("--contexts", contexts, 1 << 20)):
        if min(numbers) < 1 or max(numbers) > most:
            raise InputError(f"{name} {min(numbers)}..{max(numbers)}", f"leave 1..{most}", "fewer")
    return filled(
        Request,
        how,
        target=target_shape(model, how.tp),
        draft=shapes[0] if shapes else None,
        extend=shapes[1] if shapes else None,
        seconds=how.max_seconds,
        memory_bytes=None if how.max_memory_gb is None else how.max_memory_gb * 1e9,
        tokens=tokens,
        contexts=contexts,
    )


def _check_gpu(gpu: str | None, target: torch.device) -> None:
    """Refuse a device whose name is not that of the library's GPU."""
    if gpu is None:
        return
    from specsim.hardware import load_gpu
    from specsim.probe.device import describe

    known = load_gpu(gpu)
    about = describe(target)
    text = re.sub(r"[^a-z0-9.]+", "-", about.name.lower())
    named = gpu.removesuffix("-sxm") in text
    if known.is_cpu != (about.kind == "cpu") or not (named or known.is_cpu):
        raise InputError(f"--gpu {gpu}", f"this device is {about.name}", "leave --gpu away")


def _show(document: ProbeDocument) -> None:
    out, rates, target = output.console(), document.rates, document.target
    launch = rates.graph_launch_s or rates.launch_s
    out.print(
        f"{document.device.name}: reads {rates.read_bytes_per_s / 1e9:.4g} GB/s, "
        f"copies {rates.copy_bytes_per_s / 1e9:.4g} GB/s, products {rates.flops / 1e12:.4g} "
        f"TFLOP/s, a launch {launch * 1e6:.3g} us"
    )
    out.print(
        f"{target.id}, {target.dtype}, tp {target.tp}: {target.built} of {target.whole} layers "
        f"timed, {'CUDA graphs' if target.graphs else 'no CUDA graphs'}"
    )
    stacks = {"target": target, "draft step": document.draft, "draft extend": document.extend}
    steps = [(name, p) for name, stack in stacks.items() if stack for p in stack.points]
    out.print(output.table(STEPS, steps))
    if document.allreduce is not None:
        out.print(output.table(ALLREDUCE, document.allreduce.points))
    for note in document.notes:
        out.print(f"note: {note}")
