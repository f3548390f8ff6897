"""``specsim probe``: what this machine's own device does, measured."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from specsim.cli import options as opt
from specsim.cli import output, values
from specsim.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from specsim.probe.document import ProbeDocument, Stack


@click.command("probe")
@click.option(
    "--output",
    "-o",
    "folder",
    metavar="FOLDER",
    required=True,
    type=values.FILE,
    help="Folder to write; a new one.",
)
@click.option(
    "--model",
    metavar="ID|FILE",
    required=True,
    type=values.FILE,
    help="Whose shapes: library id, config.json or TOML file.",
)
@click.option("--draft", metavar="ID", help="Drafter, e.g. eagle3 or a library id.")
@click.option("--gpu", metavar="ID", help="Library id to check the device's name against.")
@click.option(
    "--tp",
    metavar="N",
    default="1",
    callback=values.whole(1),
    help="Measure one GPU's share of so many.",
)
@click.option("--device", metavar="auto|cpu|cuda|cuda:N", default="auto", help="What to measure.")
@click.option("--dtype", metavar="bf16|fp16|fp32", default="bf16", help="Of weights and cache.")
@click.option(
    "--max-seconds",
    metavar="S",
    default="300",
    callback=values.number(1),
    help="Stop after so long.",
)
@click.option(
    "--max-memory-gb",
    metavar="GB",
    callback=values.number(0.001),
    help="Default: most of what is free.",
)
@click.option(
    "--layers",
    metavar="N",
    default="4",
    callback=values.whole(1, 256),
    help="Layers to build and scale up from.",
)
@click.option(
    "--tokens",
    metavar="1,2,4,...",
    callback=values.concurrency,
    help="Default: 1 to 1024.",
)
@click.option(
    "--context-len",
    metavar="N",
    default="1024",
    callback=values.whole(1, 1 << 20),
    help="KV tokens per request.",
)
@click.option(
    "--contexts",
    metavar="N,...",
    callback=values.concurrency,
    help="KV lengths. Default: 1024,4096,16384.",
)
@opt.seed
@click.option("--json", "as_json", is_flag=True, help="Print specsim.probe/1 too.")
def probe_command(
    folder: str,
    model: str,
    draft: str | None,
    gpu: str | None,
    tp: int,
    device: str,
    dtype: str,
    max_seconds: float,
    max_memory_gb: float | None,
    layers: int,
    tokens: tuple[int, ...] | None,
    context_len: int,
    contexts: tuple[int, ...] | None,
    seed: int,
    as_json: bool,
) -> None:
    """Measure step times, bandwidth, products, launches and all-reduce on this machine.

    Needs torch: pip install 'specsim-llm[probe]'. Run it with nothing else on the device.

    Example: specsim probe --model llama-3.1-8b --draft eagle3 -o calibration/my-gpu
    """
    from datetime import UTC, datetime

    from specsim import __version__
    from specsim.architecture import load_draft, load_model, model_from_hf_config
    from specsim.probe.device import DTYPES, choose_device
    from specsim.probe.document import check_free, write_directory
    from specsim.probe.grid import CONTEXTS, TOKENS
    from specsim.probe.run import Request, probe
    from specsim.probe.shapes import draft_shapes, target_shape

    target = choose_device(device)
    check_free(folder)
    _check_gpu(gpu, target)
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    architecture = model_from_hf_config(model) if model.endswith(".json") else load_model(model)
    shapes = None
    if draft is not None:
        shapes = draft_shapes(load_draft(draft, architecture), tp)
        if shapes is None:
            raise InputError(f"draft {draft}", "has no model to measure", "leave --draft away")
    counts, lengths = tokens or TOKENS, contexts or CONTEXTS
    for name, numbers, most in (("--tokens", counts, 1 << 14), ("--contexts", lengths, 1 << 20)):
        if min(numbers) < 1 or max(numbers) > most:
            raise InputError(f"{name} {min(numbers)}..{max(numbers)}", f"leave 1..{most}", "fewer")
    request = Request(
        target=target_shape(architecture, tp),
        draft=shapes[0] if shapes else None,
        extend=shapes[1] if shapes else None,
        tp=tp,
        dtype=dtype,
        seconds=max_seconds,
        memory_bytes=None if max_memory_gb is None else max_memory_gb * 1e9,
        layers=layers,
        tokens=counts,
        context_len=context_len,
        contexts=lengths,
        seed=seed,
    )
    with output.progress_bar("probing") as progress:
        document = probe(
            request,
            target,
            version=__version__,
            date=datetime.now(UTC).date().isoformat(),
            progress=progress,
        )
    write_directory(folder, document)
    if as_json:
        sys.stdout.write(document.to_json())
        return
    _show(document)
    output.console().print(
        f"wrote {folder}; next: specsim calibrate {folder} server.log -o my.toml"
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
    """Print rates, steps and notes."""
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
    grid = output.table("step", "batch", "tokens each", "context", "ms", "+-")
    for name, stack in (
        ("target", target),
        ("draft step", document.draft),
        ("draft extend", document.extend),
    ):
        _steps(grid, name, stack)
    out.print(grid)
    if document.allreduce is not None:
        reduce = output.table("all-reduce bytes", "us")
        for point in document.allreduce.points:
            reduce.add_row(str(point.size_bytes), f"{point.seconds * 1e6:.1f}")
        out.print(reduce)
    for note in document.notes:
        out.print(f"note: {note}")


def _steps(grid: Table, name: str, stack: Stack | None) -> None:
    """Add the rows of one kind of forward."""
    for point in () if stack is None else stack.points:
        grid.add_row(
            name,
            str(point.batch),
            str(point.width),
            str(point.context_len),
            f"{point.seconds * 1e3:.3f}",
            f"{point.error:.1%}",
        )
