"""What the hardware does by itself: memory bandwidth, products by tokens, launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsim.probe.device import import_torch
from specsim.probe.document import Gemm, Rates
from specsim.probe.layers import Filler
from specsim.probe.shapes import StackShape
from specsim.probe.timing import Deadline, Timer, affordable, sample

if TYPE_CHECKING:
    import torch

READ_BYTES = 2e9
"""Most that the bandwidth is measured on; a CPU takes less (ten times its cache)."""
LAUNCHES = 200
GEMM_TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096)
POINT_S = 1.0
"""Most seconds for one product."""


def measure_rates(
    device: torch.device,
    timer: Timer,
    fill: Filler,
    stack: StackShape,
    *,
    memory_bytes: float,
    cache_bytes: float,
    deadline: Deadline,
    tokens: Sequence[int] = GEMM_TOKENS,
) -> Rates:
    """Measure bandwidth, products and launches within a deadline.

    Parameters
    ----------
    device, timer, fill
        Of the device; `fill` knows the number type.
    stack
        Whose matrices the products have.
    memory_bytes, cache_bytes
        What may be taken, and the last-level cache.
    deadline
        For all of it.
    tokens
        Rows of the products.
    """
    launch, in_graph = _launches(device, timer, deadline.share(0.1).left_s)
    size = min(READ_BYTES, memory_bytes / 4, max(10 * cache_bytes, 64e6))
    if device.type == "cuda":
        size = min(READ_BYTES, memory_bytes / 4)
    read, copy = _bandwidth(device, timer, int(size), deadline.share(0.25).left_s)
    products = _products(timer, fill, stack, tokens, cache_bytes, memory_bytes, deadline)
    streamed = max((p.bytes_per_s for p in products if p.tokens <= 16), default=0.0)
    return Rates(
        read_bytes_per_s=max(read, streamed),
        copy_bytes_per_s=copy,
        flops=max((p.flops for p in products), default=0.0),
        launch_s=launch,
        graph_launch_s=in_graph,
        gemm=tuple(sorted(products, key=lambda p: (p.matrix, p.tokens))),
    )


def _bandwidth(
    device: torch.device, timer: Timer, size: int, seconds: float
) -> tuple[float, float]:
    """Read and copy bandwidth, bytes/s; a copy moves every byte twice."""
    torch = import_torch()
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    samples = sample(timer, [source.sum, lambda: target.copy_(source)], min(seconds, 4.0))
    count = source.numel() * 4
    return count / samples[0].seconds, 2 * count / samples[1].seconds


def _launches(device: torch.device, timer: Timer, seconds: float) -> tuple[float, float | None]:
    """Seconds of a small kernel started by the host, and of one in a CUDA graph."""
    torch = import_torch()
    small = torch.zeros(256, device=device)

    def many() -> None:
        for _ in range(LAUNCHES):
            small.add_(1.0)

    (done,) = sample(timer, [many], min(seconds, 1.0))
    once = done.seconds / LAUNCHES
    if device.type != "cuda":
        return once, None
    torch.cuda.synchronize(device)
    many()
    from time import perf_counter

    torch.cuda.synchronize(device)
    began = perf_counter()
    for _ in range(5):
        many()
    torch.cuda.synchronize(device)
    return (perf_counter() - began) / (5 * LAUNCHES), once


def _products(
    timer: Timer,
    fill: Filler,
    stack: StackShape,
    tokens: Sequence[int],
    cache_bytes: float,
    memory_bytes: float,
    deadline: Deadline,
) -> list[Gemm]:
    """Products with the largest dense matrix of a layer and with the head, copies in turn.

    As many copies of a matrix are multiplied one after the other as the cache cannot hold.
    """
    f = import_torch().nn.functional
    layer = stack.groups[0][0]
    shapes = {"head": (stack.vocab, stack.hidden)}
    if layer.ffn:
        shapes["gate_up"] = (2 * layer.ffn, layer.hidden)
    found: list[Gemm] = []
    for name, (rows, columns) in shapes.items():
        one = fill(rows, columns)
        size = one.numel() * one.element_size()
        room = max(1, int(memory_bytes / 4 / size))
        copies = [one, *(one.clone() for _ in range(min(room, int(4 * cache_bytes // size))))]
        share = deadline.share(1.0 / (len(shapes) - list(shapes).index(name)))
        done: list[tuple[int, float]] = []
        for count in sorted(tokens):
            wide = count * (rows + columns) * one.element_size()
            if wide > memory_bytes / 4 or not affordable(count, done, share.left_s):
                break
            given = fill(count, columns)

            def run(given: torch.Tensor = given, copies: list[torch.Tensor] = copies) -> None:
                for matrix in copies:
                    f.linear(given, matrix)

            (timed,) = sample(timer, [run], min(POINT_S, share.left_s / 3))
            done.append((count, timed.seconds))
            once = timed.seconds / len(copies)
            found.append(
                Gemm(
                    matrix=name,
                    tokens=count,
                    inputs=columns,
                    outputs=rows,
                    seconds=once,
                    flops=2.0 * count * rows * columns / once,
                    bytes_per_s=size / once,
                )
            )
    return found
