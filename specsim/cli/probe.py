"""specsim probe: what this machine's own device does, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from specsim.probe.document import ProbeDocument, Stack
    from specsim.probe.run import Request


def probe_command(
    output: Annotated[str, typer.Option("--output", "-o", help="Folder to write; a new one.")],
    model: Annotated[
        str, typer.Option("--model", help="Whose shapes: library id, or path of a config.json.")
    ],
    draft: Annotated[
        str | None, typer.Option("--draft", help="Drafter, e.g. eagle3 or a library id.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="Library id to check the device's name against.")
    ] = None,
    tp: Annotated[int, typer.Option("--tp", min=1, help="Measure one GPU's share of so many.")] = 1,
    device: Annotated[
        str, typer.Option("--device", metavar="auto|cpu|cuda|cuda:N", help="What to measure.")
    ] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="bf16|fp16|fp32", help="Of weights and cache.")
    ] = "bf16",
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", min=1, help="Stop after so long.")
    ] = 300.0,
    max_memory_gb: Annotated[
        float | None,
        typer.Option("--max-memory-gb", min=0.001, help="Default: most of what is free."),
    ] = None,
    layers: Annotated[
        int, typer.Option("--layers", min=1, max=256, help="Layers to build and scale up from.")
    ] = 4,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="1,2,4,...", help="Default: 1 to 1024.")
    ] = None,
    context_len: Annotated[
        int, typer.Option("--context-len", min=1, max=1 << 20, help="KV tokens per request.")
    ] = 1024,
    contexts: Annotated[
        str | None,
        typer.Option("--contexts", metavar="N,...", help="KV lengths. Default: 1024,4096,16384."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of weights and routing.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print specsim.probe/1 too.")] = False,
) -> None:
    """Measure step times, bandwidth, products, launches and all-reduce on this machine.

    Needs torch: pip install 'specsim-llm[probe]'. Run it with nothing else on the device.

    Example: specsim probe --model llama-3.1-8b --draft eagle3 -o calibration/my-gpu
    """
    import sys
    from datetime import UTC, datetime

    from specsim import __version__
    from specsim.cli.progress import progress_bar
    from specsim.probe.device import choose_device
    from specsim.probe.document import check_free, write_directory
    from specsim.probe.run import probe

    target = choose_device(device)
    check_free(output)
    _check_gpu(gpu, target)
    request = _request(
        model,
        draft,
        tp=tp,
        dtype=dtype,
        seconds=max_seconds,
        memory_bytes=None if max_memory_gb is None else max_memory_gb * 1e9,
        layers=layers,
        tokens=tokens,
        context_len=context_len,
        contexts=contexts,
        seed=seed,
    )
    with progress_bar("probing") as progress:
        document = probe(
            request,
            target,
            version=__version__,
            date=datetime.now(UTC).date().isoformat(),
            progress=progress,
        )
    write_directory(output, document)
    if as_json:
        sys.stdout.write(document.to_json())
        return
    _show(document)
    from specsim.cli.console import console

    console().print(f"wrote {output}; next: specsim calibrate {output} server.log -o my.toml")


def _request(
    model: str,
    draft: str | None,
    *,
    tp: int,
    dtype: str,
    seconds: float,
    memory_bytes: float | None,
    layers: int,
    tokens: str | None,
    context_len: int,
    contexts: str | None,
    seed: int,
) -> Request:
    """Resolve names and lists."""
    from specsim.architecture import load_draft, load_model
    from specsim.cli.options import parse_concurrency
    from specsim.errors import InputError
    from specsim.probe.device import parse_dtype
    from specsim.probe.grid import CONTEXTS, TOKENS
    from specsim.probe.run import Request
    from specsim.probe.shapes import draft_shapes, target_shape

    architecture = load_model(model)
    shapes = None
    if draft is not None:
        shapes = draft_shapes(load_draft(draft, architecture), tp)
        if shapes is None:
            raise InputError(f"draft {draft}", "has no model to measure", "leave --draft away")
    counts = TOKENS if tokens is None else parse_concurrency(tokens)
    lengths = CONTEXTS if contexts is None else parse_concurrency(contexts)
    for name, values, most in (("--tokens", counts, 1 << 14), ("--contexts", lengths, 1 << 20)):
        if min(values) < 1 or max(values) > most:
            raise InputError(f"{name} {min(values)}..{max(values)}", f"leave 1..{most}", "fewer")
    return Request(
        target=target_shape(architecture, tp),
        draft=shapes[0] if shapes else None,
        extend=shapes[1] if shapes else None,
        tp=tp,
        dtype=parse_dtype(dtype),
        seconds=seconds,
        memory_bytes=memory_bytes,
        layers=layers,
        tokens=counts,
        context_len=context_len,
        contexts=lengths,
        seed=seed,
    )


def _check_gpu(gpu: str | None, target: torch.device) -> None:
    """Refuse a device whose name is not that of the library's GPU."""
    if gpu is None:
        return
    import re

    from specsim.errors import InputError
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
    from specsim.cli.console import console, table

    out, rates, target = console(), document.rates, document.target
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
    grid = table("step", "batch", "tokens each", "context", "ms", "+-")
    for name, stack in (
        ("target", target),
        ("draft step", document.draft),
        ("draft extend", document.extend),
    ):
        _steps(grid, name, stack)
    out.print(grid)
    if document.allreduce is not None:
        reduce = table("all-reduce bytes", "us")
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
