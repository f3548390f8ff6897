"""What the hardware does by itself: memory bandwidth, products, launches, all-reduce."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.probe.bench import Bench, Deadline, Step, Timer, affordable, sample, timer_of
from specsim.probe.device import import_torch
from specsim.probe.document import AllReduce, AllReducePoint, Gemm, Rates
from specsim.probe.shapes import StackShape

if TYPE_CHECKING:
    from torch import Tensor

READ_BYTES = 2e9  # most that the bandwidth is measured on; a CPU takes ten times its cache
LAUNCHES = 200
GEMM_TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096)
FEW_TOKENS = 16  # products with so few rows are bound by reading the matrix
POINT_S = 1.0  # most seconds for one product

SIZES = tuple(1 << power for power in range(10, 27))
"""1 KiB .. 64 MiB: from one token's activations to a batch's logits."""
IN_A_ROW = 20  # all-reduces in one timed stretch: launches and skew between ranks average out
REPEATS = 9
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


def measure_rates(
    bench: Bench, stack: StackShape, deadline: Deadline, tokens: Sequence[int] = GEMM_TOKENS
) -> Rates:
    """Measure bandwidth, launches, and products of so many rows with the matrices of `stack`."""
    launch, in_graph = _launches(bench, deadline.share(0.1).left_s)
    read, copy = _bandwidth(bench, deadline.share(0.25).left_s)
    layer = stack.groups[0].shape
    shapes = {"head": (stack.vocab, stack.hidden)}  # and the largest dense matrix of a layer
    shapes |= {"gate_up": (2 * layer.ffn, layer.hidden)} if layer.ffn else {}
    products: list[Gemm] = []
    for (name, shape), part in zip(shapes.items(), deadline.parts(len(shapes)), strict=True):
        products += _products(bench, name, *shape, sorted(tokens), part)
    streamed = [p.bytes_per_s for p in products if p.tokens <= FEW_TOKENS]
    return Rates(
        read_bytes_per_s=max([read, *streamed]),
        copy_bytes_per_s=copy,
        flops=max((p.flops for p in products), default=0.0),
        launch_s=launch,
        graph_launch_s=in_graph,
        gemm=tuple(sorted(products, key=lambda p: (p.matrix, p.tokens))),
    )


def _bandwidth(bench: Bench, seconds: float) -> tuple[float, float]:
    """Read and copy bandwidth, bytes/s; a copy moves every byte twice."""
    torch = import_torch()
    size = min(READ_BYTES, bench.memory_bytes / 4)
    if bench.device.type != "cuda":
        size = min(size, max(10 * bench.cache_bytes, 64e6))
    source = torch.ones(int(size) // 4, dtype=torch.float32, device=bench.device)
    target = torch.empty_like(source)
    steps: list[Step] = [source.sum, lambda: target.copy_(source)]
    read, copy = sample(bench.timer, steps, min(seconds, 4.0))
    count = source.numel() * 4
    return count / read.seconds, 2 * count / copy.seconds


def _launches(bench: Bench, seconds: float) -> tuple[float, float | None]:
    """Seconds of a small kernel started by the host, and of one in a CUDA graph."""
    torch, device = import_torch(), bench.device
    small = torch.zeros(256, device=device)

    def many() -> None:
        for _ in range(LAUNCHES):
            small.add_(1.0)

    def waited() -> None:
        many()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    by_host, *_ = sample(Timer(), [waited], min(seconds, 1.0))
    if device.type != "cuda":
        return by_host.seconds / LAUNCHES, None
    in_graph, *_ = sample(bench.timer, [many], min(seconds, 1.0))
    return by_host.seconds / LAUNCHES, in_graph.seconds / LAUNCHES


def _products(
    bench: Bench, name: str, rows: int, columns: int, tokens: Sequence[int], deadline: Deadline
) -> Iterator[Gemm]:
    """Products with one matrix: as many copies in turn as the cache cannot hold."""
    linear = import_torch().nn.functional.linear
    size, most = rows * columns * bench.number_bytes, bench.memory_bytes / 4
    copies = 1 + min(max(1, int(most / size)), int(4 * bench.cache_bytes // size))
    matrices = [bench.fill(rows, columns) for _ in range(copies)]
    done: list[tuple[int, float]] = []
    for count in tokens:
        wide = count * (rows + columns) * bench.number_bytes
        if wide > most or not affordable(count, done, deadline.left_s):
            return
        given = bench.fill(count, columns)

        def run(given: Tensor = given) -> None:
            for matrix in matrices:
                linear(given, matrix)

        (timed,) = sample(bench.timer, [run], min(POINT_S, deadline.left_s / 3))
        done.append((count, timed.seconds))
        once = timed.seconds / copies
        yield Gemm(
            matrix=name,
            tokens=count,
            inputs=columns,
            outputs=rows,
            seconds=once,
            flops=2.0 * count * rows * columns / once,
            bytes_per_s=size / once,
        )


def measure_allreduce(
    kind: str, ranks: int, seconds: float, sizes: Sequence[int] = SIZES
) -> AllReduce | None:
    """Time all-reduces of bf16 (CPU: fp32) messages over `ranks` processes, one per device.

    `kind` is ``cuda`` (NCCL) or ``cpu`` (gloo); one process has nothing to measure. After so many
    seconds no further size, in bytes per rank, is begun.
    """
    if ranks < 2:
        return None
    torch = import_torch()
    if not torch.distributed.is_available():
        return None
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            _rank, args=(kind, ranks, folder, seconds, tuple(sizes)), nprocs=ranks, join=True
        )
        files = [Path(folder) / f"{rank}.json" for rank in range(ranks)]
        found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    points = slowest([dict(one["times"]) for one in found])
    if not points:
        return None
    graphs = all(one["graphs"] for one in found)
    return AllReduce(backend=BACKENDS[kind], ranks=ranks, graphs=graphs, points=points)


def slowest(by_rank: Sequence[dict[int, float]]) -> tuple[AllReducePoint, ...]:
    """Join the ranks' times: an all-reduce is over when its last rank is.

    >>> [(p.size_bytes, p.seconds) for p in slowest([{1: 2e-6, 2: 1.0}, {1: 3e-6}])]
    [(1, 3e-06)]
    """
    common = set(by_rank[0]).intersection(*by_rank[1:])
    return tuple(
        AllReducePoint(size_bytes=size, seconds=max(times[size] for times in by_rank))
        for size in sorted(common)
    )


def _rank(
    rank: int, kind: str, ranks: int, folder: str, seconds: float, sizes: tuple[int, ...]
) -> None:
    """Run one process: times of every size into FOLDER/RANK.json."""
    torch = import_torch()
    dist, cuda = torch.distributed, kind == "cuda"
    device = torch.device(kind, rank) if cuda else torch.device(kind)
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        BACKENDS[kind],
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=max(60.0, 2 * seconds)),
        device_id=device if cuda else None,
    )
    timer, deadline = timer_of(device, 0.0), Deadline(seconds)
    dtype = torch.bfloat16 if cuda else torch.float32
    times: list[tuple[int, float]] = []
    for size in sizes:
        go_on = torch.tensor([float(deadline.left_s > 0)], device=device)
        dist.all_reduce(go_on, op=dist.ReduceOp.MIN)  # all ranks stop at the same size
        if not go_on.item():
            break
        message = torch.zeros(max(1, size // dtype.itemsize), dtype=dtype, device=device)

        def many(message: Tensor = message) -> None:
            for _ in range(IN_A_ROW):
                dist.all_reduce(message)

        ready, found = timer.prepare(many), []
        for _ in range(REPEATS):
            dist.barrier()
            found += timer.times([ready], 1)[0]
        times.append((size, statistics.median(found) / IN_A_ROW))
    told = json.dumps({"times": times, "graphs": timer.graphs})
    (Path(folder) / f"{rank}.json").write_text(told, encoding="utf-8")
    dist.destroy_process_group()
